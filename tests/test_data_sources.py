"""The papers' data sets: small files of our own in each one's real columns, and what becomes of them."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from upstream_files import FILES, dapo, write_rows

from repro.data.__main__ import main
from repro.data.clean import Item, normalise
from repro.data.files import DataBroken, DataMissing, find
from repro.data.formats import DAPO_AFTER, DAPO_BEFORE, bare_dapo_question, boxed, joined, undollared, whole_number
from repro.data.prepare import prepare, stable_ids
from repro.data.sources import SOURCES, SUITES, names_of
from repro.files import read_parquet


@pytest.fixture
def mirror(tmp_path) -> Path:
    """Every data set, laid out as `hf download --local-dir mirror/<hub id>` does."""
    for name, (file, rows, _) in FILES.items():
        write_rows(tmp_path / "mirror" / SOURCES[name].hub / file, rows)
    return tmp_path / "mirror"


def test_every_source_has_a_file_here_and_every_suite_names_sources():
    assert FILES.keys() == SOURCES.keys()
    for suite in SUITES.values():
        assert [SOURCES[name].trains for name in suite] == [True] + [False] * (len(suite) - 1)
    assert names_of(["d3s", "amc23"]) == list(SUITES["d3s"])
    with pytest.raises(ValueError, match="no data set 'math'"):
        names_of(["math"])


@pytest.mark.parametrize("name", FILES)
def test_each_real_format_becomes_verls(name, mirror, tmp_path):
    """Question, answer and id are read from upstream's columns, from a mirror and from a file alike; the result has
    verl's columns, and its manifest says what became of the rows."""
    file, rows, expected = FILES[name]
    (manifest,) = prepare([name], tmp_path / "out", mirror=str(mirror))
    table = read_parquet(tmp_path / "out" / f"{name}.parquet", "prepare")
    assert list(table) == ["data_source", "prompt", "ability", "reward_model", "extra_info"]
    found = [
        (info["question"], reward["ground_truth"], info["source_id"])
        for info, reward in zip(table["extra_info"], table["reward_model"], strict=True)
    ]
    assert found == expected
    assert [prompt[0]["role"] for prompt in table["prompt"]] == ["user"] * len(rows)
    assert all(prompt[0]["content"].startswith(info["question"]) and "\\boxed{}" in prompt[0]["content"]
               for prompt, info in zip(table["prompt"], table["extra_info"], strict=True))  # fmt: skip
    assert [info["index"] for info in table["extra_info"]] == list(range(len(rows)))
    assert {reward["style"] for reward in table["reward_model"]} == {"rule"} and set(table["data_source"]) == {name}
    assert manifest["rows"] | {"by_set": {}} == {
        "read": len(rows), "unusable": 0, "repeats": 0, "contradictory": 0, "evaluated": 0, "written": len(rows),
        "by_set": {},
    }  # fmt: skip
    local = write_rows(tmp_path / f"local{Path(file).suffix}", rows)
    (again,) = prepare([name], tmp_path / "again", files={name: local})
    assert {key: again[key] for key in ("content", "file")} == {key: manifest[key] for key in ("content", "file")}


def test_ids_follow_the_question_alone():
    """Reordering, or a row less, moves no id; a wording that is there twice gets a number."""
    one, two = Item("one?", "1"), Item("two?", "2", "x")
    first, second = stable_ids("aime24", [one, two])
    assert stable_ids("aime24", [two, one]) == [second, first]
    assert stable_ids("aime24", [Item("two?", "3")]) == [second]
    assert stable_ids("aime24", [two, two]) == [second, f"{second}-2"]
    assert first.startswith("aime24-") and first != second


