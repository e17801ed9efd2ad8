"""What goes into verl and what comes out: questions, verdicts, tables, and refusals in one sentence."""

import json
import sys
from importlib import metadata

import numpy as np
import pandas as pd
import pytest

from repro.files import write_text
from repro.settings import SettingsError, load
from repro.tasks.queries import Query, make_pools, verify
from repro.verl import ready
from repro.verl.data import SIZE, QueryInfo, query_name, query_rows, with_samples
from repro.verl.run import SETTINGS, RunOnVerl, begun_alike, changed
from repro.verl.version import SUPPORTED, UnsupportedVerl, require_plugin, require_verl


def test_few_questions_get_more_samples():
    batch = {"raw_prompt": ["a", "b", "c"], "data_source": np.array(["aime24", "gsm8k", "aime24"], object)}
    assert [list(each[SIZE]) for each in with_samples([batch], 1, {"aime24": 32, "amc23": 8})] == [[32, 1, 32]]
    assert list(with_samples([batch], 32, {"aime24": 4})[0][SIZE]) == [32, 32, 32]
    assert list(with_samples([{"raw_prompt": ["a"]}], 2)[0][SIZE]) == [2]


@pytest.mark.verl
def test_evaluations_count_questions_alike_and_each_data_set_apart(tmp_path):
    pytest.importorskip("verl", reason="verl is not installed here: `make extra-verl` installs it")
    from repro.verl.record import Record

    infos = {"acc": [1.0, 1.0, 0.0, 1.0, 0.0], "query": ["a", "a", "b", "c", "d"], "response_tokens": [10, 30, 8, 6, 4]}
    infos["truncated"] = [0.0] * 5
    record = Record(7, 1, 1, flops=None)
    told = {"sources": ["few", "few", "few", "many", "many"], "diverged": False, "last": False}
    record.add_evaluation(20, 2, infos, {}, **told)
    assert record.log.evaluations[0]["accuracy"] == 0.5  # of four questions, not 3 / 5 of the samples
    few, many = record.sources
    assert (few["source"], few["questions"], few["samples"], few["accuracy"]) == ("few", 2, 2, 0.5)
    assert few["standard_error"] == pytest.approx(0.5) and few["response_tokens"] == pytest.approx((20 + 8) / 2)
    assert (many["accuracy"], many["solved"], many["step"], many["seed"]) == (0.5, 0.5, 20, 7)
    record.save(tmp_path / "repro.json")
    again = Record(7, 1, 1, flops=None)
    again.restore(tmp_path / "repro.json")
    assert again.sources == record.sources
    again.write(tmp_path)
    assert pd.read_parquet(tmp_path / "sources.parquet")["source"].tolist() == ["few", "many"]


def test_rows_carry_the_query_and_all_that_the_verifier_needs():
    pool = make_pools(load(scale="smoke").task).train
    assert [row["extra_info"]["index"] for row in query_rows(pool)] == list(range(len(pool)))
    for query, row in zip(pool, query_rows(pool), strict=True):
        again = Query("", row["reward_model"]["ground_truth"], query.family, json.loads(row["extra_info"]["entry"]))
        for response in (f"#{query.answer}", f"#{query.answer}1"):
            assert verify(response, again) == verify(response, query)


def test_held_out_queries_of_several_data_sets_keep_their_names():
    rows = {
        "prompt": [[{"content": "a"}], [{"content": "b"}], [{"content": "c"}]],
        "data_source": ["repro", "aime24", "math500"],
        "extra_info": [{"index": 0, "family": "gcd"}, {"index": 0, "id": "2024-I-1"}, {"index": 0}],
    }
    asked = QueryInfo.by_name(rows)
    assert list(asked) == [0, "2024-I-1", "math500-0"]
    assert [query.family for query in asked.values()] == ["gcd", "aime24", "math500"]
    assert query_name("aime24", {"index": 3}) == "aime24-3"


