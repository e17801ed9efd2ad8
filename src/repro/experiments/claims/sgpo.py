"""The claims of *sGPO* (arXiv 2606.08854) about training with rollouts, and what its referee asked to be measured.

We have the abstract and a referee's report, no method section, no table and no figure: which models, which data, which
group sizes and which K is not known, and the only size is the factor of three. How each part of the method is read here
is written down in repro.methods.plans.sgpo. Total compute is the ledger's FLOPs, or tokens generated and trained on;
both hold what profiling cost. A claim that a part of the method serves it is held against sGPO without that part, and
the part alone against the baseline. Thresholds where the abstract says `small` or `stable` are ours, and stand in the
claim.
"""

from repro.experiments.claims.claim import SGPO, Claim
from repro.experiments.claims.measures import Measure, cost, difference, level, theory
from repro.experiments.claims.per_seed import BEST, FINAL, Statistic, mean_over
from repro.experiments.claims.verdicts import Expectation

UNNAMED = "models and data not named in the abstract"
TOTAL = ("generated_tokens", "trained_tokens")
POINT = 1.0  # points of accuracy within which two arms are called equal
FEW = 5.0  # of a hundred queries; so many more than resampling alone gives count as none
SMALL = 0.1  # share of all FLOPs up to which profiling is called small
STRONG = 0.5  # rank correlation above which a proxy is called good, as for the other papers' proxy
SAVING = 1 / 3  # of the baseline's total compute
NEAR = 0.9  # share of the baseline's rise
RIGHT = 0.95  # share of the best value from which on the theory notebook calls a group size right


def _claim(name: str, place: str, statement: str, expected: Expectation, measure: Measure) -> Claim:
    return Claim(f"sgpo-{name}", SGPO, place, statement, UNNAMED, expected, measure)


def _last(column: str) -> Statistic:
    """Of the drift of the profile, at the last checkpoint."""
    return Statistic(
        "drift", ("step", column), lambda rows: rows[rows["step"] == rows["step"].max()].set_index("seed")[column]
    )


# Of all FLOPs of a run, those of profiling.
PROFILE_SHARE = Statistic(
    "evaluations",
    ("step", "flops", "flops_profile"),
    lambda rows: (last := rows.sort_values("step").groupby("seed").last())["flops_profile"] / last["flops"],
)

COMPUTE = [
    *(
        _claim(
            name,
            "abstract",
            f"sGPO matches the baseline at a third of its total compute, profiling included (here: {unit} to {goal}).",
            Expectation("lower", SAVING, "ratio"),
            cost("sgpo", "grpo", axis, share),
        )
        for name, unit, axis, goal, share in (
            ("flops", "FLOPs", "flops", "the peak of GRPO", 1.0),
            ("flops-near", "FLOPs", "flops", f"{NEAR:.0%} of GRPO's rise", NEAR),
            ("tokens", "tokens generated and trained on", TOTAL, "the peak of GRPO", 1.0),
            ("tokens-near", "tokens generated and trained on", TOTAL, f"{NEAR:.0%} of GRPO's rise", NEAR),
        )
    ),
    _claim(
        "training-flops",
        "abstract",
        "It trades inference FLOPs for a large reduction in training FLOPs (here: FLOPs of updates alone, to the peak "
        "of GRPO).",
        Expectation("lower", None, "ratio"),
        cost("sgpo", "grpo", "flops_train"),
    ),
    _claim(
        "profile-share",
        "abstract",
        f"The inference spent on profiling is a small budget (here: below {SMALL:.0%} of all FLOPs of the run).",
        Expectation("lower", None, "level", null=SMALL),
        level(PROFILE_SHARE, "sgpo"),
    ),
]

ACCURACY = [
    _claim(
        "final",
        "abstract",
        f"sGPO matches or exceeds the baseline (here: no more than {POINT:g} point below it at the end).",
        Expectation("not lower", margin=POINT),
        difference(FINAL, "sgpo", "grpo"),
    ),
    _claim(
        "best",
        "abstract",
        f"The same of the best checkpoint (no more than {POINT:g} point below).",
        Expectation("not lower", margin=POINT),
        difference(BEST, "sgpo", "grpo"),
    ),
    _claim(
        "equal-total",
        "abstract",
        "The profile is worth its compute: sGPO ends above GRPO that spends as much on more steps.",
        Expectation("higher"),
        difference(FINAL, "sgpo", "grpo-longer"),
    ),
]

ADVANTAGE = [
    _claim(
        f"rule-{name}",
        "abstract",
        "A group size of one over the success rate extracts the most advantage per generated rollout (here: the least "
        f"share of the best value of {what} that it attains, p from {low}; most: {RIGHT} or more).",
        Expectation("not lower", kind="level", null=RIGHT),
        theory("group_size", f"⌈1/p⌉ maximises the {text}"),
    )
    for name, what, low, text in (
        ("mean-advantage", "the mean |A| per rollout", "0.01 to 0.99", "mean absolute advantage per rollout"),
        ("informative", "groups with a signal per rollout", "0.01 to 0.99", "number of informative groups per rollout"),
        ("greatest-advantage", "the greatest A per rollout", "0.01 to ½", "greatest advantage per rollout"),
    )
]

