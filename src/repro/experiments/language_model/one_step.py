"""Word problems of one step, drawn from templates: as many as training needs, where the file of problems has few."""

from random import Random

from repro.tasks.queries import END_OF_STEPS, Query, family_seed

FAMILY = "word problems of one step"
EXAMPLES = (
    f"Eva has 6 pens and buys 3 more. How many pens does she have? 6 + 3 = 9 {END_OF_STEPS}9\n"
    f"A box holds 4 cups. How many cups are in 5 boxes? 4 * 5 = 20 {END_OF_STEPS}20\n"
)
LARGEST = 12  # number in a problem, but for what something is taken from
# With numbers a and b: what is asked for is total = a + b, product = a · b, or the a that is left of the total.
TEMPLATES = {
    "total": (
        "Mia has {a} marbles. Her uncle gives her {b} more. How many marbles does she have?",
        "Lena reads {a} pages on Monday and {b} pages on Tuesday. How many pages does she read?",
        "There are {a} birds on a fence. Then {b} more land on it. How many birds are on the fence?",
        "A shop sells {a} red and {b} blue hats. How many hats does it sell?",
    ),
    "left": (
        "A bus carries {total} people and {b} get off. How many people are still on the bus?",
        "Sam has {total} cookies and eats {b} of them. How many cookies are left?",
        "A jug holds {total} cups of water and {b} are poured out. How many cups are left?",
        "Of {total} apples {b} are bad. How many apples are good?",
    ),
    "product": (
        "Each bag holds {b} oranges. How many oranges are in {a} bags?",
        "A pencil costs {b} dollars. How many dollars do {a} pencils cost?",
        "A garden has {a} rows of {b} tulips. How many tulips are there?",
        "Tom runs {b} miles a day. How many miles does he run in {a} days?",
    ),
}


def draw_one_step(size: int, seed: int) -> list[Query]:
    """`size` distinct problems with numbers from 2 to LARGEST, every template about equally often. ValueError where
    there are too few."""
    known = [(asked, template) for asked, templates in TEMPLATES.items() for template in templates]
    if size > (most := len(known) * (LARGEST - 1) ** 2):
        raise ValueError(f"only {most} of {size} word problems of one step: lower task.train_queries")
    rng, drawn = Random(family_seed(FAMILY, seed)), {}
    while len(drawn) < size:
        asked, template = known[len(drawn) % len(known)]
        a, b = rng.randint(2, LARGEST), rng.randint(2, LARGEST)
        numbers = {"a": a, "b": b, "total": a + b}
        drawn[template.format(**numbers)] = {"total": a + b, "left": a, "product": a * b}[asked]
    return [_query(question, str(answer)) for question, answer in drawn.items()]


def _query(question: str, answer: str) -> Query:
    # Scored as a sum's result is: reasoning-gym compares the text after the mark with the answer.
    entry = {"question": question, "answer": answer, "metadata": {"source_dataset": "chain_sum"}, "options": {}}
    return Query(EXAMPLES + question, answer, FAMILY, entry)
