"""Queries, their verifier, demonstrations and tokenizer: what the base policy learns from and is judged by."""

import random
from collections import Counter
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from repro.engine.backends.load import build_tiny
from repro.policy.model import SHIPPED
from repro.settings import Family, load
from repro.tasks import queries
from repro.tasks.demonstrations import Mixture, _wrongly_added, demonstrate
from repro.tasks.queries import Query, compact_prompt, draw_family, draw_pool, extract_answer, make_pools, verify
from repro.tasks.tokenizer import SYMBOLS, UnknownSymbol, build_tokenizer, encode

FAMILIES = load(scale="cpu").task.families


def task(**changes):
    sizes = dict(seed=3, train_queries=90, evaluation_queries=70, pretraining_queries=300)
    return SimpleNamespace(families=FAMILIES, **sizes | changes)


@pytest.fixture(scope="module")
def pools():
    return make_pools(task())


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


def some_query(dataset: str, wanted=lambda query: True) -> Query:
    family = next(family for family in FAMILIES.values() if family.dataset == dataset)
    return next(filter(wanted, draw_family(dataset, dataset, family.options, 60, 0, set())))


def test_pools_are_distinct_and_disjoint(pools):
    train, evaluation, pretraining = (
        [query.prompt for query in part] for part in (pools.train, pools.evaluation, pools.pretraining)
    )
    assert len(set(train)) == len(train) == 90 and len(set(evaluation)) == len(evaluation) == 70
    assert not set(evaluation) & (set(train) | set(pretraining))
    assert 0.5 * 300 < len(pretraining) <= 302 and set(query.family for query in pools.pretraining) == set(FAMILIES)


def test_shares_are_exact_up_to_the_rounding_of_one(pools):
    for part, size in ((pools.train, 90), (pools.evaluation, 70)):
        counts = Counter(query.family for query in part)
        assert all(abs(counts[name] - family.share * size) < 1 for name, family in FAMILIES.items())


def test_largest_remainders_by_hand():
    # shares of seven: 1.4, 2.1, 3.5; the seat that rounding down leaves goes to the largest remainder
    names = {"a": 0.2, "b": 0.3, "c": 0.5}
    options = {"min_terms": 3, "max_terms": 3, "min_digits": 2, "max_digits": 2}
    families = {name: Family(dataset="chain_sum", share=share, options=options) for name, share in names.items()}
    pool = draw_pool(families, 7, 0, set())
    assert [query.family for query in pool] == ["a"] + ["b"] * 2 + ["c"] * 4
    assert len({query.prompt for query in pool}) == 7  # the same family thrice, and still no query twice


def test_the_seed_decides_and_evaluation_does_not_move_with_the_training_size(pools):
    again = make_pools(task())
    assert (again.train, again.evaluation, again.pretraining) == (pools.train, pools.evaluation, pools.pretraining)
    assert make_pools(task(train_queries=30)).evaluation == pools.evaluation
    assert make_pools(task(seed=4)).evaluation != pools.evaluation
    without = make_pools(task(), pretraining=False)
    assert (without.train, without.evaluation, without.pretraining) == (pools.train, pools.evaluation, [])


@pytest.mark.parametrize("family", ["sum-6", "product-2"])
def test_the_next_seed_draws_other_queries(family):
    """reasoning-gym seeds query i by seed + i, so that seeds 0 and 1, handed on as they are, share 59 of 60."""
    dataset, options = FAMILIES[family].dataset, FAMILIES[family].options
    first, second = ({q.prompt for q in draw_family(family, dataset, options, 60, seed, set())} for seed in (0, 1))
    assert len(first & second) <= 6


def test_compact_prompts_by_hand():
    assert compact_prompt("chain_sum", {"expression": "4 - 1 - 7"}) == "4-1-7="
    assert compact_prompt("products", {"expression": "31 * 25"}) == "31*25="
    assert compact_prompt("gcd", {"numbers": [36, 60]}) == "g36,60="
    with pytest.raises(ValueError, match="'figlet_font'"):
        compact_prompt("figlet_font", {})


