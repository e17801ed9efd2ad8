"""An arm with `profile.again`: during training, every query is profiled again and a new plan made, as in the embedded
engine. The samples are drawn like those of verl's evaluation, before the first rollouts of a step."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.trainer.ppo.utils import create_rl_dataset
from verl.utils.dataset.rl_dataset import collate_fn
from verl.utils.debug import marked_timer

from repro.engine.train import stream_seed
from repro.errors import Refused
from repro.files import write_parquet
from repro.methods.plans import Queries
from repro.verl.data import SIZE, QueryInfo, plan_table, planned_groups, query_name, with_samples
from repro.verl.planned import PlannedTrainer


class ReplannedTrainer(PlannedTrainer):
    """`profile_infos`: the reward manager's output for the samples of a profile that is being measured; else None."""

    def __init__(self, config: Any):
        super().__init__(config)
        total, again = self.run.settings.steps_of(self.run.arm), self.run.method.profile_again
        # The same steps as in the embedded engine (repro.engine.train.Trainer).
        self.profile_steps = {round(part * total / (again + 1)) for part in range(1, again + 1)} - {0, total}
        self.profile_infos: dict[str, list[Any]] | None = None
        self.plan_file: Path | None = None  # None: data.train_files

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        if self.run.queries is not None:
            self.pool = self._dataset(self.run.queries)
            self.queries = QueryInfo.by_index(self.pool.dataframe)  # later plans may have other queries than the first

    def _dataset(self, path: Path) -> Any:
        return create_rl_dataset([str(path)], self.config.data, self.tokenizer, self.processor)

    def prepare_step(self) -> dict[str, Any]:
        step = self.global_steps - 1
        if step in self.profile_steps:
            with marked_timer("profile", self.timing_raw):
                known, tokens_Q_K = self._profile()
            self.record.ledger.charge_profile(self.record.flops, known.prompt_tokens_Q, tokens_Q_K)
            self._make_plan(step, known)
        return super().prepare_step()

    def _profile(self) -> tuple[Queries, np.ndarray]:
        """(the new profile for the plan, tokens_Q_K of the responses, 0 for one that failed)."""
        samples, rows = self.run.profile.samples, self.pool.dataframe
        pairs = zip(rows["data_source"], rows["extra_info"], strict=True)
        places = {query_name(source, extra): place for place, (source, extra) in enumerate(pairs)}
        batch = self.config.data.val_batch_size or len(self.pool)
        loader = StatefulDataLoader(self.pool, batch_size=batch, collate_fn=collate_fn)
        evaluated, self.profile_infos = self.val_dataloader, {}
        self.val_dataloader = with_samples(loader, samples)
        try:
            super()._validate()
            table = pd.DataFrame({name: self.profile_infos[name] for name in ("query", "acc", "response_tokens")})
        finally:
            self.val_dataloader, self.profile_infos = evaluated, None
        table["place"] = table["query"].map(places)
        tokens_Q_K = np.zeros((len(places), samples), int)
        for place, tokens in table.groupby("place")["response_tokens"]:
            tokens_Q_K[place, : len(tokens)] = tokens
        counts = table.groupby("place")["acc"].agg(["sum", "count"]).reindex(range(len(places)), fill_value=0)
        if (lost := counts["count"] == 0).any():
            raise Refused(f"profile: every sample of query {lost.idxmax()} failed on verl; see its log")
        successes_Q, samples_Q = (counts[name].to_numpy().astype(int) for name in ("sum", "count"))
        return Queries(self.run.profile.prompt_tokens_Q, successes_Q, samples_Q), tokens_Q_K

    def _make_plan(self, step: int, known: Queries) -> None:
        run, engine = self.run, self.run.settings.engine_of(self.run.arm)
        rng = np.random.default_rng(stream_seed(run.seed, step, "plan"))
        plan = run.method.made_plan(step, known, run.rollouts_per_step, rng)
        left = run.settings.steps_of(run.arm) - step
        rounds = engine.refill_rounds if run.method.filter is not None else 1
        rows = pd.read_parquet(run.queries).to_dict("records")
        path = Path(self.config.trainer.default_local_dir) / f"plan-{step}.parquet"
        write_parquet(plan_table(rows, planned_groups(plan, left, run.rollouts_per_step, rounds)), path)
        self.train_dataloader.next_iter_state = None  # in a resumed run: a position in the old plan
        self._follow(path)

    def _follow(self, path: Path) -> None:
        """Switch to the plan at `path`, from its start unless the data loader restores another position."""
        self.plan_file, self.cursor = path, 0
        self.train_dataset.dataframe = self._dataset(path).dataframe
        self.train_dataloader_it = None
        self.sizes_G = list(self.train_dataset.dataframe[SIZE])
