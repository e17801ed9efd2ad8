"""The claims of *D³S* about the dynamics of training: usefulness, KL divergence, entropy, gradient norm (Fig. 1, 2, 4).

`early` and `late` are the first and the last quarter of training. The paper's KL has a coefficient in the loss; ours is
what settings say (0 by default), and only measured.
"""

from repro.experiments.claims.claim import Claim
from repro.experiments.claims.d3s import claim
from repro.experiments.claims.measures import difference, level, ratio
from repro.experiments.claims.per_seed import change_over, jitter, mean_over
from repro.experiments.claims.verdicts import Expectation

USEFULNESS = mean_over("usefulness")
EARLY_KL, LATE_KL = mean_over("kl", 0.0, 0.25), mean_over("kl", 0.75, 1.0)
ENTROPY = mean_over("entropy")
SIMILAR = 1.25  # KL divergences within this factor count as similar
PARTS = (("d1s", "D¹S"), ("d1s-c", "D¹S-C"), ("d2s", "D²S"))

USEFUL = [
    claim(
        "usefulness-d1s",
        "§4.5, Fig. 2a",
        "D¹S leaves the sample usefulness rate where GRPO has it, about 70% (here: within 5 points).",
        Expectation("equal", margin=5.0),
        difference(USEFULNESS, "d1s", "grpo"),
    ),
    *(
        claim(
            f"usefulness-{name}",
            "§4.5, Fig. 2a",
            f"{title} selects across groups and so raises the sample usefulness rate from about 70% to nearly 100%.",
            Expectation("higher", 30.0),
            difference(USEFULNESS, name, "grpo"),
        )
        for name, title in PARTS[1:]
    ),
    *(
        claim(
            f"usefulness-full-{name}",
            "§4.5, Fig. 2a",
            f"{title}'s sample usefulness rate is nearly 100% (here: within 5 points).",
            Expectation("equal", kind="level", null=100.0, margin=5.0),
            level(USEFULNESS, name, 100.0),
        )
        for name, title in PARTS[1:]
    ),
    claim(
        "usefulness-falls",
        "§4.5, Fig. 2a",
        "D³S's sample usefulness rate falls from 100% to 70% (here: last tenth of training less the first).",
        Expectation("lower", -30.0),
        level(change_over("usefulness", 0.1), "d3s", 100.0),
    ),
]

DIVERGENCE = [
    *(
        claim(
            f"kl-early-{name}",
            "§4.5, Fig. 2b",
            f"{title} moves away from the base policy faster than GRPO early on.",
            Expectation("higher", None, "ratio"),
            ratio(EARLY_KL, name, "grpo"),
        )
        for name, title in PARTS
    ),
    *(
        claim(
            f"kl-late-{name}",
            "§4.5, Fig. 2b",
            f"{title}'s KL divergence ends near GRPO's (here: within a quarter).",
            Expectation("equal", kind="ratio", margin=SIMILAR),
            ratio(LATE_KL, name, "grpo"),
        )
        for name, title in PARTS
    ),
    claim(
        "kl-late-d3s",
        "§4.5, Fig. 2b",
        "D³S stays nearer to the base policy than the other methods (here: than the mean of GRPO, D¹S, D¹S-C and D²S).",
        Expectation("lower", None, "ratio"),
        ratio(LATE_KL, "d3s", ("grpo", *(name for name, _ in PARTS))),
    ),
]

ENTROPIES: list[Claim] = [
    claim(
        f"{name}-{base}",
        "§4.6, Fig. 4",
        f"{what} than {base.upper()}.",
        Expectation("lower", None, "ratio"),
        ratio(statistic, arm, base),
        "models trained on mathematics",
    )
    for arm, base in (("d3s", "grpo"), ("d3s-gspo", "gspo"))
    for name, what, statistic in (
        ("entropy", "D³S keeps the policy's entropy lower", ENTROPY),
        ("entropy-jitter", "D³S keeps the policy's entropy steadier from step to step", jitter("entropy")),
    )
]

GRADIENTS = [
    claim(
        "gradient-norm",
        "§1, Fig. 1b",
        "D³S makes gradients larger than GRPO's (here: mean norm over training; D³S's loss is a mean over tokens, "
        "GRPO's over sequences).",
        Expectation("higher", None, "ratio"),
        ratio(mean_over("gradient_norm"), "d3s", "grpo"),
    ),
    claim(
        "gradient-variance",
        "§2.2",
        "Selecting by advantage variance (D¹S) has a higher bound on the gradient than selecting by reward variance "
        "(PODS), and so the potential of larger ones (here: mean norms).",
        Expectation("higher", None, "ratio"),
        ratio(mean_over("gradient_norm"), "d1s", "pods"),
    ),
]

CLAIMS = [*USEFUL, *DIVERGENCE, *ENTROPIES, *GRADIENTS]
