"""A rollout replica for verl that needs no inference server: the embedded engine's sampler in a Ray actor.

For small policies on a CPU; everything else uses vLLM. Responses are sampled by the same code as in the embedded engine
(repro.engine.generate). Requests that name their place in a batch (repro.verl.in_order) are sampled together, in that
order and with random numbers of that batch's own, so a run has the same bits again, resumed or not; the others, as with
several ranks, share a batch with those that arrive at the same time.
"""

import asyncio
import os
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

from repro.settings import SettingsError
from repro.verl.in_order import PLACE, Place

PAUSE = 0.05  # seconds without a new request, after which the waiting ones are generated together
PATIENCE = 60.0  # the same for a batch that is not whole: verl continues without a request that failed


class Request(NamedTuple):
    place: Place
    prompt: list[int]
    temperature: float
    limit: int
    answer: asyncio.Future


def server_name(replica: int) -> str:
    """The Ray actor that serves one replica."""
    return f"repro_hf_server_{replica}"


class HFServer:
    """One model and its queue of requests. The trainer sends its weights before the first request."""

    def __init__(self, config: Any, model_path: str, replica: int):
        from transformers import AutoConfig, AutoModelForCausalLM

        from repro.evaluation.model import padding_of, stops_of, tokenizer_of

        torch.set_num_threads(1)
        self.config = config
        architecture = AutoConfig.from_pretrained(model_path)
        self.model = AutoModelForCausalLM.from_config(architecture, attn_implementation="sdpa").eval()
        tokenizer = tokenizer_of(model_path)
        self.stops = stops_of(model_path, tokenizer)
        self.pad, self.replica = padding_of(tokenizer, self.stops), replica
        self.generator = torch.Generator().manual_seed(config.seed + replica)
        self.version: int | None = None
        self.waiting: dict[str, list[Request]] = defaultdict(list)  # by batch
        self.serving: list[asyncio.Task] = []

    def address(self) -> str:
        return ray.util.get_node_ip_address()

    async def load_weights(self, weights: dict[str, torch.Tensor], version: int | None) -> None:
        """Load all weights; RuntimeError names a missing one."""
        missing, _ = self.model.load_state_dict(weights, strict=False)
        tied = {"lm_head.weight"} if self.model.config.tie_word_embeddings else set()
        if lacking := set(missing) - tied:
            raise RuntimeError(f"the trainer sent no weights for {sorted(lacking)[0]}; does it train the same model?")
        self.version = version

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        """One response, sampled from the whole distribution at the requested temperature."""
        if sampling_params.get("top_p", 1.0) != 1.0 or sampling_params.get("top_k", -1) not in (-1, 0, None):
            raise SettingsError(
                "rollout hf samples the whole distribution: set top_p to 1 and top_k to -1, or use vllm"
            )
        limit = int(sampling_params.get("max_tokens") or self.config.response_length)
        place = Place(*sampling_params.get(PLACE, ("", 0, 0, 0)))
        answer = asyncio.get_running_loop().create_future()
        request = Request(place, list(prompt_ids), float(sampling_params["temperature"]), limit, answer)
        self.waiting[place.batch].append(request)
        if len(self.waiting[place.batch]) == 1:
            self.serving = [task for task in self.serving if not task.done()]
            self.serving.append(asyncio.create_task(self._serve(place)))
        return await answer

    async def _serve(self, of: Place) -> None:
        await self._arrival(of)
        alike = defaultdict(list)
        for request in sorted(self.waiting.pop(of.batch), key=lambda request: request.place):
            alike[request.temperature, request.limit].append(request)
        if of.batch:
            name = np.random.SeedSequence([self.config.seed, self.replica, *of.batch.encode()])
            self.generator.manual_seed(int(name.generate_state(1)[0]))
        for part in alike.values():
            try:
                outputs = self._sample(part)
                for request, output in zip(part, outputs, strict=True):
                    request.answer.set_result(output)
            except Exception as error:
                for request in part:
                    request.answer.set_exception(error)

    async def _arrival(self, of: Place) -> None:
        """Until the batch is whole, or without a place no request has come for a while."""
        waiting, still, count = self.waiting[of.batch], 0.0, 0
        while len(waiting) != of.requests and still < (PATIENCE if of.batch else PAUSE):
            await asyncio.sleep(PAUSE)
            still, count = still + PAUSE if len(waiting) == count else 0.0, len(waiting)

    def _sample(self, requests_N: list[Request]) -> list[TokenOutput]:
        """Requests with the same prompt form a group and share its prefill; all have a temperature and a limit."""
        from repro.engine.generate import generate

        rows: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for row, request in enumerate(requests_N):
            rows[tuple(request.prompt)].append(row)
        responses = generate(
            self.model,
            [list(prompt) for prompt in rows],
            [len(members) for members in rows.values()],
            max_new_tokens=requests_N[0].limit,
            eos=self.stops[0],
            pad=self.pad,
            temperature=max(requests_N[0].temperature, 1e-6),  # verl says 0 for greedy
            generator=self.generator,
        )
        outputs: list[TokenOutput] = [None] * len(requests_N)  # type: ignore[list-item]
        for place, row in enumerate(row for members in rows.values() for row in members):
            ids = responses.ids_N_T[place, : int(responses.mask_N_T[place].sum())].tolist()
            length = next((at for at, token in enumerate(ids, 1) if token in self.stops), len(ids))
            outputs[row] = TokenOutput(
                token_ids=ids[:length],
                log_probs=responses.logprob_N_T[place, :length].tolist(),
                stop_reason="completed",
                num_preempted=0,
                extra_fields={"global_steps": self.version},
            )
        return outputs

    async def _nothing(self, *_: Any, **__: Any) -> None:
        """The model stays in memory: nothing to free or restore."""

    wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = _nothing
    resume_generation = start_profile = stop_profile = abort_all_requests = _nothing


class HFReplica(RolloutReplica):
    """Starts one server; as many replicas as there are ranks."""

    async def launch_servers(self) -> None:
        server = ray.remote(num_cpus=0)(HFServer).options(
            name=server_name(self.replica_rank), max_concurrency=self.max_concurrency
        )
        self._server_handle = server.remote(self.config, self.model_config.path, self.replica_rank)
        self.servers = [self._server_handle]
        self._server_address = f"{await self._server_handle.address.remote()}:{self.replica_rank}"


class HFAdapter(BaseRollout):
    """In the trainer's process: sends the weights to the server of its rank."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1):
        super().__init__(config, model_config, device_mesh)
        self.server = server_name(int(os.environ["RANK"]) if replica_rank == -1 else replica_rank)

    async def resume(self, tags: list[str]) -> None:
        """Nothing was released."""

    async def release(self) -> None:
        """Nothing to release."""

    @torch.no_grad()
    async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
        copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in weights}
        await ray.get_actor(self.server).load_weights.remote(copies, global_steps)
