"""ArmTrainer with vLLM, which generates as TRL has it generate."""

import copy
import importlib.util
from itertools import groupby
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from test_trl import TOKENIZER, samples_like_the_engine, trainer_on_trl
from test_trl_loss import Seen
from tiny_run import ROLLOUTS

from repro.engine.generate import generate
from repro.policy.model import build_qwen2
from repro.protocol.streams import stream_seed

pytestmark = [
    pytest.mark.trl,
    pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="TRL is missing: `make extra-trl` installs it"),
]


class Fake:
    """vLLM as TRL sees it, an engine in its process (`LLM`) and a server's client: it samples with the embedded engine,
    from the weights that it was sent last, and keeps what it was asked."""

    def __init__(self):
        self.copy, self.asked, self.synced, self.up_to_date = None, [], [], []
        self.trainer = None

    def opened(self, **options):
        self.asked.append(("open", {name: value for name, value in options.items() if name != "model"}))
        torch.manual_seed(1)
        self.copy = build_qwen2(hidden=16, layers=1, heads=2, max_length=64)  # with other weights than the trainer's
        return self

    # in one process: llm.llm_engine.model_executor.driver_worker.model_runner.model.load_weights
    llm_engine = model_executor = driver_worker = model_runner = model = property(lambda self: self)

    def load_weights(self, named):
        own = self.copy.state_dict()
        for name, value in named:
            own[name].copy_(value.detach())
            self.synced.append(name)

    def update_named_params(self, metadata, named):
        sent = [(name, value.detach().clone()) for name, value in named]
        assert [(name, list(value.shape)) for name, value in sent] == [(name, shape) for name, _, shape in metadata]
        self.load_weights(sent)

    def init_communicator(self, device):
        self.asked.append(("communicator", str(device)))

    def get_server_info(self):
        return {"model_config": {"logprobs_mode": "processed_logprobs"}}

    def reset_prefix_cache(self):
        self.asked.append(("reset",))

    def drawn(self, prompts_Q, sizes_Q, options):
        """(ids_N, logprobs_N): with the random stream of step 0, as `samples_like_the_engine`."""
        self.asked.append(("generate", prompts_Q, sizes_Q, options))
        theirs = self.trainer.accelerator.unwrap_model(self.trainer.model).state_dict()
        self.up_to_date.append(all(torch.equal(theirs[name], value) for name, value in self.copy.state_dict().items()))
        responses = generate(
            self.copy,
            prompts_Q,
            sizes_Q,
            max_new_tokens=options["max_tokens"],
            eos=TOKENIZER.eos_token_id,
            pad=TOKENIZER.pad_token_id,
            temperature=options["temperature"],
            generator=torch.Generator().manual_seed(stream_seed(0, 0, "generate")),
        )
        rows = zip(responses.ids_N_T, responses.logprob_N_T, responses.mask_N_T, strict=True)
        ids_N, logprobs_N = zip(
            *((ids[mask].tolist(), logprob[mask].tolist()) for ids, logprob, mask in rows), strict=True
        )
        return list(ids_N), list(logprobs_N)

    def generate(self, prompts, sampling_params=None, use_tqdm=None, features=None, **options):
        if sampling_params is None:  # a server: each prompt once, with n responses
            ids_N, logprobs_N = self.drawn(prompts, [options["n"]] * len(prompts), options)
            logprobs = [[[value] for value in row] for row in logprobs_N]
            return {"prompt_ids": prompts, "completion_ids": ids_N, "logprobs": logprobs}
        runs = [(ids, len(list(same))) for ids, same in groupby(prompt["prompt_token_ids"] for prompt in prompts)]
        ids_N, logprobs_N = self.drawn([ids for ids, _ in runs], [count for _, count in runs], vars(sampling_params))
        return [
            SimpleNamespace(
                prompt_token_ids=prompt["prompt_token_ids"],
                outputs=[
                    SimpleNamespace(
                        token_ids=ids,
                        logprobs=[
                            {token: SimpleNamespace(rank=1, logprob=value)}
                            for token, value in zip(ids, logprobs, strict=True)
                        ],
                    )
                ],
            )
            for prompt, ids, logprobs in zip(prompts, ids_N, logprobs_N, strict=True)
        ]


