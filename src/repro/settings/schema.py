"""The sections of params.yaml."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from repro.errors import brief
from repro.settings import shown
from repro.settings.arm import Arm, OwnArm
from repro.settings.errors import SettingsError, nearest
from repro.settings.fields import (
    ArmNames,
    Count,
    CountFrom0,
    Distinct,
    GroupSize,
    LearningRate,
    Name,
    NonNegative,
    Positive,
    Processes,
    Section,
    Seed,
    Seeds,
    Share,
    Source,
    Temperature,
)
from repro.settings.studies import Drift, Fidelity, Mix, Parity, Predictor, Profile
from repro.settings.theory import Theory

# The options of each data set, `min_` and `max_` of these: their defaults, and the largest that we accept.
_SUMS = {"terms": ((2, 6), 100), "digits": ((1, 4), 15)}
_PRODUCTS = {"terms": ((2, 2), 100), "digits": ((1, 5), 15)}
_DIVISORS = {"numbers": ((2, 2), 100), "value": ((1, 1000), 10**12)}
WORDED = {name: {"steps": ((2, 2), 8)} for name in ("stories", "lists")}  # in words, for language models
OPTIONS = {"chain_sum": _SUMS, "products": _PRODUCTS, "gcd": _DIVISORS, **WORDED}


def _unset(value: Any) -> bool:
    """Whether a setting that has joined is as if it had not: it is then left out of what distinguishes runs, and
    those made before keep their keys."""
    return not value


class Family(Section):
    """One kind of query: a data set, of reasoning-gym or in words, with its options."""

    dataset: Literal["chain_sum", "products", "gcd", "stories", "lists"]  # that repro.tasks can demonstrate
    share: Share
    emphasis: Annotated[float, Field(gt=0, le=1000)] = 1.0
    options: dict[str, int] = Field(default_factory=dict)

    @model_validator(mode="after")
    def options_are_those_of_the_data_set(self):
        known = [f"{end}_{name}" for name in OPTIONS[self.dataset] for end in ("min", "max")]
        for name in self.options:
            if name not in known:
                raise ValueError(f"{self.dataset} has no option {brief(name)}{nearest(name, known)}")
        for name, (_, most) in OPTIONS[self.dataset].items():
            low, high = self.range_of(name)
            if not 1 <= low <= high <= most:
                raise ValueError(f"min_{name} {low}, max_{name} {high}: they need 1 ≤ min_{name} ≤ max_{name} ≤ {most}")
        return self

    def range_of(self, name: str) -> tuple[int, int]:
        """The least and the largest of what an option limits."""
        (low, high), _ = OPTIONS[self.dataset][name]
        return self.options.get(f"min_{name}", low), self.options.get(f"max_{name}", high)

    @property
    def longest_prompt(self) -> int:
        """Symbols of the longest prompt that is not in words, at most; as repro.tasks writes them."""
        if self.dataset == "gcd":
            numbers, digits = self.range_of("numbers")[1], len(str(self.range_of("value")[1]))
        else:
            numbers, digits = self.range_of("terms")[1], self.range_of("digits")[1]
        return 1 + numbers * (digits + 1)


class Harder(Section):
    """A second held-out split: `queries` of families that are never trained on. `shown`: their share of the queries of
    pre-training, whose demonstrations they are in, so that a base policy can do them at all."""

    queries: Count
    shown: Share = 0.0
    families: dict[Name, Family]


class Task(Section):
    seed: Seed
    train_queries: Count
    evaluation_queries: Count
    pretraining_queries: Count
    families: dict[Name, Family]
    harder: Harder | None = Field(default=None, exclude_if=_unset)

    @model_validator(mode="after")
    def shares_sum_to_one(self):
        pools = {"families": self.families} | ({"harder.families": self.harder.families} if self.harder else {})
        for name, families in pools.items():
            total = sum(family.share for family in families.values())
            if abs(total - 1.0) > 1e-9:
                raise ValueError(f"the shares of task.{name} sum to {total:.6g}; make them sum to 1")
        if self.harder and (both := [name for name in self.harder.families if name in self.families]):
            raise ValueError(f"task.harder.families.{both[0]} is trained on too; the harder split is of others")
        return self


class Demonstrations(Section):
    """Shares of direct answers and of wordy steps (the rest: plain steps), and the error probabilities: of slips, and
    of each wrong procedure where it applies (`bugs`), of which there is none in the first share `clean` of
    pre-training. `again`: wordy steps of sums are turned round, too."""

    direct: Share
    wordy: Share
    slip_per_step: Share
    slip_direct: Share
    bugs: dict[Literal["carry", "borrow", "sign", "stop", "double", "front", "ends"], Share] = Field(
        default_factory=dict, exclude_if=_unset
    )
    clean: Share = Field(default=0.0, exclude_if=_unset)
    again: bool = Field(default=True, exclude_if=bool)

    @model_validator(mode="after")
    def shares_fit(self):
        if self.direct + self.wordy > 1:
            raise ValueError(f"direct {self.direct} + wordy {self.wordy} exceed 1; the rest are plain steps")
        return self


class Policy(Section):
    """The base policy: architecture and pre-training (unused when `source` names a model). `shipped`: the weights in
    git are used where these settings made them, and nothing is pre-trained. `rank`: the model that `source` names is
    tuned on demonstrations, by adapters of this rank, and its vocabulary is cut to what is written there."""

    source: Source | None
    rank: Count | None = Field(default=None, exclude_if=_unset)
    shipped: bool = True
    hidden: Count
    layers: Count
    heads: Count
    key_value_heads: Count
    max_length: Count
    seed: Seed
    threads: Processes
    steps: Count
    batch: Count
    learning_rate: LearningRate
    demonstrations: Demonstrations
    describe_groups: Count
    group_size: GroupSize

    @model_validator(mode="after")
    def heads_divide(self):
        if self.hidden % self.heads:
            raise ValueError(f"policy.hidden {self.hidden} is not a multiple of policy.heads {self.heads}")
        if self.heads % self.key_value_heads:
            raise ValueError(
                f"policy.heads {self.heads} is not a multiple of policy.key_value_heads {self.key_value_heads}"
            )
        if self.hidden // self.heads % 2:
            raise ValueError(
                f"policy.hidden {self.hidden} over policy.heads {self.heads} is odd, and rotary positions come in "
                "pairs; change one of them"
            )
        return self


class Adapter(Section):
    """What trains in place of all weights: W + 2·B·A, A and B of this `rank`, in the `layers` nearest to the output.
    The layers below stay as they are, so what they give to the upper ones is kept while decoding."""

    rank: Count
    layers: Count


SCHEDULING = frozenset({"workers", "checkpoint_every"})  # fields of the engine that no number depends on


class Engine(Section):
    """One training run; the same for every arm, unless its entry `engine` says otherwise. `stop_gflops`: the run ends
    when it has paid this many, however few or many its steps, and its schedules go by the share that is paid."""

    device: Literal["cpu", "cuda"]
    dtype: Literal["float32", "bfloat16"]
    steps: Count
    rollouts_per_step: Count
    minibatch: Count
    refill_rounds: Count
    slice_tokens: Count
    max_new_tokens: Count
    temperature: Temperature
    learning_rate: LearningRate
    weight_decay: NonNegative
    gradient_clip: Positive
    kl: NonNegative
    kl_probe: CountFrom0
    workers: Processes
    checkpoint_every: Count
    log_every: Count
    kept_rollouts: CountFrom0
    stop_gflops: Positive | None = None
    adapter: Adapter | None = Field(default=None, exclude_if=_unset)


def weight_at(price: float, generation: float, rest: float) -> float:
    """What a FLOP of generation costs, in other FLOPs: w with w·G / (w·G + R) = price for one who spends G FLOPs on
    generation and R on the rest.

    >>> weight_at(0.75, 2.0, 6.0)
    9.0
    """
    return price / (1 - price) * rest / generation


class Evaluation(Section):
    """Held-out accuracy at `budgets` equal shares of `budget_gflops`, the baseline's total cost. None: no budget is
    known, as at the papers' scale, and runs are evaluated every `engine.log_every` steps (on verl always).

    `price`: the share of the baseline's bill that generation has, of which `generation_gflops` are known of the
    `budget_gflops`; a run pays for generation by that `weight`, and stops, and goes through its schedules, by what it
    has paid. None: a FLOP is a FLOP. `greedy`: the most likely response counts too. `common`: on the way, draws are
    stratified and shared by all runs (repro.engine.draws), so that differences have less error; those of the last
    evaluation are independent, as pass@k needs, and shared by arms with a seed."""

    budgets: Count
    budget_gflops: Positive | None
    samples: Count
    final_samples: Count
    batch_rollouts: Count
    temperature: Temperature
    generation_gflops: Positive | None = Field(default=None, exclude_if=_unset)
    price: Annotated[float, Field(gt=0, lt=1)] | None = Field(default=None, exclude_if=_unset)
    greedy: bool = Field(default=False, exclude_if=_unset)
    common: bool = Field(default=False, exclude_if=_unset)

    @model_validator(mode="after")
    def bill_is_known(self):
        if self.generation_gflops and self.generation_gflops >= (self.budget_gflops or 0.0):
            raise ValueError(
                f"generation_gflops {self.generation_gflops} are a part of budget_gflops, and not less than them"
            )
        if self.price and not self.generation_gflops:
            raise ValueError(f"price {self.price} needs generation_gflops, the baseline's")
        return self

    @property
    def weight(self) -> float:
        """That of a FLOP of generation where it has its `price` in the baseline's bill."""
        if self.price is None:
            return 1.0
        return weight_at(self.price, self.generation_gflops, self.budget_gflops - self.generation_gflops)

    @property
    def bill_gflops(self) -> float | None:
        """What the baseline pays in all: `budget_gflops` with generation at its weight."""
        if self.price is None:
            return self.budget_gflops
        return (self.budget_gflops - self.generation_gflops) / (1 - self.price)


