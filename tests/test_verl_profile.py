"""`python -m repro.verl --measure`: the profile of one's own model over one's own prompts."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_verl_own import SMALL, write_lines

from repro.engine.backends import why_not_vllm
from repro.protocol.profile import Profile
from repro.settings import SettingsError
from repro.verl import questions, ready
from repro.verl.run import PROFILE, RunOnVerl


@pytest.mark.verl
def test_the_profile_that_an_arm_lacks_is_measured_once_and_planned_from(tmp_path, monkeypatch, capsys):
    """On one's own model, data and reward function; then the arm trains from it, and from no other."""
    from repro.verl.__main__ import main
    from repro.verl.start import ENVIRONMENT

    started = []
    monkeypatch.setattr("repro.verl.start.run", started.append)
    monkeypatch.setattr(ready, "gpus_here", lambda: 0)
    monkeypatch.setattr("repro.verl.launch.why_not_vllm", lambda: "it is not asked here")
    for name in (*ENVIRONMENT, "CUDA_VISIBLE_DEVICES", "RAY_ADDRESS"):  # what the launch sets is undone
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    (tmp_path / "even.py").write_text(
        "def even(data_source, solution_str, ground_truth, extra_info):\n"
        "    return {'score': float(len(solution_str) % 2 == int(ground_truth) % 2 or extra_info['index'] % 3 == 0)}\n"
    )
    own_reward = "reward.custom_reward_function."
    judged = [
        f"{own_reward}path={tmp_path}/even.py",
        f"{own_reward}name=even",
        "~" + own_reward + "reward_kwargs.processes=4",
    ]
    words = ["--model", "tiny", "--data", write_lines(tmp_path / "mine.jsonl"), "--output", str(tmp_path / "runs")]
    words += ["--arm", "sgpo", *SMALL, *judged]
    main([*words, "--measure"])
    assert not started
    main(words)
    assert capsys.readouterr().out.count("profiled prompts 0 to 38, samples 0 to 8") == 1  # the second finds it made
    folder = tmp_path / "runs" / "_profile-mine"
    profile = Profile.load(folder, PROFILE)
    assert (profile.samples, profile.source.max_new_tokens) == (8, 32)
    trained = questions.split(questions.load(str(tmp_path / "mine.jsonl")))[0]
    assert profile.prompt_tokens_Q.tolist() == [len(row["prompt"][0]["content"]) for row in trained]
    assert profile.correct_Q_K[::3].all() and 0 < profile.correct_Q_K[1::3].mean() < 1

    (config,) = started
    run = RunOnVerl.of(config)
    np.testing.assert_array_equal(run.profile.successes_Q, profile.successes_Q)
    given = {extra["index"] for extra in pd.read_parquet(config.data.train_files)["extra_info"]}
    assert given == set(range(len(trained)))  # all: the plan is drawn from them, and from the profile, in training
    main(words)
    assert len(started) == 2  # resumed

    replace(profile, correct_Q_K=~profile.correct_Q_K).save(tmp_path / "other", PROFILE)
    short, long = (f"data.max_response_length={length}" for length in (16, 1020))
    made = ["--profiles", str(tmp_path / "new"), "--measure"]
    other = ["--profiles", str(tmp_path / "other")]
    theirs = ["--profiles", str(folder)]
    for arguments, said in (
        (other, r"\(the profile: \w{16} → \w{16}\): restore them, or remove the folder"),
        ([short, *other, "--seed", "2"], r"other: max_new_tokens of the profile .*\(32, not 16\): name another"),
        ([short, *theirs, "--measure"], r"other settings \(max_new_tokens: 32 → 16\): name another folder"),
        ([*other, "--seed", "1", "--validation", str(tmp_path / "mine.jsonl")], "profile of 38 prompts, but 40 are"),
        ([*made, "--check"], "leave out --check"),
        ([*made, "--arm", "zvf"], r"arms\.zvf plans without a profile: leave out --measure"),
        ([long, *made], "exceed the model's limit of 1024: lower the latter to 1009"),
        (["actor_rollout_ref.rollout.top_k=9", *made], "top_k=9: a profile is sampled without"),
        ([f"{own_reward}name=odd", *made], r"even\.py: odd cannot be loaded"),
    ):
        with pytest.raises(SettingsError, match=said):
            main([*words, *arguments])
    assert not (tmp_path / "new/profile.json").exists() and len(started) == 2


@pytest.mark.vllm
@pytest.mark.slow
def test_vllm_profiles_ones_own_model_as_transformers_does(tmp_path, monkeypatch):
    """On a CPU: the same prompts, rates within four standard errors; and a folder has the samples of one engine."""
    pytest.importorskip("verl")
    if reason := why_not_vllm():
        pytest.skip(reason)
    from repro.verl.__main__ import main

    monkeypatch.setattr(ready, "gpus_here", lambda: 0)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (tmp_path / "short.py").write_text(
        "def short(data_source, solution_str, ground_truth, extra_info):\n    return float(len(solution_str) < 5)\n"
    )
    reward = "reward.custom_reward_function."
    judged = [f"{reward}path={tmp_path}/short.py", f"{reward}name=short", f"~{reward}reward_kwargs.processes=4"]
    words = ["--model", "tiny", "--data", write_lines(tmp_path / "mine.jsonl"), "--arm", "sgpo", *SMALL, *judged]
    words += ["data.max_response_length=6", "--device", "cpu", "--measure", "--profiles"]
    main([*words, str(tmp_path / "vllm")])
    assert json.loads((tmp_path / "vllm/how.json").read_text())["engine"] == "vllm"
    monkeypatch.setattr("repro.verl.launch.why_not_vllm", lambda: "it is compared with")
    with pytest.raises(SettingsError, match=r"other settings \(engine: 'vllm' → 'transformers'\)"):
        main([*words, str(tmp_path / "vllm")])
    main([*words, str(tmp_path / "transformers")])
    one, other = (Profile.load(tmp_path / engine, PROFILE) for engine in ("vllm", "transformers"))
    assert one.source == other.source and one.correct_Q_K.shape == other.correct_Q_K.shape == (38, 8)
    np.testing.assert_array_equal(one.prompt_tokens_Q, other.prompt_tokens_Q)
    assert one.response_tokens_Q_K.max() == other.response_tokens_Q_K.max() == 6
    pooled = np.mean([one.correct_Q_K, other.correct_Q_K])
    assert 0.02 < pooled < 0.98
    error = np.sqrt(2 * pooled * (1 - pooled) / one.correct_Q_K.size)
    assert abs(one.correct_Q_K.mean() - other.correct_Q_K.mean()) <= 4 * error
