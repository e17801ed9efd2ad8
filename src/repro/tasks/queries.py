"""Queries from reasoning-gym, written compactly, and their verification by reasoning-gym's own scorer; and queries in
words, for language models, each kind a module of its own.

A *family* is one data set at one difficulty, such as sums of five terms. The query mix is a list of families with
shares; a pool is drawn from it without repetition, so that training and evaluation pools are disjoint.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from types import ModuleType
from typing import Any

import numpy as np

from repro.tasks import lists, stories
from repro.tasks.tokenizer import check_symbols

END_OF_STEPS = "#"  # the answer is whatever follows the last one in a response
WORDED = {"stories": stories, "lists": lists}  # data sets in words: `draw` and `work` of a module


@dataclass(frozen=True)
class Query:
    """One question. `prompt` is what the policy reads, `entry` what its data set's scorer needs."""

    prompt: str
    answer: str
    family: str
    entry: dict[str, Any] = field(compare=False, repr=False)


@dataclass(frozen=True)
class _Worded:
    """A data set in words, with what reasoning-gym's have: entries by number, and a scorer."""

    source: ModuleType
    seed: int
    min_steps: int = 2
    max_steps: int = 2

    def __getitem__(self, index: int) -> dict[str, Any]:
        rng = Random(f"{self.seed} {index}")
        return self.source.draw(rng, rng.randint(self.min_steps, self.max_steps))

    def score_answer(self, answer: str, entry: dict[str, Any]) -> float:
        return float(answer.strip() == entry["answer"])


def prompt_of(dataset: str, entry: dict[str, Any]) -> str:
    """What the policy reads of a query: the question in words, or as compactly as a small policy needs it.
    UnknownSymbol if that holds a symbol that the small policy's tokenizer lacks."""
    if dataset in WORDED:
        return entry["question"]
    prompt = compact_prompt(dataset, entry["metadata"])
    check_symbols([prompt])
    return prompt


def compact_prompt(dataset: str, metadata: dict[str, Any]) -> str:
    """The question without its English: `4 - 1 - 7` becomes `4-1-7=`. Answer and scorer are reasoning-gym's."""
    if dataset in ("chain_sum", "products"):
        return metadata["expression"].replace(" ", "") + "="
    if dataset == "gcd":
        return "g" + ",".join(str(number) for number in metadata["numbers"]) + "="
    raise ValueError(f"task.families: no compact prompt is written for reasoning-gym's {dataset!r}; add one here")


def family_seed(name: str, seed: int | list[int]) -> int:
    """A seed for one family of one pool. It is hashed because reasoning-gym seeds query i with seed + i: neighbouring
    seeds would share almost all queries, and families with the same seed their first terms."""
    words = np.random.SeedSequence([*np.atleast_1d(seed).tolist(), *name.encode()]).generate_state(1)
    return int(words[0])


def draw_family(
    name: str, dataset: str, options: dict[str, Any], size: int, seed: int | list[int], taken: set[str]
) -> list[Query]:
    """`size` queries of one family whose prompts are not in `taken`; adds them to `taken`.

    ValueError if the family has too few distinct queries left (the pool would repeat itself).
    """
    scorer = _dataset(dataset, tuple(sorted(options.items())), family_seed(name, seed))
    queries: list[Query] = []
    for index in range(200 * size + 2000):
        if len(queries) == size:
            return queries
        entry = scorer[index]
        prompt = prompt_of(dataset, entry)
        if prompt not in taken:
            taken.add(prompt)
            queries.append(Query(prompt, entry["answer"], name, {**entry, "options": options}))
    if len(queries) == size:
        return queries
    raise ValueError(
        f"task.families.{name}: only {len(queries)} distinct queries are left of the {size} asked for; "
        "lower its share or the pool sizes, or widen its options"
    )


