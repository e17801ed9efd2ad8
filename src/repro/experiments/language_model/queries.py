"""The language model's queries: sums from reasoning-gym and word problems, each after two worked examples.

A prompt is a text to complete, not a chat, so that a base model can do it too; a response ends with its line.
"""

from collections.abc import Sequence
from random import Random

from repro.tasks.queries import END_OF_STEPS, Query, _dataset, family_seed
from repro.tasks.queries import verify as verify_sum
from repro.tasks.word_problems import FAMILY, load_word_problems, on_one_line, score_word_problem, word_problem_queries

SUM = "sum of {} terms"
SUM_EXAMPLES = "7 + 12 = 19\n15 - 6 + 3 = 12\n"
WORD_EXAMPLES = (
    ("Eva has 6 pens and buys 3 more. How many pens does she have?", "She has 6 + 3 = 9 pens.\n#### 9"),
    (
        "A box holds 4 cups. Paul has 5 boxes and breaks 2 cups. How many cups are left?",
        "The boxes hold 5 * 4 = 20 cups.\nSo 20 - 2 = 18 cups are left.\n#### 18",
    ),
)
STOP = "\n"


def sum_prompt(expression: str) -> str:
    """Two sums with their results, then the one to complete."""
    return f"{SUM_EXAMPLES}{expression} ="


def word_prompt(question: str) -> str:
    """Two problems with their answers, working included, then the one to complete."""
    shown = [f"Question: {asked}\nAnswer: {on_one_line(answer)}\n" for asked, answer in WORD_EXAMPLES]
    return "".join(shown) + f"Question: {question}\nAnswer:"


def draw_sums(terms: int, size: int, *, largest_term: int, seed: int) -> list[Query]:
    """`size` distinct sums and differences of `terms` terms from 1 to `largest_term`, by reasoning-gym's generator.

    The generator's options only bound the number of digits, equally for all terms of a sum, so its inner function is
    called with the bounds. ValueError where there are too few such sums.
    """
    source, family = _dataset("chain_sum", (), 0), SUM.format(terms)
    rng, sums = Random(family_seed(family, seed)), {}
    for _ in range(100 * size):
        if len(sums) == size:
            break
        expression, result = source._generate_task(rng, terms, 1, largest_term)
        if f"{expression} =" not in SUM_EXAMPLES:
            metadata = {"source_dataset": "chain_sum", "expression": expression}
            sums[expression] = {"answer": str(result), "metadata": metadata, "options": {}}
    if len(sums) < size:
        raise ValueError(
            f"only {len(sums)} of {size} sums of {terms} terms up to {largest_term}: "
            "raise language_model.largest_term, or lower language_model.sums_each"
        )
    return [Query(sum_prompt(expression), entry["answer"], family, entry) for expression, entry in sums.items()]


def draw_queries(
    terms: Sequence[int], sums_each: int, word_problems: int, *, largest_term: int, seed: int
) -> list[Query]:
    """`sums_each` sums of each number of terms, then the first `word_problems` word problems (all where fewer)."""
    sums = [query for number in terms for query in draw_sums(number, sums_each, largest_term=largest_term, seed=seed)]
    return sums + word_problem_queries(load_word_problems()[:word_problems], word_prompt)


def verify(response: str, query: Query) -> float:
    """1.0 or 0.0: a sum by reasoning-gym's scorer, of the whole response; a word problem by its final number."""
    if query.family == FAMILY:
        return score_word_problem(response, query.answer)
    if END_OF_STEPS in response:  # the project's own format, which this model was not asked for
        return 0.0
    return verify_sum(END_OF_STEPS + response.strip(), query)


def question(query: Query) -> str:
    """The question without the examples before it."""
    return query.entry["question"] if query.family == FAMILY else query.entry["metadata"]["expression"]
