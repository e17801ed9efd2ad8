"""`python -m repro.verl --evaluate RUN`: the checkpoints of a run of one's own, from verl's shards to the peaks."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import load_file
from test_verl_own import write_lines

from repro.engine.backends.load import fetch
from repro.files import write_json, write_text
from repro.protocol.ledger import Ledger
from repro.settings import SettingsError
from repro.verl import checkpoints, evaluate, evaluated, questions, ready
from repro.verl.__main__ import main
from repro.verl.checkpoints import STATE

pytestmark = pytest.mark.verl
REWARD = "def even(data_source, solution_str, ground_truth, extra_info):\n    return float(%s)\n"
JUDGED = "len(solution_str) % 2 == extra_info['index'] % 2 and isinstance(ground_truth, str)"


def shards(folder: Path) -> None:
    """The tiny model as verl saves it, a rank's shard beside its configuration."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(fetch("tiny"))
    shutil.copytree(fetch("tiny"), folder / "huggingface", ignore=shutil.ignore_patterns("*.safetensors"))
    torch.save(model.state_dict(), folder / "model_world_size_1_rank_0.pt")
    write_json({"FSDP_version": 2, "world_size": 1}, folder / "fsdp_config.json")


@pytest.fixture
def run(tmp_path, monkeypatch) -> Path:
    """A running run's folder on a CPU: step 1 is merged and gone, 2 is whole, and 3 is being written; the rows of its
    own parquet have no id, and a source with two questions."""
    monkeypatch.setattr(ready, "gpus_here", lambda: 0)
    monkeypatch.setattr(evaluated, "why_not_vllm", lambda: "it is not asked here")
    folder = tmp_path / "seed-3"
    rows = [{"data_source": "mine" if n < 4 else "other", **questions_row(n)} for n in range(6)]
    shutil.copytree(fetch("tiny"), folder / "merged" / "global_step_1")
    pd.DataFrame(rows).to_parquet(folder / "validation.parquet")
    (tmp_path / "even.py").write_text(REWARD % JUDGED)
    config = {
        "data": {"val_files": "/where/it/was/validation.parquet", "max_response_length": 6},
        "repro": {"seed": 3},
        "actor_rollout_ref": {"rollout": {"val_kwargs": {"temperature": 1.0, "top_p": 1.0, "do_sample": True}}},
        "reward": {"custom_reward_function": {"path": str(tmp_path / "even.py"), "name": "even", "reward_kwargs": {}}},
    }
    write_text(yaml.safe_dump(config), folder / "verl.yaml")
    pd.DataFrame([{"step": 0, **Ledger(trained_tokens=10).row()}]).to_parquet(tmp_path / "steps.parquet")
    (folder / "tables").mkdir()
    (tmp_path / "steps.parquet").rename(folder / "tables" / "steps.parquet")
    (folder / "checkpoints" / "global_step_2" / "actor").mkdir(parents=True)
    shards(folder / "checkpoints" / "global_step_2" / "actor")
    write_json({"ledger": Ledger(trained_tokens=20).row()}, folder / "checkpoints" / "global_step_2" / STATE)
    (folder / "checkpoints" / "global_step_3" / "actor").mkdir(parents=True)
    write_text("2", folder / "checkpoints" / checkpoints.LATEST)
    return folder


def questions_row(n: int) -> dict:
    asked = [{"role": "system", "content": "Add."}, {"role": "user", "content": f"What is {n} + 1?"}]
    return {"prompt": asked, "reward_model": {"ground_truth": str(n + 1)}, "extra_info": {"index": n}}


