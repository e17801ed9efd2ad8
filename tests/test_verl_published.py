"""The papers' tables by benchmark, and a run compared with its row."""

import pandas as pd
import pytest

from repro.files import write_parquet
from repro.settings import SettingsError
from repro.verl.__main__ import main
from repro.verl.papers import SCALES
from repro.verl.published import KEYS, printed

SCALE = "paper-qwen3-8b"


def test_the_averages_are_those_of_their_rows_but_for_three_that_are_misprinted():
    rows = printed().pivot(index=[key for key in KEYS if key != "arm"], columns="source", values="percent")
    means = rows.drop(columns="average").mean(axis=1)
    assert means[(means - rows.average).abs() > 0.08].round(1).to_dict() == {
        (1, "paper-qwen2-5-math-7b", "GRPO + D³S", "pass@1"): 34.8,
        (6, "paper-llama3-1-8b-instruct", "GRPO + D³S-I", "pass@8"): 41.5,
        (7, "paper-openmath2-llama3-1-8b", "Base", "pass@16"): 44.5,
    }


def test_tables_agree_with_each_other_but_for_two_numbers():
    table = printed()
    assert set(table.scale) == set(SCALES) and len(table) == 33 * 5 + 97 * 8
    values = table.groupby(["scale", "method", "metric", "source"]).percent.unique()
    twice = {key[1:]: sorted(found) for key, found in values.items() if len(found) > 1}
    assert twice == {
        ("GRPO + D³S", "pass@1", "gsm8k"): [71.3, 73.4],
        ("GRPO + D³S", "pass@1", "minerva-math"): [23.4, 25.0],
    }


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]


def test_a_run_is_compared_with_the_paper_s_row_with_intervals(tmp_path, capsys):
    spent = dict.fromkeys(["generated_tokens", "trained_tokens", "paper_tokens", "flops"], 1.0)
    for seed, accuracy in ((0, 0.70), (1, 0.80)):
        row = {"seed": seed, "step": 20, "source": "amc23", "questions": 40, "samples": 32, "accuracy": accuracy}
        others = [{**row, "step": 0, "accuracy": 0.1}, {**row, "source": "own"}]
        table = pd.DataFrame([row, *others]).assign(standard_error=0.05, **spent)
        write_parquet(table, tmp_path / f"seed-{seed}/tables/sources.parquet")
        (tmp_path / f"seed-{seed}/verl.yaml").write_text(f"repro: {{scale: {SCALE}, arm: cost-aware}}\n")
    row = ["amc23", "1", "2", "32", "75.0 [65.2, 84.8]", "74.7", "0.3 [-9.5, 10.1]"]
    for more in ([], [SCALE, "--arm", "cost-aware"]):
        main(["--peaks", str(tmp_path), "--paper", *more])
        assert cells(capsys.readouterr().out)[-1] == row
    with pytest.raises(SettingsError, match="no paper's table has arm sgpo at scale paper-qwen3-8b; they have grpo, "):
        main(["--peaks", str(tmp_path), "--paper", "--arm", "sgpo"])
    with pytest.raises(SettingsError, match="evaluate it on aime24, aime25, amc23, gsm8k, math500, "):
        table = table[table.source == "own"]
        write_parquet(table, tmp_path / "own/tables/sources.parquet")
        main(["--peaks", str(tmp_path / "own"), "--paper", "paper-qwen2-5-math-7b", "--arm", "d3s"])


def test_a_run_that_does_not_say_what_it_is_needs_its_scale_and_arm(tmp_path):
    row = {"seed": 0, "step": 0, "source": "amc23", "questions": 40, "samples": 32, "accuracy": 0.5}
    write_parquet(pd.DataFrame([row]), tmp_path / "tables/sources.parquet")
    with pytest.raises(SettingsError, match="does not say its scale and arm: --paper paper-qwen3-8b --arm zvf names"):
        main(["--peaks", str(tmp_path), "--paper"])
