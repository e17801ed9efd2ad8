"""The sampler that stands in for an inference server on a CPU: the same responses in whatever order requests arrive."""

import asyncio
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from repro.engine.backends.load import ModelMissing
from repro.evaluation.model import ends_of, longest_of, padding_of, require_known, stops_of
from repro.policy.model import build_qwen2, ensure_tokenizer, save_policy

verl = pytest.importorskip("verl")

from repro.verl.hf_rollout import HFServer  # noqa: E402
from repro.verl.in_order import PLACE, InOrder, with_place  # noqa: E402

pytestmark = pytest.mark.verl
PROMPTS = [[1, 5, 6], [1, 7], [1, 5, 6]]  # the first and last are the same query, planned twice
SESSIONS = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    place = tmp_path_factory.mktemp("policy")
    save_policy(build_qwen2(hidden=16, layers=1, heads=2, max_length=32), ensure_tokenizer(None), place)
    return place


def requests(batch: str) -> list[tuple[int, int, dict]]:
    """(prompt, session, parameters) of every response of a batch."""
    fields = {"batch_name": batch, "batch_requests": len(PROMPTS) * SESSIONS}
    prompts = [(prompt, session) for prompt in range(len(PROMPTS)) for session in range(SESSIONS)]
    return [
        (prompt, session, with_place({"temperature": 1.0}, {**fields, "batch_place": prompt, "session_id": session}))
        for prompt, session in prompts
    ]


def answers(folder, order, *batches: str) -> list[dict]:
    """{(prompt, session): tokens} of each batch by a new server that gets the requests in `order`."""

    async def all_of() -> list[dict]:
        server = HFServer(SimpleNamespace(seed=3, response_length=12), str(folder), 0)
        torch.manual_seed(1)
        for weights in server.model.parameters():
            torch.nn.init.normal_(weights, std=0.1)
        found = []
        for batch in batches:
            rows = [requests(batch)[row] for row in order]
            sent = []
            for prompt, _, parameters in rows:
                sent.append(asyncio.create_task(server.generate("", PROMPTS[prompt], parameters)))
                await asyncio.sleep(0.0)
            outputs = await asyncio.gather(*sent)
            found.append({row[:2]: out.token_ids for row, out in zip(rows, outputs, strict=True)})
        return found

    return asyncio.run(all_of())


def test_a_batch_has_the_same_responses_in_any_order_and_after_any_other_batch(folder):
    n = len(PROMPTS) * SESSIONS
    first, second = answers(folder, range(n), "training 1 0", "training 2 0")
    shuffled = answers(folder, np.random.default_rng(0).permutation(n), "training 2 0")
    assert shuffled == [second] and first != second
    assert len({tuple(tokens) for tokens in first.values()}) > SESSIONS


def test_a_batch_waits_until_it_is_whole(folder, monkeypatch):
    """Pauses of 0.15 s between requests are longer than those after which requests without a place are answered."""

    async def late(server) -> list:
        rows = requests("training 1 0")
        sent = [asyncio.create_task(server.generate("", PROMPTS[p], parameters)) for p, _, parameters in rows[:-1]]
        await asyncio.sleep(0.15)
        assert not any(task.done() for task in sent)
        prompt, _, parameters = rows[-1]
        sent.append(asyncio.create_task(server.generate("", PROMPTS[prompt], parameters)))
        return [out.token_ids for out in await asyncio.gather(*sent)]

    async def all_of():
        return await late(HFServer(SimpleNamespace(seed=3, response_length=12), str(folder), 0))

    assert len(asyncio.run(all_of())) == len(PROMPTS) * SESSIONS


def test_prompts_are_told_their_batch_its_size_and_their_place():
    from tensordict import TensorDict
    from verl.utils import tensordict_utils

    given = []
    loops = InOrder(SimpleNamespace(generate_sequences=given.append, other=7), 8, 2)
    for step, validate, sizes in [(1, False, [3, 5]), (1, False, None), (1, True, None), (2, False, None)]:
        prompts = TensorDict({"index": torch.arange(2)}, batch_size=2)
        tensordict_utils.assign_non_tensor_data(prompts, "global_steps", step)
        if validate:
            tensordict_utils.assign_non_tensor_data(prompts, "validate", True)
        if sizes:
            prompts["__rollout_n__"] = torch.tensor(sizes)
        loops.generate_sequences(prompts)
    names = [(batch["batch_name"], batch["batch_requests"], batch["batch_place"].tolist()) for batch in given]
    assert names == [
        ("training 1 0", 8, [0, 1]),
        ("training 1 1", 16, [0, 1]),
        ("validation 1 0", 4, [0, 1]),
        ("training 2 0", 16, [0, 1]),
    ]
    assert loops.other == 7 and PLACE not in with_place({"temperature": 1.0}, {})


QWEN = {  # Qwen2.5-1.5B-Instruct's configurations, the model of docs/cluster.md, without what gives its size
    "config.json": {
        "architectures": ["Qwen2ForCausalLM"],
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "max_position_embeddings": 32768,
        "model_type": "qwen2",
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "vocab_size": 151936,
    },
    "generation_config.json": {"eos_token_id": [151645, 151643], "pad_token_id": 151643, "temperature": 0.7},
}
SIZE = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
SIZE |= {"num_attention_heads": 2, "num_key_value_heads": 2}


def sampled(folder, count: int = 1) -> list[list[int]]:
    server = HFServer(SimpleNamespace(seed=0, response_length=20), str(folder), 0)

    async def all_of() -> list:
        asked = [server.generate("", [1, 4, 13], {"temperature": 1.0}) for _ in range(count)]
        return [out.token_ids for out in await asyncio.gather(*asked)]

    return asyncio.run(all_of())


def test_the_documented_model_has_its_ends_and_a_padding(tmp_path, monkeypatch):
    for name, content in QWEN.items():
        (tmp_path / name).write_text(json.dumps({**content, **(SIZE if name == "config.json" else {})}))
    tokenizer = SimpleNamespace(name_or_path=str(tmp_path), eos_token_id=151645, pad_token_id=None)
    assert stops_of(tmp_path, tokenizer) == ends_of(tokenizer) == [151645, 151643]
    assert padding_of(tokenizer, [151645, 151643]) == 151645 and longest_of(tmp_path) == 32768
    require_known(tmp_path)
    monkeypatch.setattr("repro.evaluation.model.tokenizer_of", lambda source: tokenizer)
    assert len(sampled(tmp_path)[0]) == 20


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_every_end_ends_a_response(folder, tmp_path, name):
    place = shutil.copytree(folder, tmp_path / "model")
    changed = json.loads((place / name).read_text()) | {"eos_token_id": [2, 5, 6]}
    (place / name).write_text(json.dumps(changed))
    found = sampled(place, 12)
    assert {tokens[-1] for tokens in found if len(tokens) < 20} > {5}
    assert not any({2, 5, 6} & set(tokens[:-1]) for tokens in found)


def test_a_model_that_nobody_can_build_or_that_never_ends_is_one_sentence(folder, tmp_path):
    place = shutil.copytree(folder, tmp_path / "model")
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({**config, "model_type": "unheard_of", "eos_token_id": None}))
    with pytest.raises(ModelMissing, match="holds no causal language model that transformers can load"):
        require_known(place)
    (place / "generation_config.json").unlink()
    with pytest.raises(ModelMissing, match="names no token that ends a response"):
        stops_of(place, SimpleNamespace(eos_token_id=None))
