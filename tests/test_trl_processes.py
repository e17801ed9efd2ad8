"""Several processes under DDP: every one draws the same, and their gradient is that of one process."""

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from repro.settings import SettingsError

pytestmark = [
    pytest.mark.trl,
    pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="TRL is missing: `make extra-trl` installs it"),
]
SCRIPT = Path(__file__).with_name("trl_rank.py")


def start(folder, world):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    given = {**os.environ, "ACCELERATE_USE_CPU": "true", "WORLD_SIZE": str(world), "MASTER_PORT": port}
    given |= {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(folder)],
            env={**given, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world)
    ]


@pytest.mark.slow
def test_two_processes_draw_the_same_and_add_up_to_the_gradient_of_one(tmp_path):
    running = [*start(tmp_path, 2), *start(tmp_path, 1)]
    try:
        for process in running:
            said, _ = process.communicate(timeout=500)
            assert process.returncode == 0, said[-4000:]
    finally:
        for process in running:
            process.kill()
    from trl_rank import CASES

    for case in CASES:
        alone, first, second = (torch.load(tmp_path / f"{case}-{place}.pt") for place in ("1-0", "2-0", "2-1"))
        assert first["drawn"] == second["drawn"] == alone["drawn"] and len(alone["drawn"]) >= 1
        assert first["ledger"] == second["ledger"] == pytest.approx(alone["ledger"])
        assert len(first["gradients"]) == len(alone["gradients"]) == 4
        for one, other, whole in zip(first["gradients"], second["gradients"], alone["gradients"], strict=True):
            assert torch.equal(one, other) and (one - whole).norm() <= 1e-5 * whole.norm()
        assert max(float(whole.norm()) for whole in alone["gradients"]) > 1e-3


@pytest.mark.parametrize("kind", ["is_deepspeed_enabled", "is_fsdp_enabled"])
def test_what_shares_out_the_weights_is_refused(kind):
    from repro.trl import refused

    trainer = SimpleNamespace(**{"is_deepspeed_enabled": False, "is_fsdp_enabled": False, kind: True})
    with pytest.raises(SettingsError, match=r"remove `deepspeed` and `fsdp`, .* or use verl"):
        refused.require_setting(trainer, False, True)