@pytest.mark.verl  # for omegaconf
def test_no_run_on_verl_is_stopped_by_its_bill(tmp_path):
    from omegaconf import OmegaConf

    settings = load()
    at_price = settings.evaluation.model_copy(update={"budget_gflops": 4.0, "generation_gflops": 1.0, "price": 0.5})
    stopped = settings.engine.model_copy(update={"stop_gflops": 4.0})
    for changes in ({"evaluation": at_price}, {"engine": stopped}):
        write_text(settings.model_copy(update=changes).model_dump_json(), tmp_path / SETTINGS)
        config = OmegaConf.create({"repro": {"arm": "grpo", "settings": str(tmp_path / SETTINGS)}})
        with pytest.raises(SettingsError, match=r"leave out evaluation\.price and"):
            RunOnVerl.of(config)


def test_a_run_goes_on_only_as_it_was_begun(tmp_path):
    settings = load(scale="smoke")
    begun_alike(settings, "grpo", tmp_path)  # nothing there
    (tmp_path / SETTINGS).write_text(settings.model_dump_json())
    begun_alike(settings, "grpo", tmp_path)
    longer = settings.model_copy(update={"engine": settings.engine.model_copy(update={"steps": 60})})
    with pytest.raises(SettingsError, match=r"engine\.steps: 4 → 60"):
        begun_alike(longer, "grpo", tmp_path)
    (tmp_path / SETTINGS).write_text("{}")
    assert changed(settings, "grpo", tmp_path) == ["they are of another version of this project"]


@pytest.mark.verl
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arm", "grpo", "--scale", "paper-qwen3-4b"], "paper-qwen3-4b needs GPUs, and there is none here"),
        (["--arm", "grpo", "--scale", "smoke", "--ranks", "3"], "does not divide the 32 rollouts"),
        (["--arm", "zfv", "--scale", "smoke"], "did you mean 'zvf'"),
        (["--arm", "grpo", "--scale", "smoke"], "holds a run: resume it with --resume"),
    ],
)
def test_a_command_that_cannot_run_is_refused_before_anything_is_made(arguments, message, tmp_path, monkeypatch):
    pytest.importorskip("verl", reason="verl is not installed here: `make extra-verl` installs it")
    from repro.verl.__main__ import main

    (tmp_path / "grpo" / "seed-0").mkdir(parents=True)
    (tmp_path / "grpo" / "seed-0" / SETTINGS).write_text(load(scale="smoke").model_dump_json())
    monkeypatch.setattr(ready, "gpus_here", lambda: 0)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises((SettingsError, ready.NotReady), match=message):
        main([*arguments, "--output", str(tmp_path)])


def test_another_verl_is_refused_with_the_mend(monkeypatch):
    for found, message in (("0.8.0", f"verl 0.8.0 is installed, .* of verl {SUPPORTED}: `make extra-verl`"),):
        monkeypatch.setattr("repro.verl.version.version", lambda name, found=found: found)
        with pytest.raises(UnsupportedVerl, match=message):
            require_verl()

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("repro.verl.version.version", missing)
    with pytest.raises(UnsupportedVerl, match="verl is not installed: `make extra-verl`"):
        require_verl()
    monkeypatch.setattr("repro.verl.version.entry_points", lambda group: [])
    with pytest.raises(UnsupportedVerl, match="does not register its verl plugin"):
        require_plugin()


def test_the_plugin_stays_out_of_other_peoples_runs(monkeypatch):
    monkeypatch.delenv("REPRO_ROOT", raising=False)
    monkeypatch.setattr("repro.verl.version.require_verl", lambda: pytest.fail("it looked for verl"))
    for module in ("repro.paths", "repro.verl.plugin"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    import repro.verl.plugin

    assert not repro.verl.plugin.ours()
    monkeypatch.setenv("REPRO_ROOT", ".")
    assert repro.verl.plugin.ours()
    monkeypatch.delitem(sys.modules, "repro.verl.plugin")


def test_the_plugin_stays_out_of_another_verl(monkeypatch):
    monkeypatch.setattr("repro.verl.version.version", lambda name: "0.8.0")
    monkeypatch.delitem(sys.modules, "repro.verl.plugin", raising=False)
    with pytest.warns(UserWarning, match="repro's plugin is disabled: verl 0.8.0 is installed"):
        import repro.verl.plugin  # noqa: F401
    monkeypatch.delitem(sys.modules, "repro.verl.plugin")
