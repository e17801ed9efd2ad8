"""slime, and miles with the same flags: a filter while it samples, a sampler where rewards become advantages.

    --dynamic-sampling-filter-path repro.plugins.slime.keep_pass_rate
    --custom-reward-post-process-path repro.plugins.slime.select_cost_aware

Any filter follows `keep_`, any sampler `select_`. Parameters are keys of the file that --custom-config-path names:
`repro: {pass_rate: {low: 0.1}}`. Signatures: THUDM/slime 624b824, docs/en/get_started/customization.md, sections 4 and
12; the calls, slime/ray/rollout.py `_post_process_rewards` and slime/rollout/filter_hub/base_types.py.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from repro.plugins import NotForHosts, credits, kept, method


def __getattr__(name: str) -> Callable:
    kind, _, rest = name.partition("_")
    package = {"keep": "filters", "select": "samplers"}.get(kind)
    if package is None or not rest:
        raise AttributeError(name)
    method(package, rest)  # a wrong name is refused when slime starts
    return partial(keep if kind == "keep" else select, rest)


def keep(name: str | Callable, args: Any, samples: list, **_: Any) -> bool:
    """Whether a group of `samples` goes into the batch; slime makes its DynamicFilterOutput of a bool. A trajectory in
    fragments is a list of them with one reward, as for slime's own filter."""
    first = [sample[0] if isinstance(sample, list) else sample for sample in samples]
    rewards_N = [sample.get_reward_value(args) for sample in first]
    return bool(kept(name, rewards_N, **_parameters(args, name))[0])


def select(name: str | Callable, args: Any, samples: list) -> tuple[list[float], list[float]]:
    """(raw rewards, advantages) of the whole batch, under --advantage-estimator grpo or gspo. Samples that were not
    drawn get 0 and `remove_sample`, so that a KL term leaves them out too."""
    if args.advantage_estimator not in ("grpo", "gspo") or getattr(args, "normalize_advantages", False):
        raise NotForHosts(
            "slime would change the sampler's advantages: take grpo or gspo, without --normalize-advantages"
        )
    rewards_N = [float(sample.get_reward_value(args)) for sample in samples]
    response_N = [sample.response_length for sample in samples]
    prompt_N = [len(sample.tokens) - length for sample, length in zip(samples, response_N, strict=True)]
    groups_N = [sample.group_index for sample in samples]
    given = {"seed": args.rollout_seed} | _parameters(args, name)
    credits_N = credits(name, rewards_N, groups_N, prompt_N, response_N, **given)
    for sample, credit in zip(samples, credits_N, strict=True):
        sample.remove_sample = bool(sample.remove_sample or credit == 0)
    return rewards_N, credits_N.tolist()


def _parameters(args: Any, name: str | Callable) -> dict[str, Any]:
    return {} if callable(name) else (getattr(args, "repro", None) or {}).get(name, {})
