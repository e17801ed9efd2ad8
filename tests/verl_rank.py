"""One rank of verl's FSDP engine on a CPU, without Ray: `python verl_rank.py <folder>`, RANK and WORLD_SIZE set.

Reads `cases.pt` (written by test_verl_engine.py), makes one plain SGD step of length 1 for each case from the same
weights, and rank 0 writes `moved-<world size>.pt`: the gradients, since the step's difference is their negative.
"""

import os
import sys
from functools import partial
from pathlib import Path

import torch
import verl  # noqa: F401  (loads the plugin)
from verl.trainer.config import CheckpointConfig
from verl.utils import tensordict_utils as tu
from verl.workers.config import (
    FSDPActorConfig,
    FSDPEngineConfig,
    FSDPOptimizerConfig,
    HFModelConfig,
    PolicyLossConfig,
    TrainingWorkerConfig,
)
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils.losses import ppo_loss

from repro.arms import Method
from repro.verl.batch import merged, training_rows
from repro.verl.loss import actor_settings, has_terms, own_loss

SINGLE = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
SLICE, LONGEST = 96, 24  # tokens of a micro-batch: several to each mini-batch; the longest response there can be


def new_worker(policy: Path) -> tuple[TrainingWorker, FSDPEngineConfig, FSDPOptimizerConfig]:
    model = HFModelConfig(
        path=str(policy),
        use_remove_padding=int(os.environ["WORLD_SIZE"]) > 1,  # both of verl's layouts; packed is that of GPUs
        enable_gradient_checkpointing=False,
        override_config={"attn_implementation": "sdpa"},
    )
    engine = FSDPEngineConfig(
        strategy="fsdp2",
        use_torch_compile=False,
        mixed_precision=SINGLE,
        use_dynamic_bsz=True,
        max_token_len_per_gpu=SLICE,
        infer_max_token_len_per_gpu=SLICE,
    )
    optimiser = FSDPOptimizerConfig(lr=1.0, optimizer="SGD", weight_decay=0.0, clip_grad=1e9, total_training_steps=100)
    config = TrainingWorkerConfig(
        model_type="language_model",
        model_config=model,
        engine_config=engine,
        optimizer_config=optimiser,
        checkpoint_config=CheckpointConfig(),
    )
    worker = TrainingWorker(config)
    worker.reset()
    return worker, engine, optimiser


def actor_config(
    method: Method, engine: FSDPEngineConfig, optimiser: FSDPOptimizerConfig, own: bool, terms: dict[str, float]
):
    values = actor_settings(method, LONGEST)
    values |= {"use_kl_loss": "kl" in terms, "kl_loss_coef": terms.get("kl", 0.0)}
    values |= {"entropy_coeff": terms.get("entropy", 0.0), "calculate_entropy": "entropy" in terms}
    mode = "repro" if own else values.pop("policy_loss.loss_mode")
    values.pop("policy_loss.loss_mode", None)
    return FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        use_dynamic_bsz=True,
        optim=optimiser,
        fsdp_config=engine,
        policy_loss=PolicyLossConfig(loss_mode=mode),
        **values,
    )


def parameters(worker: TrainingWorker) -> dict[str, torch.Tensor]:
    whole = worker.engine.module.state_dict()
    return {name: getattr(value, "full_tensor", lambda value=value: value)().clone() for name, value in whole.items()}


def main(folder: Path) -> None:
    saved = torch.load(folder / "cases.pt", weights_only=False)
    worker, engine, optimiser = new_worker(folder / "policy")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    own = [parameter.detach().clone() for parameter in worker.engine.module.parameters()]
    before, gradients = parameters(worker), {}
    for name, (method, part, kind) in saved["cases"].items():
        config = actor_config(method, engine, optimiser, kind["registered"], kind["terms"])
        worker.set_loss_fn(own_loss(method, config) or partial(ppo_loss, config=config))
        one = merged(part, method.aggregation, every_row=has_terms(config)) if kind["merge"] else None
        read, copies = (one.read, one.copies_M) if one else (part, None)
        rows = training_rows(saved["fields"], read, ranks, method.aggregation, copies)
        share = tu.chunk_tensordict(rows, ranks)[rank]
        entropy = config.calculate_entropy
        settings = {"temperature": 1.0, "calculate_entropy": entropy, "global_batch_size": len(part), "epochs": 1}
        tu.assign_non_tensor(share, **settings, mini_batch_size=len(rows), seed=0, dataloader_kwargs={"shuffle": False})
        metrics = tu.get(worker.train_mini_batch(share), "metrics")
        after = parameters(worker)
        moved = {key: before[key] - after[key] for key in before}
        gradients[name] = moved, float(metrics["loss"][0]), float(metrics["grad_norm"][0]), len(read)
        with torch.no_grad():
            for parameter, start in zip(worker.engine.module.parameters(), own, strict=True):
                parameter.copy_(start)
    if rank == 0:
        torch.save(gradients, folder / f"moved-{ranks}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
