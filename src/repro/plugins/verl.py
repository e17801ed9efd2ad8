"""verl's own trainer: a filter in place of its test for equal rewards, through its custom sampler.

    trainer.v1.sampler.custom_sampler.path=pkg://repro.plugins.verl
    trainer.v1.sampler.custom_sampler.name=FilteredGroups
    '+trainer.v1.sampler.sampler_kwargs={filter: {pass_rate: {low: 0.1}}, train_batch_size: 128}'
    data.gen_batch_size=1

`FilteredGroupsAsync` goes with the asynchronous modes. Samplers, which also spare the passes over what they leave
out, need `python -m repro.verl`. Signatures: verl 0.9.1, verl/trainer/ppo/v1/replay_buffer.py and trainer_base.py
`_build_replay_buffer`.
"""

from collections import Counter
from typing import Any

import numpy as np
import transfer_queue as tq
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from repro.plugins import NotForHosts, kept


class _Filtered:
    """Groups that the filter drops are evicted and replaced as by algorithm.filter_groups, which stays off."""

    def __init__(self, *, sampler_kwargs: Any, **given: Any):
        own = OmegaConf.to_container(OmegaConf.create(sampler_kwargs), resolve=True)
        if len(own.get("filter") or {}) != 1 or "train_batch_size" not in own:
            raise NotForHosts("sampler_kwargs: give {filter: {NAME: {PARAMETER: VALUE}}, train_batch_size: PROMPTS}")
        ((self.filter, parameters),) = own["filter"].items()
        self.parameters = parameters or {}
        more = {"filter_groups_metric": "reward", "train_batch_size": own["train_batch_size"], "gen_batch_size": 1}
        super().__init__(sampler_kwargs=sampler_kwargs, **more, **given)

    def _dapo_filtered_keys(self, partition_id: str) -> tuple[set[str], Counter]:
        """The finished groups that the filter drops, and how often each mean reward is among them. Judged once."""
        if partition_id == "val":
            return set(), Counter()
        finished, known = self.finished_keys[partition_id], self._dapo_classification_cache[partition_id]
        for uid in known.keys() - finished:
            del known[uid]
        keys = [key for key in self.partitions[partition_id] if key.split("_")[0] in finished - known.keys()]
        if keys:
            scores = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["rm_scores"])["rm_scores"]
            rewards_N = np.array([float(score.sum()) for score in scores])
            uid_N = np.array([key.split("_")[0] for key in keys])
            for uid, keep in zip(np.unique(uid_N), kept(self.filter, rewards_N, uid_N, **self.parameters), strict=True):
                known[str(uid)] = None if keep else float(rewards_N[uid_N == uid].mean())
        dropped = {uid: reward for uid, reward in known.items() if reward is not None}
        return set(dropped), Counter(dropped.values())


class FilteredGroups(_Filtered, ReplayBuffer):
    """For trainer_mode sync."""


class FilteredGroupsAsync(_Filtered, ReplayBufferAsync):
    """For colocate_async and separate_async."""