WASTE = [
    _claim(
        "waste",
        "abstract",
        "Easy and unsolvable queries waste compute, and sGPO avoids them (here: share of groups without signal, mean "
        "over training, less GRPO's).",
        Expectation("lower"),
        difference(mean_over("groups_without_signal"), "sgpo", "grpo"),
    ),
    _claim(
        "waste-filter",
        "abstract",
        "The filter alone does that (the same of sGPO with the filter only, groups of GRPO's size).",
        Expectation("lower"),
        difference(mean_over("groups_without_signal"), "sgpo-filter", "grpo"),
    ),
]

# (name, what it is called, sGPO without it, it alone)
_PARTS = (
    ("filter", "Filtering", "sgpo-allocation-curriculum", "sgpo-filter"),
    ("allocation", "Adaptive group size", "sgpo-filter-curriculum", "sgpo-allocation"),
    ("curriculum", "The curriculum, easy to hard,", "sgpo-filter-allocation", "sgpo-curriculum"),
)
PARTS = [
    claim
    for name, what, without, alone in _PARTS
    for claim in (
        _claim(
            f"{name}-ablated",
            "abstract; our reading",
            f"{what} helps sGPO (here: final accuracy less that of sGPO without it).",
            Expectation("higher"),
            difference(FINAL, "sgpo", without),
        ),
        _claim(
            f"{name}-alone",
            "abstract; our reading",
            f"{what} helps by itself (here: final accuracy less GRPO's).",
            Expectation("higher"),
            difference(FINAL, alone, "grpo"),
        ),
        _claim(
            f"{name}-flops",
            "abstract; our reading",
            f"{what} saves compute (here: FLOPs of sGPO to the peak of sGPO without it, relative).",
            Expectation("lower", None, "ratio"),
            cost("sgpo", without, "flops"),
        ),
    )
]

STABLE = [
    claim
    for arm, title in (("sgpo", "sGPO"), ("grpo", "GRPO"))
    for claim in (
        _claim(
            f"proxy-{arm}",
            "abstract; referee's report",
            f"The first profile stays a useful proxy throughout training (here: rank correlation with a new profile at "
            f"the end of {title}, above {STRONG:g}).",
            Expectation("higher", None, "level", null=STRONG),
            level(_last("spearman"), arm),
        ),
        _claim(
            f"proxy-corrected-{arm}",
            "abstract; referee's report",
            f"The same without the noise of the samples ({title}; 1 would be an order that never changes).",
            Expectation("higher", None, "level", null=STRONG),
            level(_last("corrected"), arm),
        ),
        _claim(
            f"classes-{arm}",
            "referee's report",
            f"The fixed classes still match by the end of {title} (here: share of queries in another class, less that "
            f"by resampling alone, at most {FEW:g} points).",
            Expectation("not higher", margin=FEW),
            level(_last("class_changed_excess"), arm, 100.0),
        ),
        _claim(
            f"sizes-{arm}",
            "referee's report",
            f"The fixed group sizes still match by the end of {title} (the same of another group size).",
            Expectation("not higher", margin=FEW),
            level(_last("size_changed_excess"), arm, 100.0),
        ),
        _claim(
            f"moves-{arm}",
            "referee's report",
            f"Few queries move from low to high success by the end of {title} (here: share from below ½ to above, less "
            f"that by resampling alone, at most {FEW:g} points).",
            Expectation("not higher", margin=FEW),
            level(_last("rose_excess"), arm, 100.0),
        ),
    )
]

AGAIN = [
    claim
    for arm, what in (("sgpo-again-1", "once"), ("sgpo-again-3", "three times"))
    for claim in (
        _claim(
            f"{arm.removeprefix('sgpo-')}-final",
            "authors' reply to the referee",
            f"One profile suffices (here: profiling again {what} gains no more than {POINT:g} point in as many steps).",
            Expectation("not higher", margin=POINT),
            difference(FINAL, arm, "sgpo"),
        ),
        _claim(
            f"{arm.removeprefix('sgpo-')}-flops",
            "reading of the referee",
            f"Profiling again at a few checkpoints improves efficiency (here: {what}; FLOPs to the peak of sGPO, all "
            "profiles charged).",
            Expectation("lower", None, "ratio"),
            cost(arm, "sgpo", "flops"),
        ),
    )
]

CLAIMS = [*COMPUTE, *ACCURACY, *ADVANTAGE, *WASTE, *PARTS, *STABLE, *AGAIN]