@pytest.fixture
def vllm(monkeypatch):
    """Makes a `Fake`, which the next trainer that uses vLLM gets."""
    from trl.generation import vllm_generation

    def new() -> Fake:
        fake = Fake()
        monkeypatch.setattr(vllm_generation, "is_vllm_available", lambda: True)
        monkeypatch.setattr(vllm_generation, "LLM", fake.opened, raising=False)
        monkeypatch.setattr(vllm_generation, "SamplingParams", SimpleNamespace, raising=False)
        monkeypatch.setattr(vllm_generation, "VLLMClient", fake.opened)
        return fake

    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):  # what TRL sets is undone
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return new


@pytest.mark.parametrize("mode", ["colocate", "server"])
def test_vllm_is_opened_asked_and_sent_weights_as_by_trl_itself(mode, vllm, tmp_path):
    """The same calls in the same order on two batches, with and without an arm between rewards and loss; and the same
    gradients, with TRL's importance ratios."""

    def calls(folder, of_trl):
        fake = vllm()
        changes = {"use_vllm": True, "vllm_mode": mode, "generation_kwargs": {"stop": ["x"]}, "top_p": 0.9}
        fake.trainer = trainer_on_trl(folder, "grpo", changes=changes, objective=None, plain=of_trl)
        fake.trainer.add_callback(seen := Seen())
        fake.trainer.train()
        assert fake.up_to_date == [True, True]  # each batch is drawn from the trainer's weights
        return fake, seen.gradients

    (ours, gradients), (theirs, expected) = calls(tmp_path / "ours", False), calls(tmp_path / "theirs", True)
    assert ours.asked == theirs.asked and ours.synced == theirs.synced
    assert all((one - other).norm() <= 1e-5 * other.norm() for one, other in zip(gradients, expected, strict=True))
    kinds = [entry[0] for entry in ours.asked]
    assert kinds == ["open", *["communicator"] * (mode == "server"), *["reset", "generate"] * 2]


@pytest.mark.parametrize("correction", [True])
@pytest.mark.parametrize("mode", ["colocate", "server"])
def test_with_vllm_the_same_rows_are_selected(mode, correction, vllm, tmp_path, monkeypatch):
    """A filter that refills, samplers that draw: rows, weights and advantages are those of the same responses drawn
    without vLLM, and the importance ratios of an engine with the trainer's weights are 1."""
    from repro.trl.batch import RATIO

    fake, chosen, ratios = vllm(), [], []
    changes = {"use_vllm": True, "vllm_mode": mode, "vllm_importance_sampling_correction": correction}
    plain = trainer_on_trl(tmp_path / "plain", "zvf-cost-aware", refill_rounds=1)
    with_vllm = fake.trainer = trainer_on_trl(tmp_path / "vllm", "zvf-cost-aware", changes=changes, refill_rounds=1)
    samples_like_the_engine(plain, copy.deepcopy(plain.model))
    for trainer in (plain, with_vllm):

        def kept(batch, select=trainer._select):
            ratios.append(batch.tensors[RATIO].flatten() if RATIO in batch.tensors else None)
            chosen.append(select(batch))
            return chosen[-1]

        monkeypatch.setattr(trainer, "_select", kept)
        trainer.model.train()
        trainer._prepare_inputs([dict(row) for row in list(trainer.train_dataset)[:ROLLOUTS]])
    one, other = chosen
    np.testing.assert_array_equal(one.row_N, other.row_N)
    np.testing.assert_array_equal(one.weights_N, other.weights_N)
    np.testing.assert_array_equal(one.advantages_N, other.advantages_N)
    np.testing.assert_array_equal(one.response_mask_N_T, other.response_mask_N_T)
    assert len(set(one.row_N)) < ROLLOUTS and ratios[0] is None
    assert (ratios[1] is not None) == correction
    if correction:
        torch.testing.assert_close(ratios[1], torch.ones_like(ratios[1]), rtol=0, atol=1e-4)
    losses = [
        sum(float(trainer.compute_loss(trainer.model, part).detach()) for part in trainer._buffered_inputs)
        for trainer in (plain, with_vllm)
    ]
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)
