"""verl's own main loop trains our policy on a CPU: two ranks, group sizes from a profile, a filter, weighted draws
with replacement, a token mask, a KL term; and leaves the tables that the embedded engine leaves."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from tiny_run import Arm, new_trainer, run

from repro import settings as settings_module
from repro.arms import build
from repro.engine.checkpoint import Checkpoints
from repro.files import write_json
from repro.methods.plans import Queries
from repro.methods.rollouts import Rollouts
from repro.methods.samplers.cost_aware import cost_aware
from repro.policy import shipped
from repro.policy.model import ensure_tokenizer, save_policy
from repro.protocol.profile import Profile
from repro.protocol.streams import stream_seed
from repro.verl.run import PROFILE
from repro.verl.version import UnsupportedVerl, require_plugin, require_verl

pytestmark = [pytest.mark.verl, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[1]
ARM = {
    "title": "Everything",
    "about": "",
    "group": "Objectives",
    "plan": {"sgpo": {"drop_trivial": False, "unsolvable_share": 0.5, "largest": 8}},
    "profile": {"samples": 4, "again": 1},
    "filter": "zero_variance",
    "samplers": [{"cost_aware": {"beta": 0.3, "tokens": 0.7}}, {"top_tokens": {"tokens": 0.5}}],
    "aggregation": "token-mean",
}
STEPS, SEED = 2, 3


def small_project(folder: Path, **arms: dict) -> None:
    """params.yaml at scale smoke, its arms `grpo`, `everything` and `arms`, mostly sums of two terms, which are soon
    learnt; and verl's presets."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["scale"] = "smoke"
    params["arms"] = {"grpo": params["arms"]["grpo"], "everything": ARM, **arms}
    params["primaries"] = ["grpo"]
    for study in ("fidelity", "drift", "parity"):
        params[study]["arms"] = ["grpo"]
    for name, family in params["task"]["families"].items():
        family["share"] = {"sum-2": 0.7, "sum-3": 0.3}.get(name, 0.0)
    smoke = params["scales"]["smoke"]
    smoke["policy"] |= {"steps": 300, "hidden": 48}
    smoke["engine"] = {
        "steps": STEPS,
        "rollouts_per_step": 32,
        "minibatch": 16,
        "max_new_tokens": 64,
        "kl": 0.01,
        "learning_rate": 2e-4,
        "checkpoint_every": STEPS,
        "log_every": 1,
        "kept_rollouts": 4,
    }
    smoke["evaluation"] = {"samples": 1, "final_samples": 2}
    smoke["task"] = {"train_queries": 24, "evaluation_queries": 12, "pretraining_queries": 1000}
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False, allow_unicode=True))
    shutil.copytree(ROOT / "configs/verl", folder / "configs/verl")


def pretrain(folder: Path) -> None:
    """The base policy of these settings, where stage `policy` leaves it."""
    settings = settings_module.load(folder / "params.yaml")
    policy = folder / "results" / "policy"
    model, _ = shipped.base_policy(settings)
    save_policy(model, ensure_tokenizer(settings.policy.source), policy / "model")
    write_json(shipped.made_with(settings), policy / shipped.MADE_WITH)


def verl(folder: Path, *arguments: str, arm: str = "everything") -> str:
    """`python -m repro.verl` in a project of its own; its output."""
    return python(folder, "repro.verl", "--arm", arm, "--seed", str(SEED), *arguments)


def python(folder: Path, module: str, *arguments: str) -> str:
    environment = {**os.environ, "REPRO_ROOT": str(folder)}
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


def made(folder: Path, **arms: dict) -> Path:
    """The project with its base policy, where verl is installed."""
    try:
        require_verl()
        require_plugin()
    except UnsupportedVerl as error:
        pytest.skip(str(error))
    small_project(folder, **arms)
    pretrain(folder)
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    folder = made(tmp_path_factory.mktemp("verl"))
    verl(folder, "--ranks", "2")
    return folder


@pytest.fixture(scope="module")
def tables(project) -> dict[str, pd.DataFrame]:
    names = ("steps", "evaluations", "questions", "rollouts", "selection", "seconds")
    folder = project / "build" / "verl" / "everything"
    return {name: pd.read_parquet(folder / f"{name}.parquet").assign(arm="everything") for name in names}


def test_the_tables_have_the_columns_of_the_embedded_engine(tables, tmp_path):
    log = run(new_trainer("cost-aware"), Checkpoints(tmp_path, "a"))
    assert not log.pop("harder")  # a split that verl is not asked
    for name, rows in log.items():
        assert set(tables[name].columns) - {"arm"} == set(rows[0])
        assert (tables[name]["seed"] == SEED).all()
    assert tables["steps"]["step"].tolist() == list(range(STEPS))
    assert tables["evaluations"]["step"].tolist() == list(range(STEPS + 1))
    assert tables["evaluations"]["samples"].tolist() == [1] * STEPS + [2]
    assert len(tables["questions"]) == 12 and (tables["questions"]["samples"] == 2).all()


