"""The verifier's verdict on one response, as a reward manager of verl.

The queries of `repro.tasks` are verified by their own scorer, and a truncated response gets 0, as in the embedded
engine. Any other data source uses verl's custom reward function (of data_source, solution_str, ground_truth and
extra_info, returning a number or a dict with `score`), truncated or not. A response is correct by the function's own
`acc`, or where it gives none if the score is 1. With its answer in the dict, as `pred`, verl also votes: maj@ in its
validation metrics.
"""

import inspect
import json
from functools import cached_property, partial
from typing import Any

from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from repro.evaluation.model import ends_of
from repro.tasks.queries import Query, verify
from repro.verl.data import PREDICTED, SOURCE, query_name
from repro.verl.judged import asked_of, scored


class Verdict(RewardManagerBase):
    """Returns the score and the columns of our tables: acc, truncated, response_tokens, query (repro.verl.record)."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, **_: Any):
        super().__init__(config, tokenizer, compute_score)
        self.special = set(tokenizer.all_special_ids)

    @cached_property
    def stops(self) -> list[int]:
        return ends_of(self.tokenizer)

    async def run_single(self, data: Any) -> dict[str, Any]:
        item = data[-1:][0]  # the last of several sequences is the answer
        tokens = int(item.batch["attention_mask"][-item.batch["responses"].shape[-1] :].sum())
        ids = item.batch["responses"][:tokens].tolist()
        ended = bool(ids) and ids[-1] in self.stops
        row = item.non_tensor_batch
        extra = row.get("extra_info") or {}
        if row["data_source"] == SOURCE:
            verdict = correct = self._verify(ids, ended, row, extra)
            more = {}
        else:
            text = self.tokenizer.decode(ids, skip_special_tokens=True)
            verdict, correct, more = await self._custom_score(text, row, extra)
        cut = not ended and tokens >= self.config.data.max_response_length
        info = {"acc": correct, "truncated": float(cut), "response_tokens": tokens}
        info |= {"query": query_name(row["data_source"], extra), **more}
        return {"reward_score": verdict, "reward_extra_info": info}

    def _verify(self, ids: list[int], ended: bool, row: dict[str, Any], extra: dict[str, Any]) -> float:
        if not ended or self.special.intersection(ids[:-1]):  # as in repro.engine.sample.decode
            return 0.0
        query = Query("", row["reward_model"]["ground_truth"], extra["family"], json.loads(extra["entry"]))
        return verify(self.tokenizer.decode(ids[:-1]), query)

    async def _custom_score(
        self, text: str, row: dict[str, Any], extra: dict[str, Any]
    ) -> tuple[float, float, dict[str, str]]:
        fields = {"data_source": row["data_source"], "solution_str": text, "extra_info": extra}
        call = partial(self.compute_score, **fields, ground_truth=row["reward_model"]["ground_truth"])
        blocking = not inspect.iscoroutinefunction(self.compute_score)
        with asked_of(self.compute_score, extra.get("question") or query_name(row["data_source"], extra)):
            given = await (self.loop.run_in_executor(None, call) if blocking else call())
            score, correct = scored(given)
        more = {PREDICTED: str(given[PREDICTED])} if isinstance(given, dict) and PREDICTED in given else {}
        return score, correct, more
