"""Rollouts of other people's runs: read right, whatever wrote them, and put through the arms with the right numbers."""

import json
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from repro import settings as settings_module
from repro.errors import Refused
from repro.replay import NoRollouts, over_steps, read, replay
from repro.replay import __main__ as command
from repro.replay import words as words_module
from repro.replay.over_steps import flop_counter

# What every format below holds: two steps of two groups of four; rewards, and tokens of prompt and response.
REWARDS = np.array([1, 0, 0, 0, 1, 1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0.0])
RESPONSES = np.array([10, 44, 16, 53, 20, 30, 12, 40, 9, 8, 7, 6, 5, 4, 3, 2])
PROMPTS = np.repeat([7, 5, 7, 3], 4)
STEPS, GROUPS = np.repeat([1, 2], 8), np.repeat([0, 1, 2, 3], 4)
ROWS = list(zip(STEPS.tolist(), GROUPS.tolist(), REWARDS.tolist(), PROMPTS.tolist(), RESPONSES.tolist(), strict=True))


def lines(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def text(tokens):
    return "word " * (tokens - 1) + "end"


def verl(folder):
    for step in (1, 2):
        own = [row for row in ROWS if row[0] == step]
        lines(
            folder / f"{step}.jsonl",
            [
                {"input": text(p), "output": text(r - 1), "gts": "7", "score": reward, "step": step, "acc": 1.0}
                | {"uid": f"u{group}_{i % 4}_0"}
                for i, (_, group, reward, p, r) in enumerate(own)
            ],
        )


def trl(folder):
    for step in (1, 2):
        own = [row for row in ROWS if row[0] == step]
        table = {
            "step": step,
            "prompt": [[{"role": "user", "content": text(p)}] for *_, p, _ in own],
            "completion": [[{"role": "assistant", "content": text(r - 1)}] for *_, r in own],
            "correct": [reward / 2 for _, _, reward, _, _ in own],
            "format": [reward / 2 or None for _, _, reward, _, _ in own],
            "advantage": 0.0,
            "arm/drawn": 1.0,  # of `repro.trl`, no reward
        }
        pd.DataFrame(table).to_parquet(folder / f"completions_{step:05d}.parquet")


def slime(folder):
    import torch

    for step in (1, 2):
        samples = [
            {"group_index": group, "prompt": f"q{p}", "tokens": [1] * (p + r), "response": "so", "response_length": r}
            | {
                "reward": {"correct": np.float64(reward)},
                "status": "truncated",
                "rollout_log_probs": np.zeros(r, np.float32),
            }
            | {"multimodal_inputs": {"pixels": torch.zeros(2)}}  # which is not read
            for own, group, reward, p, r in ROWS
            if own == step
        ]
        torch.save({"rollout_id": step, "samples": samples}, folder / f"{step}.pt")


def prime_rl(folder):
    """Half of a reward is in either of two parts, one of weight ½; an agent that is not trained counts for nothing."""

    def trace(reward, p, r, trainable=True):
        nodes = [{"token_ids": [1] * p, "mask": [False] * p}, {"token_ids": [2] * r, "mask": [True] * r}]
        rewards = {"a": {"score": reward / 2}, "b": {"score": reward, "weight": 0.5}, "c": None}
        return {"nodes": nodes, "rewards": rewards, "agent": {"trainable": trainable}, "calls": calls(r)}

    def calls(r):  # two requests of r/4 seconds between them, and one that never ended
        times = [{"start": 5.0, "end": 5.0 + r / 8}, {"start": 9.0, "end": 9.0 + r / 8}, {"start": 9.0, "end": 0.0}]
        return [{"time": time} for time in times] + [{}]

    for step in (1, 2):
        episodes = [
            {"group": {"id": f"g{group}"}, "run": {"type": "train", "work": {"type": "train", "step": step}}}
            | {"task": {"key": f"q{group}"}, "traces": [trace(reward, p, r), trace(1.0, 1, 1, trainable=False)]}
            for own, group, reward, p, r in ROWS
            if own == step
        ]
        for kind in ("train/all", "train/effective", "eval/all"):
            lines(folder / f"step_{step}" / kind / "traces.jsonl", episodes)


def open_instruct(folder):
    records = [
        {"step": step, "prompt_idx": group % 2, "prompt_tokens": [group] * p, "response_tokens": [2] * r}
        | {"reward": reward, "advantage": 0.0, "finish_reason": "stop", "dataset": "x"}
        for step, group, reward, p, r in ROWS
    ]
    lines(folder / "run_rollouts_000000.jsonl", records)
    lines(folder / "run_metadata.jsonl", [{"run_name": "run"}])


NAMES = ["step", "group", "reward", "prompt_tokens", "response_tokens"]


def csv(folder):
    pd.DataFrame(ROWS, columns=NAMES).to_csv(folder / "mine.csv", index=False)


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A tokenizer for which every word is a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.WordLevel({"word": 0, "end": 1, "?": 2}, unk_token="?"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder = tmp_path_factory.mktemp("words")
    PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="?").save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("write", [verl, trl, slime, prime_rl, open_instruct, csv], ids=lambda write: write.__name__)
def test_each_format_gives_the_rollouts_that_were_written(tmp_path, write, words):
    write(tmp_path)
    dump = read(tmp_path, tokenizer=words if write in (verl, trl) else None)
    rows = dump.rows
    assert rows["reward"].tolist() == REWARDS.tolist()
    assert rows["step"].tolist() == STEPS.tolist()
    assert pd.factorize(rows["group"])[0].tolist() == GROUPS.tolist()
    assert rows["prompt_tokens"].tolist() == PROMPTS.tolist()
    assert rows["response_tokens"].tolist() == RESPONSES.tolist()
    assert dump.bad == {} and len(dump.formats) == 1
    if write is slime:
        assert rows["truncated"].all()
    seconds = rows["seconds"].tolist()  # which prime-rl alone tells: a quarter of a second a token, in two requests
    assert seconds == (RESPONSES / 4).tolist() if write is prime_rl else rows["seconds"].isna().all()


def by_hand(rewards_N, costs_N, prompts_N, chosen_N, refill, weight):
    """Bill of a step relative to training on every rollout: 2 FLOPs a token read, 6 a token trained on, without a
    parameter's number, which cancels. Groups are of four."""
    generation = sum(prompts_N[::4]) * 2 + sum(costs_N - prompts_N - 1) * 2
    whole = 6 * sum(costs_N)
    return (weight * refill * generation + refill * 6 * sum(costs_N[chosen_N])) / (weight * generation + whole)


def test_measures_are_those_of_a_count_by_hand():
    found = replay(pd.DataFrame(ROWS, columns=NAMES), generation_share=0.6)
    costs_N = PROMPTS + RESPONSES
    generation = 2 * (22 + sum(RESPONSES - 1))
    weight = 0.6 / 0.4 * 6 * sum(costs_N) / generation
    steps = found.steps.set_index(["arm", "step"])
    mixed_N = np.isin(GROUPS, [0, 2])
    for step, own_N in ((1, STEPS == 1), (2, STEPS == 2)):
        rewards_N, own_costs_N, prompts_N = REWARDS[own_N], costs_N[own_N], PROMPTS[own_N]
        grpo, zvf = steps.loc["grpo", step], steps.loc["zvf", step]
        assert (grpo["drawn"], grpo["distinct"], grpo["silent"], grpo["refill"], grpo["cosine"]) == (1, 0.5, 0.5, 1, 1)
        share = own_costs_N[mixed_N[own_N]].sum() / own_costs_N.sum()
        assert grpo["trained_tokens"] == pytest.approx(share) and grpo["paper_tokens"] == 1
        assert grpo["bill"] == pytest.approx(by_hand(rewards_N, own_costs_N, prompts_N, mixed_N[own_N], 1, weight))
        assert (zvf["refill"], zvf["distinct"], zvf["silent"]) == (2, 1, 0)
        assert zvf["bill"] == pytest.approx(by_hand(rewards_N, own_costs_N, prompts_N, mixed_N[own_N], 2, weight))
        assert zvf["tokens_to_error"] == pytest.approx(share)
        assert zvf["signal"] * zvf["bill"] == pytest.approx(2) and grpo["tokens_to_error"] == pytest.approx(1)
    assert found.facts["silent"] == 0.5 and found.facts["generation"] == pytest.approx(0.6)
    assert found.arms["seconds"].isna().all() and "requests" not in found.answer


def test_the_answer_says_what_runs_showed_of_its_arm(monkeypatch, tmp_path):
    few = [(0, q, float(i == 0), 50, 9 - i) for q in range(8) for i in range(8)]  # one right: a quarter keeps it
    found = replay(pd.DataFrame(few, columns=NAMES), generation_share=0.05)
    title = found.settings.titles_of([found.best])[found.best]
    monkeypatch.setattr(words_module, "EVERY_PRICE", tmp_path / "every_price.md")
    assert found.best != "grpo" and "What runs showed" not in found.answer  # as outside a checkout without its table
    columns = "temperature 1, generation 27% | greedy, generation 27% | temperature 1, generation 75%"
    rows = f"| GRPO | 0.6 | 0.7 | 0.6 |\n| {title} | +0.2 | +0.3 | -0.1 |\n"
    (tmp_path / "every_price.md").write_text(f"| arm | {columns} |\n|:--|:--|:--|:--|\n{rows}")
    assert "+0.2 where generation is 27% of it, -0.1 where generation is 75% of it. All arms" in found.answer


def test_seconds_that_files_have_are_those_of_the_batch_and_its_refill():
    rows = pd.DataFrame(ROWS, columns=NAMES).assign(seconds=RESPONSES / 4)
    found = replay(rows)
    of_step = [sum(RESPONSES[step == STEPS]) / 4 for step in (1, 2)]
    steps = found.steps.set_index(["arm", "step"])["seconds"]
    assert steps["grpo"].tolist() == of_step and steps["zvf"].tolist() == [2 * seconds for seconds in of_step]
    assert found.facts["seconds"] == np.mean(of_step)
    assert f"its requests {np.mean(of_step):.3g} seconds a step" in found.answer
    one_lacks_it = rows.assign(seconds=rows["seconds"].where(rows.index != 3), response="so")  # a row at a time
    assert replay(one_lacks_it).steps.set_index(["arm", "step"])["seconds"]["grpo"].isna().tolist() == [True, False]


def test_draws_are_weighed_and_eq_8_is_its_closed_form():
    """One group of four, one right: PODS keeps the right and a wrong one; of cost-aware draws every number follows from
    how often each was drawn."""
    found = replay(pd.DataFrame(ROWS[:4], columns=NAMES))
    advantage_N = np.array([3, -1, -1, -1]) / np.sqrt(3)
    costs_N = (PROMPTS + RESPONSES)[:4]
    signal_N = np.abs(advantage_N) / np.sqrt(costs_N)
    p_N = signal_N / signal_N.sum()
    times_N = found.rollouts["cost-aware"].to_numpy()
    weight_N = times_N / (4 * p_N)
    arm = found.arms.loc["cost-aware"]
    assert times_N.sum() == 4 and arm["drawn"] == 1 and arm["distinct"] == (times_N > 0).mean()
    assert arm["effective"] == pytest.approx(weight_N.sum() ** 2 / (weight_N**2).sum() / 4)
    assert arm["largest_weight"] == pytest.approx((1 / (4 * p_N))[times_N > 0].max())
    assert arm["paper_tokens"] == pytest.approx(times_N @ costs_N / costs_N.sum())
    least = (np.abs(advantage_N) @ np.sqrt(costs_N)) ** 2
    assert arm["tokens_to_error"] == pytest.approx(least / (costs_N.sum() * (advantage_N**2).sum()))
    drawn_N = weight_N * advantage_N
    cosine = drawn_N @ advantage_N / np.sqrt((drawn_N @ drawn_N) * (advantage_N @ advantage_N))
    assert arm["cosine"] == pytest.approx(cosine)
    pods = found.rollouts["pods"].to_numpy()
    assert pods.tolist() == [1, 1, 0, 0] and np.isnan(found.arms.loc["pods", "tokens_to_error"])
    assert found.arms.loc["pods", "cosine"] == pytest.approx((advantage_N[0] - advantage_N[1]) / np.sqrt(2 * 4))


def test_the_plan_counts_groups_that_would_be_silent():
    rows = [(0, q, float(i < right), 4, 5) for q, right in enumerate([0, 0, 2, 4, 4, 2, 4, 0]) for i in range(4)]
    plan = replay(pd.DataFrame(rows, columns=NAMES)).plan
    assert (plan.queries, plan.samples) == (8, 4)
    assert plan.shares == {"trivial": 0.375, "learnable": 0.25, "unsolvable": 0.375}
    silent = plan.sizes["silent"]
    assert silent["groups of 2"] > silent["groups of 4"] > silent["groups of 32"] > 0
    assert (plan.sizes["rollouts"] * 8)["groups of 16"] == 128
    assert plan.sizes["for_one"]["groups of 2"] == pytest.approx(2 / (1 - silent["groups of 2"]))


def test_arms_that_choose_alike_are_one_row_and_others_say_why_not():
    found = replay(pd.DataFrame(ROWS, columns=NAMES))
    assert "CISPO" in found.which.alike["grpo"] and found.arms.index[0] == "grpo"
    assert {"D²S", "D³S"} <= set(found.which.left_out["unmeasured"]) and "sGPO" in found.which.left_out["profile"]
    assert "MoPPS" in found.which.left_out["plan"] and "PODS, 8 of 32" in found.which.left_out["size"]
    mine = settings_module.load().with_arms(
        {"grpo": "grpo", "first": {"samplers": [lambda r, progress, rng: r.take([0])]}}
    )
    own = replay(pd.DataFrame(ROWS, columns=NAMES), settings=mine)
    assert list(own.arms.index) == ["grpo", "first"] and own.arms.loc["first", "drawn"] == 1 / 8


def test_bad_rows_are_counted_and_named_and_cost_no_other(tmp_path):
    csv(tmp_path)
    rows = pd.read_csv(tmp_path / "mine.csv").to_dict("records")
    lines(
        tmp_path / "mine.jsonl",
        [*rows[:8], {"group": 1, "reward": None}, {"a": 1}, *rows[8:], {**rows[0], "group": None}],
    )
    with (tmp_path / "mine.jsonl").open("a") as file:
        file.write('{"group": 3, "rew')
    dump = read(tmp_path / "mine.jsonl")
    assert len(dump.rows) == 16 and dump.rows["reward"].tolist() == REWARDS.tolist()
    assert dump.bad == {
        "has the keys of no known format (a)": (1, "mine.jsonl:10"),
        "has no group, or neither response_tokens nor a response": (2, "mine.jsonl:9"),
        "is no JSON object": (1, "mine.jsonl:20"),
    }
    assert any("first is mine.jsonl:20" in note for note in dump.notes)
    assert replay(tmp_path / "mine.jsonl").facts["rollouts"] == 16
    for content, said in (
        ("", "There is no row"),
        ('{"x": 1}', "no known format"),
        ('{"group": 0, "reward": 1}', "nor a response"),
    ):
        (tmp_path / "none.jsonl").write_text(content)
        with pytest.raises(NoRollouts, match=said):
            read(tmp_path / "none.jsonl")
    with pytest.raises(NoRollouts, match="no file of rollouts"):
        read(tmp_path / "absent")
    with pytest.raises(Refused, match="nothing that an arm could learn"):
        replay(pd.DataFrame(ROWS[4:8], columns=NAMES))


@pytest.mark.parametrize("kind", ["frame", "csv", "jsonl", "parquet"])
def test_a_table_in_blocks_is_the_table_row_by_row(tmp_path, kind):
    """Rows that lack something are looked at alone, wherever they stand in a block, and keep their place."""
    table = pd.DataFrame(ROWS, columns=NAMES).astype({"group": float, "prompt_tokens": float})
    table.loc[[3, 9], "reward"], table.loc[5, "group"] = np.nan, np.nan
    table.loc[12, "prompt_tokens"] = np.nan  # which is guessed
    path = tmp_path / f"t.{kind}"
    writers = {"csv": table.to_csv, "parquet": table.to_parquet, "frame": lambda path: None}
    writers.get(kind, lambda path: lines(path, json.loads(table.to_json(orient="records"))))(path)
    source = table if kind == "frame" else path
    blocks, one_by_one = read(source), read(source, whole=range(16))
    own = np.delete(np.arange(16), [3, 5, 9])
    assert blocks.rows["reward"].tolist() == REWARDS[own].tolist()
    assert blocks.rows["prompt_tokens"].tolist() == np.where(own == 12, 1, PROMPTS[own]).tolist()
    assert blocks.rows["response_tokens"].tolist() == RESPONSES[own].tolist()
    assert pd.factorize(blocks.rows["group"])[0].tolist() == GROUPS[own].tolist()
    pd.testing.assert_frame_equal(
        blocks.rows.drop(columns=["group", "query"]), one_by_one.rows.drop(columns=["group", "query"])
    )
    assert blocks.bad == one_by_one.bad and sorted(count for count, _ in blocks.bad.values()) == [1, 2]
    assert len(one_by_one.whole) == 13 and blocks.whole == {}


def test_counts_are_of_all_steps_where_arms_are_of_some(monkeypatch):
    """Ten steps, each of a group with two right and one with all right; in step 1 both have."""
    right = [(step, q, 4 if step == 1 else q) for step in range(10) for q in (2, 4)]
    rows = [(step, q, float(i < n), 4, 5 + step) for step, q, n in right for i in range(4)]
    table = pd.DataFrame(rows, columns=NAMES)
    counts = {"steps": 10, "rollouts": 80, "groups": 20, "silent": 11 / 20, "longest": 14, "response_tokens": 9.5}
    whole = replay(table)
    monkeypatch.setattr(over_steps, "ROLLOUTS", 24)
    some = replay(table)
    assert counts.items() <= whole.facts.items() and counts.items() <= some.facts.items()
    assert whole.facts["replayed"] == 10 and "of the 10 steps" not in whole.answer
    assert some.facts["replayed"] == 3 and some.rollouts["step"].unique().tolist() == [0, 4, 9]
    assert "on 3 of the 10 steps" in some.answer and any("on 3 of these" in note for note in some.notes)


def test_what_cannot_be_read_costs_nothing_else(tmp_path):
    csv(tmp_path)
    verl(tmp_path)
    broken = {"empty.csv": "", "wide.csv": "group,reward\n1,2\n1,2,3\n", "x.parquet": "no", "none.jsonl": ""}
    for name, content in broken.items():
        (tmp_path / name).write_text(content)
    dump = read(tmp_path)
    assert len(dump.rows) == 32 and set(dump.formats) == {"table", "verl"}
    assert sum("was not read to its end" in note for note in dump.notes) == 3
    assert any("The files are of" in note for note in dump.notes)
    table = pd.DataFrame(ROWS, columns=NAMES)
    own = table.assign(verdict=table["reward"], reward=7.0)[["verdict", *NAMES]]
    assert read(own, columns={"reward": "verdict"}).rows["reward"].tolist() == REWARDS.tolist()
    for wrong, said in (({"reward": "high"}, "reward"), ({"truncated": "maybe"}, "neither"), ({"step": 2**40}, "2³¹")):
        with pytest.raises(NoRollouts, match=said):
            read(table.assign(**wrong))


def test_a_file_of_slimes_cannot_run_code(tmp_path):
    import torch

    torch.save(
        {"rollout_id": 0, "samples": [{"group_index": print, "response_length": 1, "reward": 1}]}, tmp_path / "0.pt"
    )
    for step in (1, 2):
        (tmp_path / f"{step}.pt").write_bytes((tmp_path / "0.pt").read_bytes())
    with pytest.raises(NoRollouts, match=r"read\. 3 files were not .*0\.pt the first: .*more than numbers"):
        read(tmp_path)


def test_missing_lengths_are_guessed_and_a_strange_tokenizer_is_noticed(tmp_path, words):
    verl(tmp_path)
    guessed = read(tmp_path)
    assert guessed.rows["response_tokens"][0] == round(len(text(9)) / 4) + 1
    assert any("guessed from their bytes" in note for note in guessed.notes)
    slime_like = [{"group_index": 0, "prompt": "", "tokens": [1] * 99, "response": text(9), "response_length": 90}]
    lines(tmp_path / "own" / "0.jsonl", [one | {"reward": 1} for one in slime_like])
    known = read(tmp_path / "own", tokenizer=words)
    assert known.rows["response_tokens"][0] == 90 and any("another model's" in note for note in known.notes)
    lines(tmp_path / "odd" / "0.jsonl", [{"input": "?", "output": "unseen words", "score": 1, "step": 0}])
    assert any("does not give" in note for note in read(tmp_path / "odd", tokenizer=words).notes)


def test_several_rewards_count_as_asked(tmp_path):
    trl(tmp_path)
    assert read(tmp_path, rewards={"correct": 2.0}).rows["reward"].tolist() == REWARDS.tolist()
    both = read(tmp_path)
    assert both.rows["reward"][0] == 1.0 and any("several rewards (correct, format)" in note for note in both.notes)
    with pytest.raises(NoRollouts, match="no finite reward called verdict"):
        read(tmp_path, rewards={"verdict": 1.0})


def test_what_a_filter_hid_is_said():
    kept = [(0, q, float(i < 1), 4, 5) for q in range(8) for i in range(4)]
    assert any("left out before" in note for note in read(pd.DataFrame(kept, columns=NAMES)).notes)
    shaped = [(0, q, i / 7 + q, 4, 5) for q in range(8) for i in range(4)]
    assert any("bonus for length" in note for note in read(pd.DataFrame(shaped, columns=NAMES)).notes)


def test_flops_are_those_of_the_model(tmp_path):
    from transformers import Qwen2Config

    options = {"hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 10}
    Qwen2Config(num_hidden_layers=3, intermediate_size=16, **options).save_pretrained(tmp_path)
    of_config = flop_counter(tmp_path / "config.json")
    layer = 8 * 8 * 2 + 2 * 8 * 4 + 3 * 8 * 16
    assert (of_config.matmul_parameters, of_config.layers, of_config.width) == (3 * layer + 80, 3, 8)
    assert flop_counter("1.5e9").forward([1]) == 3e9
    with pytest.raises(Refused, match="neither a number"):
        flop_counter("large")


BOUND = """
import resource, sys
import repro.replay.reading as reading
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = reading.read(sys.argv[1]).rows
print(len(rows), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_a_large_file_takes_little_memory(tmp_path):
    line = json.dumps({"input": "question", "output": "word " * 2000, "score": 1, "step": 0, "uid": "a_0_0"}) + "\n"
    with (tmp_path / "0.jsonl").open("w") as file:
        for _ in range(50):
            file.write(line * 100)
    done = subprocess.run([sys.executable, "-c", BOUND, tmp_path], capture_output=True, text=True, check=True)
    rows, megabytes = map(int, done.stdout.split())
    assert rows == 5000 and megabytes < 40


@pytest.mark.slow
def test_the_command_ends_in_a_page_whose_answer_comes_first(tmp_path, capsys):
    csv(tmp_path)
    page = tmp_path / "page.html"
    options = ["--columns", "step=step", "--parameters", "7e9", "--generation-share", "0.5", "--out", str(page)]
    assert command.main([str(tmp_path / "mine.csv"), *options]) == 0
    said, text = capsys.readouterr().out, page.read_text()
    assert "50% of the 4 groups have equal rewards" in said and said.rstrip().endswith(str(page))
    assert text.index("50% of the 4 groups") < text.index("The arms, side by side") < text.index("Switch it on")
    assert text.count("<svg") + text.count("image/svg+xml") >= 3 and not re.search(r'src="https?:', text)
    assert "index.html" not in text  # there is none next to a page alone
    assert command.main([str(tmp_path / "absent.csv")]) == 1
    assert "no file of rollouts" in capsys.readouterr().err