def test_answers_are_right(pools):
    for query in pools.train + pools.evaluation:
        if query.prompt.startswith("g"):
            a, b = (int(number) for number in query.prompt[1:-1].split(","))
            while b:
                a, b = b, a % b
            assert query.answer == str(a)
        else:
            assert int(query.answer) == eval(query.prompt.rstrip("="))


def test_the_answer_is_what_follows_the_last_mark():
    assert extract_answer("1+2=3#3") == "3" and extract_answer("#4#5") == "5"
    assert extract_answer("#") == "" and extract_answer("12") is None and extract_answer("") is None


@pytest.mark.parametrize("dataset", ["chain_sum", "products", "gcd"])
def test_right_wrong_and_malformed_responses(dataset):
    query = some_query(dataset)
    right, wrong = query.answer, str(int(query.answer) + 1)
    for response in (f"#{right}", f"{wrong};{wrong}#{right}", f"#{wrong}#{right}", f"##{right}"):
        assert verify(response, query) == 1.0
    malformed = [
        "",
        "#",
        right,
        f"{right}#",
        f"#{right}#",
        f"#{right}#{wrong}",
        f"#{right}={right}",
        f"#{right}{right}",
    ]
    for response in (f"#{wrong}", f"#-{right}", f"#{right}0", f"#0{right}1", f"#={right}", *malformed):
        assert verify(response, query) == 0.0, response


def test_what_the_scorer_of_reasoning_gym_tolerates():
    """Sums and products are compared as decimals, commas stripped; gcd as text. Its partial credit is dropped."""
    for dataset in ("chain_sum", "products"):
        query = some_query(dataset, lambda query: int(query.answer) > 9)
        for answer in (f"+{query.answer}", f"00{query.answer}", f"{query.answer[0]},{query.answer[1:]}"):
            assert verify(f"#{answer}", query) == 1.0, answer
    query = some_query("gcd")
    for answer in (f"+{query.answer}", f"0{query.answer}", f",{query.answer}"):
        assert verify(f"#{answer}", query) == 0.0, answer


STYLES = {"direct": (1.0, 0.0), "worked": (0.0, 0.0), "wordy": (0.0, 1.0)}


def faultless(style: str, **changes) -> Mixture:
    direct, wordy = STYLES[style]
    return Mixture(direct=direct, wordy=wordy, slip_per_step=0.0, slip_direct=0.0, **changes)


def steps(prompt, dataset, style, rng=None, **changes) -> str:
    query = Query(prompt, "0", dataset, {"metadata": {"source_dataset": dataset}})
    return demonstrate(query, faultless(style, **changes), rng or random.Random(0))


@pytest.mark.parametrize("style", STYLES)
def test_without_slips_every_style_ends_in_the_right_answer(pools, style):
    rng = random.Random(0)
    assert {query.family for query in pools.train} == set(FAMILIES)
    for query in pools.train + pools.evaluation:
        response = demonstrate(query, faultless(style), rng)
        assert verify(response, query) == 1.0, (query.prompt, response)


def test_worked_steps_by_hand():
    assert steps("4-1-7=", "chain_sum", "worked") == "4-1=3;3-7=-4#-4"
    assert steps("4-1-7=", "chain_sum", "wordy") == "4=4-1=3;-1+4=3;3+1=4;3=3-7=-4;-7+3=-4;-4+7=3#-4"
    assert steps("31*25=", "products", "worked") == "31*20=620;31*5=155#775"
    assert steps("g18,48=", "gcd", "worked") == "48,18;18,12;12,6#6"
    assert steps("g18,48=", "gcd", "wordy") == "18,48;48,18;12,18;18,12;6,12;12,6#6"