def test_training_sets_lose_repeats_contradictions_and_evaluation_questions(mirror, tmp_path):
    """Every row is counted in one place, and the right ones are left."""
    rows = [
        dapo("What is $2+3$?", "5", "a"),
        dapo("What is $2+3$?", "5", "a"),
        dapo("what is  2 + 3", " 5", "b"),  # the same, worded with other spacing
        dapo("What is $2-3$?", "-1", "c"),  # another one
        dapo("Contested?", "1", "d"),
        dapo("Contested?", "2", "e"),
        dapo("Find $p$.", "25", "f"),  # AIME 2024's
        dapo("$\\text{Find}\\ p$", "25", "g"),
        dapo("Convert \\left the point", "0", "h"),  # MATH-500's
        dapo("No answer?", "", "i"),
    ]
    write_rows(mirror / SOURCES["dapo-math-17k"].hub / FILES["dapo-math-17k"][0], rows)
    names = ["dapo-math-17k", "aime24", "math500"]
    manifest = prepare(names, tmp_path / "out", mirror=str(mirror))[0]
    counted = {"read": 10, "unusable": 1, "repeats": 3, "contradictory": 2, "evaluated": 2, "written": 2}
    assert manifest["rows"] == counted | {"by_set": {"aime24": 1, "math500": 1}}
    assert counted["read"] == sum(counted.values()) - counted["read"]
    kept = read_parquet(tmp_path / "out" / "dapo-math-17k.parquet", "prepare")["extra_info"]
    assert [info["question"] for info in kept] == ["What is $2+3$?", "What is $2-3$?"]
    alone = prepare(["dapo-math-17k"], tmp_path / "alone", mirror=str(mirror))[0]
    assert (alone["rows"]["evaluated"], alone["rows"]["written"]) == (0, 4)
    papers = prepare(names, tmp_path / "papers", mirror=str(mirror), prompt="plain", keep_evaluated=True)[0]
    assert (papers["rows"]["evaluated"], papers["rows"]["written"]) == (0, 4)
    asked = read_parquet(tmp_path / "papers" / "dapo-math-17k.parquet", "prepare")
    assert [row[0]["content"] for row in asked["prompt"]] == [info["question"] for info in asked["extra_info"]]


def test_dapos_own_prompt_survives_to_the_letter(mirror, tmp_path):
    prepare(["dapo-math-17k", "aime25"], tmp_path, mirror=str(mirror), prompt="dapo")
    upstream = [row["prompt"][0]["content"] for row in FILES["dapo-math-17k"][1]]
    for name, expected in (("dapo-math-17k", upstream), ("aime25", [DAPO_BEFORE + "Find $b$." + DAPO_AFTER])):
        written = read_parquet(tmp_path / f"{name}.parquet", "prepare")["prompt"]
        assert [prompt[0]["content"] for prompt in written] == expected


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Find $\\dfrac{1}{2}$ of 10.", "find \\frac12 of 10", True),
        ("Let $\\left(1,\\,2\\right)$.", "Let $(1, 2)$", True),
        ("What is 1.5?", "What is 15?", False),
        ("$2+3$", "$2-3$", False),
        ("$x \\leftarrow 1$", "$x arrow 1$", False),
    ],
)
def test_questions_are_compared_without_their_typesetting(one, other, same):
    assert (normalise(one) == normalise(other)) is same


def test_odd_formats():
    assert boxed("thus \\boxed{1} and \\boxed{\\frac{1}{2}}.") == "\\frac{1}{2}"
    assert boxed("no box") == "no box" and boxed("\\boxed{open") == "\\boxed{open" and boxed(None) == ""
    assert whole_number("\\boxed{000}") == "0" and whole_number(7) == "7" and whole_number("1.5") == "1.5"
    assert whole_number("336^\\circ") == whole_number("336^{\\circ}") == "336" and whole_number(float("nan")) == ""
    assert undollared("$x$") == "x" and undollared("$x$ or $y$") == "$x$ or $y$" and undollared("x") == "x"
    assert joined(["$1$"]) == "1" and joined(None) == "" and joined("$(1,2)$") == "(1,2)"
    assert bare_dapo_question([{"role": "system", "content": "s"}, {"role": "user", "content": " q "}]) == "q"


def test_what_is_missing_says_what_to_fetch_and_where_to_put_it(tmp_path, monkeypatch):
    """The hub id, the file and the folder, in one sentence; no network is touched here."""
    import huggingface_hub

    def offline(*_, **options):
        raise huggingface_hub.errors.LocalEntryNotFoundError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    for mirror in (None, str(tmp_path)):
        with pytest.raises(DataMissing) as raised:
            find("math500", SOURCES["math500"], mirror=mirror)
        message = str(raised.value)
        assert all(part in message for part in ("HuggingFaceH4/MATH-500", "test.jsonl", "--local-dir", "--mirror"))
        assert "\n" not in message
    with pytest.raises(DataMissing, match="there is no file"):
        find("math500", SOURCES["math500"], file=tmp_path / "absent.jsonl")