def draw_pool(families: dict[str, Any], size: int, seed: int | list[int], taken: set[str]) -> list[Query]:
    """A pool of `size` queries, each family with its share, in family order; adds its prompts to `taken`.

    `families` maps a name to an object with `dataset`, `options` and `share` (shares sum to 1). Largest-remainder
    rounding keeps the total exact.
    """
    exact = {name: family.share * size for name, family in families.items()}
    counts = {name: int(value) for name, value in exact.items()}
    by_remainder = sorted(exact, key=lambda name: counts[name] - exact[name])
    for name in by_remainder[: size - sum(counts.values())]:
        counts[name] += 1
    pool: list[Query] = []
    for name, family in families.items():
        pool += draw_family(name, family.dataset, family.options, counts[name], seed, taken)
    return pool


def sample_with_repetition(
    families: dict[str, Any], size: int, seed: int | list[int], excluded: set[str]
) -> list[Query]:
    """About `size` queries for pre-training, in the families' shares times their emphasis; repetitions allowed, none
    in `excluded`."""
    queries: list[Query] = []
    total = sum(family.share * family.emphasis for family in families.values())
    for name, family in families.items():
        source = _dataset(family.dataset, tuple(sorted(family.options.items())), family_seed(name, seed))
        for index in range(round(family.share * family.emphasis / total * size)):
            entry = source[index]
            prompt = prompt_of(family.dataset, entry)
            if prompt not in excluded:
                queries.append(Query(prompt, entry["answer"], name, {**entry, "options": family.options}))
    return queries


@dataclass(frozen=True)
class QueryPools:
    """Training and evaluation queries (disjoint prompts), those for pre-training (disjoint from evaluation), and the
    harder held-out ones, of families of their own that are not trained on, where the task has them."""

    train: list[Query]
    evaluation: list[Query]
    pretraining: list[Query]
    harder: Sequence[Query] = ()


def make_pools(task: Any, *, pretraining: bool = True) -> QueryPools:
    """The pools of `params.yaml`'s `task`; evaluation is drawn first, so it does not depend on the training size.

    pretraining: whether the queries for pre-training are drawn too, many as they are; else there are none.
    UnknownSymbol if a prompt holds a symbol that the tokenizer lacks.
    """
    taken: set[str] = set()
    evaluation = draw_pool(task.families, task.evaluation_queries, [task.seed, 0], taken)
    held_out = set(taken)
    train = draw_pool(task.families, task.train_queries, [task.seed, 1], taken)
    many, harder, shown = task.pretraining_queries if pretraining else 0, [], []
    if more := getattr(task, "harder", None):
        harder = draw_pool(more.families, more.queries, [task.seed, 3], held_out)
        shown = sample_with_repetition(more.families, round(more.shown * many), [task.seed, 4], held_out)
    shown = sample_with_repetition(task.families, many - len(shown), [task.seed, 2], held_out) + shown
    return QueryPools(train, evaluation, shown, harder)


def extract_answer(response: str) -> str | None:
    """The text after the last `#` of a finished response; None if there is none."""
    _, mark, answer = response.rpartition(END_OF_STEPS)
    return answer if mark else None


def verify(response: str, query: Query) -> float:
    """1.0 if the data set's scorer gives the extracted answer full score, else 0.0.

    reasoning-gym's partial credit (0.01 for a wrong answer that parses) is dropped: the papers' rewards are 0 or 1.
    """
    answer = extract_answer(response)
    if not answer:
        return 0.0
    source = query.entry["metadata"]["source_dataset"]
    scorer = _dataset(source, tuple(sorted(query.entry["options"].items())), 0)
    return float(scorer.score_answer(answer, query.entry) >= 1.0)


@lru_cache(maxsize=256)
def _dataset(name: str, options: tuple[tuple[str, Any], ...], seed: int) -> Any:
    """One data set of unbounded size; reasoning-gym is imported here because the import takes seconds."""
    if name in WORDED:
        return _Worded(WORDED[name], seed, **dict(options))
    import importlib.util
    import sys
    import types
    import warnings

    if "pycosat" not in sys.modules and importlib.util.find_spec("pycosat") is None:
        # One logic puzzle of reasoning-gym imports this solver, which is published as C source only. We skip the
        # puzzle, so that no compiler is needed.
        sys.modules["pycosat"] = types.ModuleType("pycosat")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        import reasoning_gym
    return reasoning_gym.create_dataset(name, seed=seed, size=2**30, **dict(options))