def test_wrong_procedures_are_column_arithmetic_without_what_is_carried():
    """And the sign lost on the way through zero. A step for which that is right has no wrong procedure."""
    by_hand = {(7, 8): ("carry", 5), (17, 8): ("carry", 15), (12, -5): ("borrow", 13), (3, -7): ("sign", 4)}
    assert {step: _wrongly_added(*step) for step in by_hand} == by_hand
    for total in range(-60, 61):
        for term in range(-9, 10):
            (tens, ones), result = divmod(abs(total), 10), total + term
            if (total < 0) != (result < 0):
                bug, wrong = "sign", -result
            else:
                bug = "carry" if total * term > 0 else "borrow"
                digit = abs(ones - abs(term)) if total * term < 0 else (ones + abs(term)) % 10
                wrong = (10 * tens + digit) * (-1 if total < 0 else 1)
            assert _wrongly_added(total, term) == (None if wrong == result else (bug, wrong)), (total, term)


class Counted(random.Random):
    calls = 0

    def random(self):
        self.calls += 1
        return super().random()


ALWAYS = {"carry": 1.0, "borrow": 1.0, "sign": 1.0, "stop": 1.0}


@pytest.mark.parametrize(
    ("prompt", "dataset", "right", "wrong", "calls"),
    [
        ("7+8-9+1=", "chain_sum", "7+8=15;15-9=6;6+1=7#7", "7+8=5;5-9=4;4+1=5#5", (4, 6)),
        ("g18,48=", "gcd", "48,18;18,12;12,6#6", "48,18#12", (4, 3)),
        ("g6,12=", "gcd", "12,6#6", "12,6#6", (2, 2)),  # no remainder to stop at
    ],
)
def test_bugs_are_followed_through_and_without_them_no_number_is_drawn(prompt, dataset, right, wrong, calls):
    """One for the style and one for each step's slip, as before there were bugs; one more where a bug applies."""
    for bugs, response, drawn in (({}, right, calls[0]), (ALWAYS, wrong, calls[1])):
        rng = Counted(0)
        assert (steps(prompt, dataset, "worked", rng, bugs=bugs), rng.calls) == (response, drawn)
    others = {name: 0.0 for name in ALWAYS} | {"carry": 1.0, "stop": 1.0}
    assert steps("7+8-9=", "chain_sum", "worked", bugs=others) == "7+8=5;5-9=-4#-4"
    assert steps("3-7=", "chain_sum", "wordy", bugs=ALWAYS, again=False) == "3=3-7=4;4+7=3#4"
    assert steps("g18,48=", "gcd", "wordy", bugs=ALWAYS) == "18,48;48,18#12"


def test_a_harder_split_is_held_out_of_its_own_families_and_changes_no_other_pool(pools):
    families = {"sum-9": FAMILIES["sum-6"].model_copy(update={"share": 1.0})}
    found = make_pools(task(harder=SimpleNamespace(queries=11, shown=0.2, families=families)))
    prompts = {query.prompt for query in found.harder}
    assert len(prompts) == 11 and {query.family for query in found.harder} == {"sum-9"}
    shown = [query.prompt for query in found.pretraining if query.family == "sum-9"]
    assert len(shown) == 60 and len(found.pretraining) <= 302 and not prompts & set(shown)
    assert (found.train, found.evaluation) == (pools.train, pools.evaluation)


def test_every_step_written_without_slips_is_true(pools):
    for query in pools.train:
        for style in ("worked", "wordy"):
            steps = demonstrate(query, faultless(style), random.Random(0)).split("#")[0]
            for equation in steps.split(";"):
                if "=" in equation:
                    assert len({eval(side) for side in equation.split("=")[-2:]}) == 1, equation


