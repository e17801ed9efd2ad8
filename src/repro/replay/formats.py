"""What the rollouts that trainers write look like: how a format is recognised, and where it keeps what a replay needs.

Sources: verl 0.9.1 (`trainer.rollout_data_dir`), TRL 1.16 (`log_completions`), slime (`--save-debug-rollout-data`),
prime-rl with verifiers (`traces.jsonl`), open-instruct (`--save_traces`).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]
SESSION = re.compile(r"(.+)_\d+_\d+")  # verl's uid of a response: prompt, session, output


@dataclass(slots=True)
class Rollout:
    """`group`: of one query and step; `query`: what several steps may ask. `ids`: of prompt and response. These,
    rewards, lengths, `truncated` and `seconds`, which its generation took, are None where nothing says them."""

    step: int | None
    group: Any
    query: Any
    rewards: dict[str, float | None]
    prompt: str = ""
    response: str = ""
    prompt_tokens: int | None = None
    response_tokens: int | None = None
    truncated: bool | None = None
    seconds: float | None = None
    ids: tuple[Sequence[int], Sequence[int]] | None = None


def verl(record: Record) -> Iterator[Rollout]:
    prompt, uid = record["input"], SESSION.fullmatch(str(record.get("uid")))
    rewards = _numbers(record, {"step", "uid", "request_id", "gts"})
    yield Rollout(record.get("step"), uid[1] if uid else prompt, prompt, rewards, prompt, record["output"])


def trl(record: Record) -> Iterator[Rollout]:
    prompt = words(record["prompt"])
    rewards = _numbers(record, {"step", "advantage"})
    yield Rollout(record["step"], prompt, prompt, rewards, prompt, words(record["completion"]))


def slime(record: Record) -> Iterator[Rollout]:
    reward, tokens, group = record["reward"], record["tokens"], record["group_index"]
    rewards, cut = dict(reward) if isinstance(reward, Mapping) else {"reward": reward}, record.get("status")
    prompt, said = len(tokens) - int(record["response_length"]), record.get("response", "")
    lengths, ids = (prompt, len(tokens) - prompt), (tokens[:prompt], tokens[prompt:])
    query = words(record["prompt"])
    yield Rollout(record.get("rollout_id"), group, query, rewards, "", said, *lengths, cut == "truncated", ids=ids)


def open_instruct(record: Record) -> Iterator[Rollout]:
    prompt, response = record["prompt_tokens"], record["response_tokens"]
    cut = record.get("finish_reason") not in ("stop", None)
    rewards, group = {"reward": record["reward"]}, record["prompt_idx"]
    lengths, ids = (len(prompt), len(response)), (prompt, response)
    yield Rollout(record["step"], group, tuple(prompt), rewards, "", "", *lengths, cut, ids=ids)


def prime_rl(record: Record) -> Iterator[Rollout]:
    """An episode of several agents, of which some are trained, or a trace. What the policy sampled is the response."""
    run = record.get("run") or {}
    for trace in record.get("traces", [record]):
        if not (trace.get("agent") or {}).get("trainable", True):
            continue
        mask = [bool(own) for node in trace["nodes"] for own in node.get("mask") or []]
        tokens = [token for node in trace["nodes"] for token in node.get("token_ids") or []]
        prompt = len(mask) - sum(mask)
        once = mask == sorted(mask) and len(mask) == len(tokens)  # a prompt, then a response
        task = trace.get("task") or record.get("task") or {}
        query = task.get("key") or task.get("hash") or repr(task.get("data"))
        calls = trace.get("calls") or []
        ends, spans = [call.get("finish_reason") for call in calls], [call.get("time") or {} for call in calls]
        times = [span["end"] - span["start"] for span in spans if span.get("end")]
        yield Rollout(
            (run.get("work") or run).get("step"),
            (record.get("group") or trace.get("group") or {}).get("id", query),
            query,
            {name: given and given["score"] * given.get("weight", 1.0) for name, given in trace["rewards"].items()},
            prompt_tokens=prompt,
            response_tokens=sum(mask),
            truncated=ends[-1] == "length" if ends else None,
            seconds=sum(times) if times else None,
            ids=(tokens[:prompt], tokens[prompt:]) if once else None,
        )


def table(record: Record) -> Iterator[Rollout]:
    group = record["group"]
    lengths = [_whole(record.get(name)) for name in ("prompt_tokens", "response_tokens")]
    texts = [words(record.get(name)) for name in ("prompt", "response")]
    rewards, query, cut = {"reward": record["reward"]}, record.get("query", group), record.get("truncated")
    cut = None if cut is None or cut != cut else cut
    if cut not in (None, True, False):
        raise ValueError("has a `truncated` that is neither true nor false")
    step, seconds = _whole(record.get("step")), record.get("seconds")
    yield Rollout(step, group, query, rewards, *texts, *lengths, cut and bool(cut), seconds and float(seconds))


# Title, the keys by which records are known, and the rollouts of one.
FORMATS: tuple[tuple[str, set[str], Callable[[Record], Iterator[Rollout]]], ...] = (
    ("prime-rl", {"traces"}, prime_rl),
    ("prime-rl", {"nodes", "rewards"}, prime_rl),
    ("open-instruct", {"prompt_idx", "prompt_tokens", "response_tokens", "reward"}, open_instruct),
    ("slime", {"group_index", "response_length", "reward"}, slime),
    ("verl", {"input", "output", "score"}, verl),
    ("TRL", {"step", "prompt", "completion", "advantage"}, trl),
    ("table", {"group", "reward"}, table),
)


def words(content: Any) -> str:
    """A text, or that of messages; "" for none."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return words(content.get("content") or content.get("text"))
    return "\n".join(map(words, content)) if isinstance(content, list) else ""


def _numbers(record: Record, without: set[str]) -> dict[str, float | None]:
    """What may be a reward: numbers and None. What `repro.trl` adds to TRL's table is none."""
    names = [name for name in record if name not in without and not name.startswith("arm")]
    return {name: record[name] for name in names if record[name] is None or isinstance(record[name], int | float)}


def _whole(value: Any) -> int | None:
    try:
        return None if value is None or value != value else int(value)
    except (ValueError, TypeError, OverflowError):
        raise ValueError("has a step or a length that is no whole number") from None
