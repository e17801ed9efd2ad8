"""The profile of a language model, made once and kept in git: minutes of two cores, and an extra of 2.6 GB."""

import shutil
from collections.abc import Callable
from pathlib import Path

from repro.experiments.language_model.profile import profile_language_model
from repro.experiments.language_model.queries import draw_queries
from repro.experiments.language_model.summary import FOLDER, load
from repro.files import NotThere
from repro.settings import SettingsError
from repro.settings.studies import LanguageModel


def is_there(asked: LanguageModel, folder: Path = FOLDER) -> bool:
    """Whether `folder` has a profile that was made with these settings."""
    try:
        load(asked, folder)
    except (NotThere, SettingsError):
        return False
    return True


def make(asked: LanguageModel, say: Callable[[str], None], folder: Path = FOLDER) -> None:
    """Profile the model of these settings into `folder`. ModelMissing where it is not to be had."""
    queries = draw_queries(
        asked.terms, asked.sums_each, asked.word_problems, largest_term=asked.largest_term, seed=asked.seed
    )
    measured = profile_language_model(
        asked.source,
        queries,
        engine=asked.engine,
        dtype=asked.dtype,
        threads=asked.threads,
        samples=asked.samples,
        max_new_tokens=asked.max_new_tokens,
        temperature=asked.temperature,
        seed=asked.seed,
    )
    if measured.why:
        say(measured.why)
    shutil.rmtree(folder, ignore_errors=True)
    measured.save(folder, queries, asked)
    say(f"{folder}: {len(queries)} queries, {asked.samples} samples each, with {measured.facts['engine']}")