def test_the_hubs_files_and_commit_are_found_in_its_cache(mirror, monkeypatch):
    import huggingface_hub

    asked = []

    def cached(repo, **options):
        asked.append((repo, options["repo_type"], options["allow_patterns"]))
        return str(mirror / repo)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", cached)
    found = find("math500", SOURCES["math500"])
    assert asked == [("HuggingFaceH4/MATH-500", "dataset", ["test.jsonl"])]
    assert ([path.name for path in found.paths], found.commit) == (["test.jsonl"], "MATH-500")


def test_all_that_is_missing_is_said_at_once(mirror, capsys):
    """A command a line for each data set, so that one trip to a network is enough."""
    for name in ("aime24", "math500"):
        next((mirror / SOURCES[name].hub).glob("test*")).unlink()
    assert main(["prepare", "d3s", "--out", str(mirror / "out"), "--mirror", str(mirror)]) == 1
    first, *commands = capsys.readouterr().err.strip().splitlines()
    assert first.startswith("repro: 2 of 8 data sets are unavailable") and "aime24" in first and "FOLDER" in first
    assert [command.split()[:3] for command in commands] == [
        ["hf", "download", SOURCES[name].hub] for name in ("aime24", "math500")
    ]
    assert not (mirror / "out").exists()


def test_a_file_cut_short_and_rows_without_an_answer(mirror, tmp_path):
    file, rows, _ = FILES["aime24"]
    whole = mirror / SOURCES["aime24"].hub / file
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(DataBroken, match=r"cut\.parquet cannot be read .*download math-ai/aime24 again"):
        prepare(["aime24"], tmp_path, files={"aime24": cut})
    bad = [rows[0] | {"solution": answer, "problem": f"{answer}?"} for answer in ("", None, "\\boxed{}", "}")]
    some = write_rows(tmp_path / "some.parquet", [*rows, *bad])
    (manifest,) = prepare(["aime24"], tmp_path / "out", files={"aime24": some})
    assert (manifest["rows"]["unusable"], manifest["rows"]["written"]) == (4, 1)
    lines = tmp_path / "nan.jsonl"
    lines.write_text('\ufeff{"problem": "a?", "answer": NaN, "id": 1}\n{"problem": "b?", "answer": 5.0, "id": 2}\n')
    (manifest,) = prepare(["aime25"], tmp_path / "out", files={"aime25": lines})
    assert (manifest["rows"]["unusable"], manifest["rows"]["written"]) == (1, 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("test.jsonl", '{"problem": "p", "solution": "s"}\n', "no column answer and no id, but problem, solution"),
        ("test.jsonl", '{"problem": "p", "ans', "cannot be read"),
        ("test.parquet", "version https://git-lfs.github.com/spec/v1\n", "cannot be read"),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(DataBroken, match=message) as raised:
        prepare(["aime25"], tmp_path / "out", files={"aime25": path})
    assert str(raised.value).startswith("aime25: ")
    assert not (tmp_path / "out" / "aime25.parquet").exists()


def test_the_command_line(mirror, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["prepare", "cost-aware-learning", "--out", str(out), "--mirror", str(mirror)]) == 0
    assert sorted(path.stem for path in out.glob("*.parquet")) == sorted(SUITES["cost-aware-learning"])
    printed = capsys.readouterr().out
    assert "dapo-math-17k: 2 of 2 rows" in printed and "upstream had 1791700: is the file complete?" in printed
    assert main(["list"]) == 0 and "math-ai/aime24" in capsys.readouterr().out


@pytest.mark.verl
def test_verls_own_data_set_reads_it(mirror, tmp_path):
    """RLHFDataset takes the file: prompts, index and ground truth come back."""
    rl_dataset = pytest.importorskip("verl.utils.dataset.rl_dataset", reason="make extra-verl", exc_type=ImportError)
    prepare(["olympiadbench"], tmp_path, mirror=str(mirror))
    config = {"filter_overlong_prompts": False, "cache_dir": str(tmp_path)}
    dataset = rl_dataset.RLHFDataset(str(tmp_path / "olympiadbench.parquet"), None, config)
    assert len(dataset) == 2
    row = dataset[1]
    assert (row["index"], row["data_source"], row["reward_model"]["ground_truth"]) == (1, "olympiadbench", "2, -7")
    assert row["raw_prompt"][0]["content"].startswith("Let $n$ be even.\nWhich two?")
    assert pq.read_schema(tmp_path / "olympiadbench.parquet").names[0] == "data_source"
