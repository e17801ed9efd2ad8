"""Are the numbers of two results folders equal? `python -m benchmarks.compare_results OLD NEW`.

Every parquet table below OLD is compared with the one at the same place below NEW: the same rows in the same order, and
every column of numbers or truth values equal to the last bit. Words are not compared: wording may change, numbers may
not. JSON files are compared number by number. A table that changed its form is compared by a rule of `MOVED`. Exit
status 1 if anything differs.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd


def verdict_rows(old: Path) -> pd.DataFrame:
    """A theory group's verdict.json as the rows of verdicts.parquet."""
    rows = json.loads(old.read_text())
    table = pd.DataFrame(rows)
    low_high = np.array([row["interval"] for row in rows], float)
    outcome = table["holds"].map({True: "holds", False: ""})
    columns = {"expected": table["expected"], "value": table["measured"], "low": low_high[:, 0], "high": low_high[:, 1]}
    return pd.DataFrame({**columns, "tolerance": table["tolerance"].astype(float), "outcome": outcome})


# Old file name: (new file name, how the old one is read as the new one's columns).
MOVED: dict[str, tuple[str, Callable[[Path], pd.DataFrame]]] = {"verdict.json": ("verdicts.parquet", verdict_rows)}


def differences(old: pd.DataFrame, new: pd.DataFrame) -> Iterator[str]:
    """What is not equal, a phrase for each; nothing if all numbers are."""
    if len(old) != len(new):
        yield f"{len(old)} rows, now {len(new)}"
        return
    if "outcome" in old and "outcome" in new:  # by the old rule a claim holds or does not
        yield from ["outcome differs"] * bool(((old["outcome"] == "holds") != (new["outcome"] == "holds")).any())
    for name in old.columns:
        kind = old[name].dtype.kind
        if kind not in "biuf":
            continue
        if name not in new:
            yield f"column {name} is gone"
        elif not old[name].reset_index(drop=True).equals(new[name].reset_index(drop=True)):
            yield f"column {name} differs"


def json_numbers(value: Any, place: str = "") -> dict[str, float]:
    """{place: number} of a JSON value."""
    if isinstance(value, dict):
        return {k: v for key, inner in value.items() for k, v in json_numbers(inner, f"{place}.{key}").items()}
    if isinstance(value, list):
        return {k: v for i, inner in enumerate(value) for k, v in json_numbers(inner, f"{place}[{i}]").items()}
    return {place: value} if isinstance(value, (int, float)) else {}


def compare(old: Path, new: Path) -> list[tuple[str, str]]:
    """[(file, outcome)] for every table of `old`, in order: "equal", or what differs."""
    rows = []
    for path in sorted(file for file in old.rglob("*") if file.is_file()):
        place = path.relative_to(old)
        if path.name in MOVED:
            name, read = MOVED[path.name]
            target = new / place.with_name(name)
            found = list(differences(read(path), pd.read_parquet(target))) if target.exists() else ["is gone"]
        elif not (new / place).exists():
            found = ["is gone"] if path.suffix in (".parquet", ".json", ".safetensors") else ["words, gone"]
        elif path.suffix == ".parquet":
            found = list(differences(pd.read_parquet(path), pd.read_parquet(new / place)))
        elif path.suffix == ".json":
            before, now = (json_numbers(json.loads((root / place).read_text())) for root in (old, new))
            found = [f"{key} differs" for key in before if key in now and before[key] != now[key]]
            found += [f"{key} is gone" for key in before if key not in now]
        else:
            found = [] if path.read_bytes() == (new / place).read_bytes() else ["bytes differ"]
        rows.append((str(place), "; ".join(found) or "equal"))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    chosen = parser.parse_args()
    for folder in (chosen.old, chosen.new):
        if not folder.is_dir():
            parser.error(f"there is no folder {folder}")
    rows = compare(chosen.old, chosen.new)
    for place, outcome in rows:
        if outcome != "equal":
            print(f"{place}: {outcome}")
    wrong = sum(outcome not in ("equal", "words, gone") for _, outcome in rows)
    print(f"{sum(outcome == 'equal' for _, outcome in rows)} of {len(rows)} files have equal numbers, {wrong} do not")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
