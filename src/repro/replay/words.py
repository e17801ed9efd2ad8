"""The wording of what a replay says: sentences in words.yaml, the answer in a template."""

from pathlib import Path
from typing import Any

import yaml

from repro.paths import EVERY_PRICE
from repro.report.front_page import rows_of

SENTENCES = yaml.safe_load(Path(__file__).with_name("words.yaml").read_text(encoding="utf-8"))


def say(id: str, **values: Any) -> str:
    """The sentence of this id, with `values` in their places."""
    return SENTENCES[id].format(**values)


def on_record(title: str) -> dict[str, str]:
    """{measure and price: difference from GRPO's for the same bill} of an arm in the study's runs; {} without them."""
    rows = rows_of(EVERY_PRICE) if EVERY_PRICE.exists() else []
    return next((dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[2:] if row[0] == title), {})


def template(name: str, **values: Any) -> str:
    """The text of a template next to this file."""
    import jinja2

    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(Path(__file__).with_name(name).read_text(encoding="utf-8")).render(values).strip()