def test_the_policy_moves_and_both_replicas_follow_it(tables):
    kl = tables["steps"]["kl"]
    assert abs(kl[0]) < 1e-6 < kl[1]
    assert (tables["steps"]["gradient_norm"] > 0).all()
    assert not tables["evaluations"]["diverged"].any()
    assert tables["evaluations"]["accuracy"].between(0, 1).all()


def test_groups_have_the_sizes_of_the_plan_of_their_step(tables, project):
    run = project / "build/verl/everything" / f"seed-{SEED}"
    state = torch.load(run / "checkpoints" / f"global_step_{STEPS}" / "data.pt", weights_only=False)
    assert state["since"] == 1  # profiled in between
    begun = Profile.load(run / "profile", PROFILE).known()
    again = Queries(*map(np.array, state["known"]))
    for step, known in enumerate((begun, again)):
        rng = np.random.default_rng(stream_seed(SEED, step, "plan"))
        plan = build("everything", Arm(**ARM)).made_plan(step, known, 32, rng)
        sizes = {group.query: group.size for _ in range(10) for group in plan.fill_step(32)}  # as many rounds as may be
        of_step = tables["selection"].query("step == @step")
        found = of_step.groupby("query").size()
        assert all(size % sizes[query] == 0 for query, size in found.items())  # a query may open the next epoch
        assert (of_step.groupby("query")["reward"].nunique() == 2).all()  # the filter left the mixed groups alone
        assert step or len(set(found)) > 1


def test_the_policy_is_profiled_again_and_that_is_paid_for(tables):
    first, second = tables["steps"]["profile_tokens"]
    assert 24 * 4 <= second - first <= 24 * 4 * 64  # every query, four samples of at most 64 tokens
    profiled = tables["seconds"].query("phase == 'profile'")
    assert profiled["step"].tolist() == [1]


def test_the_selection_is_that_of_the_same_sampler_on_the_same_batch(tables):
    most = 0
    for step, rows in tables["selection"].groupby("step"):
        prompt_N = rows["cost"] - rows["response_tokens"]
        batch = Rollouts.from_batch(
            group_N=rows["query"].to_numpy(),
            rewards_N=rows["reward"].to_numpy(),
            advantages_N=rows["advantage"].to_numpy(),
            prompt_tokens_N=prompt_N.to_numpy(),
            response_tokens_N=rows["response_tokens"].to_numpy(),
        )
        rng = np.random.default_rng(stream_seed(SEED, step, "sample"))
        chosen = cost_aware(batch, step / STEPS, rng, beta=0.3, tokens=0.7)
        times_N = np.bincount(chosen.row_N, minlength=len(rows))
        assert rows["times_trained"].tolist() == times_N.tolist()
        weight_N = np.zeros(len(rows))
        weight_N[chosen.row_N] = chosen.weights_N
        assert rows["weight"].to_numpy() == pytest.approx(weight_N, rel=1e-12)
        most = max(most, times_N.max())
    assert most > 1  # with replacement, so that weights and counts above are not all of single draws


def test_the_ledger_adds_up(tables, project):
    steps, selection = tables["steps"], tables["selection"]
    paper, trained, scored = (
        steps[name].diff().fillna(steps[name]) for name in ("paper_tokens", "trained_tokens", "scored_tokens")
    )
    assert paper.tolist() == steps["selected_tokens"].tolist()
    assert steps["updates"].tolist() == [2 * (step + 1) for step in range(STEPS)]
    kept, chosen = selection.groupby("step"), selection.query("times_trained > 0").groupby("step")
    # The policy that sampled reads everything, since `top_tokens` reads entropies. The reference and the updates read
    # chosen rows, but for those of which no token was chosen: the one each once, the others at most once in each of two
    # mini-batches.
    read = scored.to_numpy() - kept["cost"].sum().to_numpy()
    assert (read <= chosen["cost"].sum().to_numpy()).all()
    assert (read <= trained).all() and (trained <= 2 * read).all()
    assert (trained <= paper).all()
    assert (steps["computed_rollouts"] <= 2 * chosen.size().to_numpy()).all()
    # Copies are read once; by chance, a step may have none in any of its mini-batches.
    copies = steps["selected_rollouts"] - steps["computed_rollouts"]
    assert (copies >= 0).all() and ((copies > 0) == (trained < paper)).all()
    profile = pd.read_parquet(project / "build/verl/everything" / f"seed-{SEED}" / "profile" / "profile.parquet")
    assert steps["profile_tokens"][0] == profile["response_tokens"].sum()
    kept_tokens = selection.query("step == 0")["response_tokens"].sum()
    assert steps["generated_tokens"][0] >= steps["profile_tokens"][0] + kept_tokens  # what the filter threw away too
    tokens = selection.groupby("step")["response_tokens"].sum()
    assert (steps["loss_tokens"] <= 0.5 * tokens.to_numpy() * 2 + 1).all()