def test_slips_make_wrong_answers_at_a_known_rate():
    query = some_query("products")
    always = Mixture(direct=1.0, wordy=0.0, slip_per_step=0.0, slip_direct=1.0)
    rng = random.Random(0)
    assert all(verify(demonstrate(query, always, rng), query) == 0.0 for _ in range(50))
    # an answer at once with four digits in the prompt: 1 − (1 − 0.2)² of them miss
    digits = sum(symbol.isdigit() for symbol in query.prompt)
    some = Mixture(direct=1.0, wordy=0.0, slip_per_step=0.0, slip_direct=0.2)
    missed = sum(verify(demonstrate(query, some, rng), query) == 0.0 for _ in range(2000)) / 2000
    assert missed == pytest.approx(1 - 0.8 ** (digits - 2), abs=0.04)


def test_styles_come_in_their_shares_and_slip_alike():
    query = next(query for query in make_pools(task()).train if query.family == "sum-5")
    mixture = Mixture(direct=0.3, wordy=0.2, slip_per_step=0.1, slip_direct=0.0)
    rng = random.Random(1)
    responses = [demonstrate(query, mixture, rng) for _ in range(4000)]
    styles = Counter(0 if text.startswith("#") else 2 if text.count("=") > 4 else 1 for text in responses)
    assert [styles[style] / 4000 for style in range(3)] == pytest.approx([0.3, 0.5, 0.2], abs=0.03)
    for wordy in (False, True):  # four steps, each right with 0.9; two slips can cancel, rarely
        chosen = [text for text in responses if not text.startswith("#") and (text.count("=") > 4) == wordy]
        right = sum(verify(text, query) for text in chosen) / len(chosen)
        assert 0.9**4 - 0.05 < right < 0.9**4 + 0.08


def test_the_tokenizer_is_one_symbol_one_token_there_and_back(tokenizer, pools):
    assert len(tokenizer) == len(SYMBOLS) == len(set(SYMBOLS))
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    mixture = Mixture(direct=0.2, wordy=0.4, slip_per_step=0.5, slip_direct=0.5)
    rng = random.Random(0)
    for query in pools.train + pools.evaluation:
        text = query.prompt + demonstrate(query, mixture, rng)
        assert set(text) <= set(SYMBOLS[3:])
        ids = tokenizer(text)["input_ids"]
        assert ids == [1] + [SYMBOLS.index(symbol) for symbol in text]
        assert tokenizer.decode(ids, skip_special_tokens=True) == text


@pytest.mark.parametrize("pool", ["train", "evaluation", "pretraining"])
def test_queries_that_the_tokenizer_cannot_write_are_refused(monkeypatch, pool):
    usual = queries.compact_prompt
    monkeypatch.setattr(queries, "compact_prompt", lambda *question: usual(*question).replace("g", "l"))
    sizes = dict(train_queries=0, evaluation_queries=0, pretraining_queries=0) | {f"{pool}_queries": 60}
    with pytest.raises(
        UnknownSymbol, match=r"tokenizer cannot write 'l' of the text 'l\d+,\d+=': add it at the end of"
    ):
        make_pools(task(**sizes))


def test_what_a_policy_would_not_read_is_refused_and_other_ids_stay(tokenizer, pools):
    prompts = [query.prompt for query in pools.train]
    for each in (tokenizer, AutoTokenizer.from_pretrained(SHIPPED, padding_side="left")):
        assert encode(each, prompts) == tokenizer(prompts)["input_ids"]
        for text, symbol in (("l8,2=", "'l'"), ("12\n", r"'\\n'"), ("1_2", "'_'"), ("#7$", r"'\$'")):
            with pytest.raises(UnknownSymbol, match=f"cannot write {symbol} of the text"):
                encode(each, ["1+2=", text])


def test_the_tokenizer_of_a_language_model_is_left_alone():
    _, over_bytes = build_tiny()
    assert over_bytes.pad_token_id in encode(over_bytes, [over_bytes.pad_token])[0]
    words = Tokenizer(models.WordLevel({"[X]": 0, "two": 1}, unk_token="[X]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    over_words = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[X]", unk_token="[X]")
    assert encode(over_words, ["two three"]) == [[1, 0]]
