"""docs/engines.md: the engine that it writes down runs arms of every kind, resumes, and pays what it drew."""

import re

import numpy as np
import pytest

from repro.paths import ROOT
from repro.protocol.memory import Memory
from repro.settings import load

PAGE = (ROOT / "docs/engines.md").read_text()
RIGHT_Q = np.arange(16) % 8
ARMS = ("grpo", "zvf", "d3s", "cost-aware", "pods", "random-quarter", "dr-grpo", "greso", "reinforce-ada", "replay")


@pytest.fixture(scope="module")
def table():
    names: dict = {"__name__": "engines"}
    exec(compile(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL).group(1), "docs/engines.md", "exec"), names)
    return lambda arm, seed=0: names["Table"](load().arm(arm), seed, RIGHT_Q, 8)


@pytest.mark.parametrize("arm", ARMS)
def test_it_learns_and_pays_for_what_it_drew(table, arm):
    engine = table(arm)
    assert engine.train() > 0.5  # 1/8 at the start
    steps = engine.log.steps
    assert engine.ledger.generated_tokens == engine.ledger.rollouts
    assert engine.ledger.paper_tokens == sum(row.get("selected_tokens", 0) for row in steps)
    assert (max(row["rounds"] for row in steps) > 1) == (engine.method.filter is not None)


@pytest.mark.parametrize("arm", ("cost-aware", "greso", "reinforce-ada", "replay"))
def test_it_resumes_to_the_same_bits(table, arm):
    whole, cut, again = table(arm), table(arm), table(arm)
    whole.train()
    cut.train(until=7)
    again.restore(cut.state())
    again.memory = Memory.of({"drawn": cut.memory.drawn_Q, "held": cut.memory.held}, lambda held: held)
    again.step, again.log.steps = 7, list(cut.log.steps)
    again.ledger = type(cut.ledger).from_row(cut.ledger.row())
    again.logits_Q_V.data[:] = cut.logits_Q_V.detach()
    again.train()
    assert (again.logits_Q_V == whole.logits_Q_V).all() and again.ledger == whole.ledger