@pytest.mark.slow
def test_every_checkpoint_is_merged_sampled_and_judged_as_in_training(run, monkeypatch, capsys):
    """In two processes, one for each checkpoint; then by hand from every response."""
    words = ["--evaluate", str(run), "--samples", "8", "--ranks", "2"]
    main(words)
    told = capsys.readouterr().out
    table = pd.read_parquet(run / "evaluation/sources.parquet")
    assert table[["seed", "step", "source", "questions", "samples"]].values.tolist() == [
        [3, step, source, count, 8] for step in (1, 2) for source, count in (("mine", 4), ("other", 2))
    ]
    assert table["trained_tokens"].tolist() == [10, 10, 20, 20]
    for step in (1, 2):
        responses = pd.read_parquet(run / f"evaluation/global_step_{step}/validation/responses.parquet")
        place = responses["id"].str.extract(r"^(\w+)-(\d+)$")
        right = responses["response"].str.len() % 2 == place[1].astype(int) % 2
        assert responses["correct"].tolist() == right.tolist() and 0 < right.mean() < 1
        accuracy = right.groupby(place[0]).mean()
        found = table[table["step"] == step].set_index("source")["accuracy"]
        np.testing.assert_allclose(found.to_numpy(), accuracy[found.index].to_numpy())
    best = table.loc[table[table["source"] == "mine"]["accuracy"].idxmax(), "step"]
    assert f"best on mine: step {best}, {run / f'merged/global_step_{best}'}" in told
    original, merged = (load_file(run / f"merged/global_step_{step}/model.safetensors") for step in (1, 2))
    for name, weights in merged.items():
        torch.testing.assert_close(weights, original[name].bfloat16(), rtol=0, atol=0)  # as verl saves them

    ran = []
    monkeypatch.setattr(checkpoints, "_run", lambda command, device: ran.append((command, device)))
    main(words)
    assert len(ran) == 2 and {(command[0], device) for command, device in ran} == {("repro.verl.evaluate", None)}
    monkeypatch.setattr("repro.evaluation.__main__.open_backend", lambda *_, **__: pytest.fail("it samples again"))
    assert evaluate.main(list(ran[0][0][1:])) == 0
    (Path(run.parent) / "even.py").write_text(REWARD % "1")
    assert evaluate.main([*ran[0][0][1:], "--samples", "4"]) == 1  # another evaluation, in the same folder
    assert "with samples 8 instead of 4" in capsys.readouterr().err


def test_what_is_sampled_is_what_the_run_says_and_ones_own_questions(run, tmp_path, capsys):
    main(["--evaluate", str(run), "--check"])
    merge, first, second = capsys.readouterr().out.splitlines()
    assert merge.endswith(f"--local_dir {run}/checkpoints/global_step_2/actor --target_dir {run}/merged/global_step_2")
    assert f"evaluate {run}/merged/global_step_1 {run}/validation.parquet --out {run}/evaluation/global_step_1" in first
    assert (
        "--samples 32 --max-new-tokens 6 --temperature 1.0 --top-p 1.0 --engine transformers --dtype float32" in first
    )
    assert json.loads(second.partition("--reward ")[2])["name"] == "even"
    data = write_lines(tmp_path / "mine.jsonl")
    main(["--evaluate", str(run), "--check", "--validation", data, "--output", str(tmp_path / "out")])
    assert f"{tmp_path}/out/questions/mine.parquet --out {tmp_path}/out/global_step_1" in capsys.readouterr().out
    rows, asked = evaluate.read_rows(tmp_path / "out/questions/mine.parquet")
    assert (asked[3].id, asked[3].answer, rows[3]["extra_info"]["index"]) == ("mine-3", "4", 3)
    pd.DataFrame(rows[:1] * 2).to_parquet(tmp_path / "twice.parquet")
    assert [one.id for one in evaluate.read_rows(tmp_path / "twice.parquet")[1]] == [
        "mine-0 in row 0",
        "mine-0 in row 1",
    ]


def test_what_cannot_be_evaluated_is_one_sentence(run, tmp_path):
    def said(*words: str) -> str:
        with pytest.raises((SettingsError, ready.NotReady)) as error:
            main(["--evaluate", str(run), *words])
        return str(error.value)

    assert said("--arm", "zvf") == "--arm goes without --evaluate, which reads the run's own verl.yaml"
    assert said("data.max_response_length=9").startswith("data.max_response_length=9 goes without")
    assert said("--device", "cuda").startswith("there is no GPU here")
    data = write_lines(tmp_path / "mine.jsonl")
    assert "two files have the same name" in said("--validation", data, "--validation", data)
    (run / "validation.parquet").unlink()
    assert said().endswith("(there is no " + str(run / "validation.parquet") + "): name them as --validation FILE")
    config = yaml.safe_load((run / "verl.yaml").read_text())
    write_text(yaml.safe_dump({**config, "data": {"val_files": None}}), run / "verl.yaml")
    assert said().endswith("has no held-out questions (its verl.yaml names none): name them as --validation FILE")
    small = [{**row, "data_source": "repro"} for row in questions.load(data)]
    pd.DataFrame(small).to_parquet(run / "evaluation.parquet")
    write_text(yaml.safe_dump({**config, "data": {"val_files": ["evaluation.parquet"]}}), run / "verl.yaml")
    assert "the queries of the small policy" in said()
    write_text("data: [", run / "verl.yaml")
    assert "verl.yaml is not valid YAML" in said()
    with pytest.raises(SettingsError, match="holds no run with a verl"):
        main(["--evaluate", str(tmp_path)])
    with pytest.raises(SettingsError, match="--samples goes with --evaluate"):
        main(["--arm", "zvf", "--samples", "4"])
    with pytest.raises(SettingsError, match="name an arm of params"):
        main([])