# Of the section `evaluation` on verl: no bill is known, and responses are drawn independently and never greedily.
ON_VERL = {"budget_gflops": None, "generation_gflops": None, "price": None, "greedy": False, "common": False}


def _whole_percent(level: float) -> float:
    if level != round(level, 2):
        raise ValueError(f"{level} is no whole percent; write it with two decimals, as 0.95")
    return level


Level = Annotated[float, Field(gt=0, le=1), AfterValidator(_whole_percent)]


class Statistics(Section):
    """`levels`: fractions of the baseline's rise from start to peak at which costs are compared, in whole percents,
    which name the columns. `confidence`: of all intervals. `resamples`: number of resamples wherever some are drawn;
    `seed`: theirs."""

    levels: Annotated[list[Level], Distinct, Field(min_length=1)]
    resamples: Annotated[int, Field(ge=100, le=10**6)]
    confidence: Annotated[float, Field(gt=0, lt=1)]
    seed: Seed


class Settings(Section):
    """All settings, with the scale merged in. `arms`: those that the pipeline trains. `primaries`: of them, the methods
    that stand for the others on the front page. `more_arms`: those that are compared too where the store has their
    runs, and not trained. `mixes`: of queries, one of which can replace the shares of `task.families` (`with_mix`)."""

    scale: Name
    seeds: Seeds
    baseline: str
    primaries: ArmNames
    arms: Annotated[dict[Name, Arm], Field(min_length=1)]
    more_arms: dict[Name, Arm] = Field(default_factory=dict)
    task: Task
    policy: Policy
    engine: Engine
    evaluation: Evaluation
    theory: Theory
    statistics: Statistics
    profile: Profile
    drift: Drift
    fidelity: Fidelity
    predictor: Predictor
    mixes: dict[Name, Mix] = Field(default_factory=dict)
    parity: Parity

    def __repr__(self) -> str:
        return "\n".join(shown.lines(self))

    def _repr_html_(self) -> str:
        return shown.html(self)

    @model_validator(mode="after")
    def consistent(self):
        named = {"baseline": [self.baseline], "fidelity.arms": self.fidelity.arms}
        named |= {"drift.arms": self.drift.arms, "primaries": self.primaries, "parity.arms": self.parity.arms}
        for where, names in named.items():
            for name in names:
                if name in self.more_arms:
                    raise ValueError(
                        f"{where}: {brief(name)} is not trained here; move its entry from more_arms to arms"
                    )
                if name not in self.arms:
                    raise ValueError(f"{where}: there is no arm {brief(name)}{nearest(name, self.arms)}")
        if self.arms[self.baseline].seeds:
            raise ValueError(f"baseline: {self.baseline!r} has `seeds`, so other arms cannot be paired with it")
        for mix, entry in self.mixes.items():
            for family in entry.shares:
                if family not in self.task.families:
                    known = nearest(family, self.task.families)
                    raise ValueError(f"mixes.{mix}.shares: there is no family {brief(family)}{known}")
        for name, arm in self.all_arms.items():
            if arm.profile and arm.profile.samples > self.profile.samples:
                raise ValueError(
                    f"{self.place_of(name)}.profile.samples {arm.profile.samples} exceeds profile.samples "
                    f"{self.profile.samples}, of which the arm uses the first; raise the latter"
                )
        for name in self.all_arms:
            engine = self.engine_of(name)
            if engine.rollouts_per_step % engine.minibatch:
                raise ValueError(
                    f"{self.place_of(name)}.engine: {engine.rollouts_per_step} rollouts a step are no multiple of its "
                    f"minibatch {engine.minibatch}"
                )
        if self.parity.steps < self.engine.log_every:
            raise ValueError("parity.steps must reach engine.log_every, or there is nothing to compare")
        return self

    @model_validator(mode="after")
    def words_tell_apart(self):
        both = sorted(set(self.arms) & set(self.more_arms))
        if both:
            raise ValueError(f"more_arms.{both[0]} is in arms too; keep one of the two entries")
        for where, entries in (("arms", self.all_arms), ("mixes", self.mixes)):
            of: dict[str, str] = {}
            for name, entry in entries.items():
                if (other := of.setdefault(entry.title, name)) != name:
                    raise ValueError(f"{where}.{name}.title {entry.title!r} is that of {other} too; change one")
        return self

    @model_validator(mode="after")
    def sizes_fit(self):
        families = [*self.task.families.values(), *(self.task.harder.families.values() if self.task.harder else ())]
        if self.policy.source is not None:
            return self
        if worded := [family.dataset for family in families if family.dataset in WORDED]:
            raise ValueError(f"the policy made here has no letters for {worded[0]}: name another as policy.source")
        longest = max(family.longest_prompt for family in families) + 1  # and the start of text
        if longest + self.engine.max_new_tokens > self.policy.max_length:
            raise ValueError(
                f"policy.max_length {self.policy.max_length} must exceed engine.max_new_tokens "
                f"{self.engine.max_new_tokens} by the length of the longest prompt, {longest}"
            )
        return self

    @property
    def all_arms(self) -> dict[str, Arm]:
        """Those trained here, then those whose runs are only read."""
        return {**self.arms, **{name: arm for name, arm in self.more_arms.items() if name not in self.arms}}

    @property
    def compared_arms(self) -> list[str]:
        """The arms that are compared: those with the common seeds, so that they can be paired."""
        return [name for name in self.all_arms if self.arm(name).seeds is None]

    def place_of(self, name: str) -> str:
        """Where params.yaml has the arm, for errors of the file."""
        return f"arms.{name}" if name in self.arms else f"more_arms.{name}"

    def where(self, name: str) -> str:
        """What defines the arm, for other errors: params.yaml, or a cell."""
        return self.arm(name).defined(name).replace(f" arms.{name}", f" {self.place_of(name)}")

    def titles_of(self, names: Iterable[str]) -> dict[str, str]:
        """{arm: its title}; its name where a run's arm is no longer in params.yaml."""
        return {name: self.arm(name).title if name in self.all_arms else name for name in names}

    def seeds_of(self, name: str) -> list[int]:
        """The seeds an arm is trained with."""
        return self.arm(name).seeds or self.seeds

    @property
    def profiled_seeds(self) -> list[int]:
        """The seeds with a profile in the study: two at least, since each is judged by the samples of the others."""
        return self.seeds if len(self.seeds) > 1 else [*self.seeds, self.seeds[0] + 1]

    def steps_of(self, name: str) -> int:
        """The number of training steps of an arm."""
        return self.engine_of(name).steps

    def engine_of(self, name: str) -> Engine:
        """The engine's settings for an arm: section `engine` with what the arm sets itself."""
        return self.engine.model_copy(update=self.arm(name).engine.given)

    def snapshots_of(self, name: str) -> list[int]:
        """The steps after which an arm's weights are saved."""
        wanted = {
            step
            for study in (self.fidelity, self.drift)
            if name in study.arms
            for step in range(study.snapshot_every, self.steps_of(name) + 1, study.snapshot_every)
        }
        return sorted(wanted)

    def with_mix(self, name: str) -> "Settings":
        """These settings with the shares of one of `mixes` in place of those of `task.families`."""
        if not isinstance(name, str) or name not in self.mixes:
            raise SettingsError(f"there is no mix {brief(name)} under mixes{nearest(name, self.mixes)}")
        shares = self.mixes[name].shares
        families = {
            family: entry.model_copy(update={"share": shares[family]})
            for family, entry in self.task.families.items()
            if shares.get(family)
        }
        task = self.task.model_copy(update={"families": families})
        fidelity, drift = (study.model_copy(update={"arms": []}) for study in (self.fidelity, self.drift))
        return self.model_copy(update={"task": task, "fidelity": fidelity, "drift": drift})  # no snapshots here

    def with_arms(self, arms: Mapping[str, str | Mapping[str, Any] | Arm]) -> "Settings":
        """These settings with other arms: {name: an arm of params.yaml by its name, or its parts}. A part is a name
        or a function, as in `{"grpo": "grpo", "mine": {"samplers": [my_sampler]}}`; missing parts are the defaults.

        The baseline stays if it is among them, otherwise the first arm replaces it. SettingsError if one is wrong.
        """
        chosen = {}
        for name, parts in arms.items():
            if isinstance(parts, Mapping):
                try:
                    parts = OwnArm.model_validate({"title": name, "about": "", "group": "Own", **parts})
                except ValidationError as error:
                    first = error.errors()[0]
                    raise SettingsError(
                        f"arm {name}: {'.'.join(map(str, first['loc']))}: {first['msg']}".replace("\n", " ")
                    ) from None
            chosen[name] = self.arm(parts) if isinstance(parts, str) else parts
        if not chosen:
            raise SettingsError("with_arms: no arm was given; name at least one")
        baseline = self.baseline if self.baseline in chosen else next(iter(chosen))
        return self.model_copy(update={"arms": chosen, "more_arms": {}, "baseline": baseline})

    def arm(self, name: str) -> Arm:
        """The arm of that name; SettingsError with the nearest name if there is none."""
        if not isinstance(name, str) or (name not in self.arms and name not in self.more_arms):
            raise SettingsError(f"there is no arm {brief(name)} in params.yaml{nearest(name, self.all_arms)}")
        return self.arms[name] if name in self.arms else self.more_arms[name]
