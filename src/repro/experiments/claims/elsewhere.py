"""Claims of both papers that need another model, another benchmark or other data than ours, and why."""

from repro.experiments.claims.claim import COST_AWARE_LEARNING, D3S, Claim
from repro.experiments.claims.cost_aware_learning import SMALL
from repro.experiments.claims.d3s import UNALIGNED

ONE_SET = "needs a second benchmark of the same runs; ours have one held-out set"
LLAMA = "needs a general model that was never trained on the task; ours is pre-trained on it"

# (id, place, statement, setting, reason)
_COST_AWARE_LEARNING = (
    (
        "cal-amc",
        "§5.4, Fig. 12",
        "On AMC cost-aware sampling needs 34% fewer tokens and peaks 7 points higher; smoothed with ZVF 5% and 3.",
        SMALL,
        ONE_SET,
    ),
    (
        "cal-easy-benchmarks",
        "Table 1",
        "MATH500 and GSM8K hardly move (+0.0 and −0.2 points); the gains are on AIME and AMC.",
        SMALL,
        "needs benchmarks that are easier than the training set",
    ),
    (
        "cal-4b-aime",
        "§5.4, Fig. 13",
        "Cost-aware sampling is at its peak with 35% fewer tokens than no sampling needs to come within 1% of it.",
        "Qwen3-4B",
        "needs a 4B model and AIME",
    ),
    (
        "cal-4b-amc",
        "§5.4, Fig. 14",
        "On AMC cost-aware sampling peaks 2 points higher and needs about 24% fewer tokens to the peak.",
        "Qwen3-4B",
        "needs a 4B model and AMC",
    ),
    (
        "cal-8b-tokens",
        "§5.4, Fig. 1 and 17",
        "Cost-aware sampling reaches the baseline's peak with fewer tokens, fewer even than the baseline needs to a "
        "share of that peak.",
        "Qwen3-8B",
        "needs an 8B model; the numbers are missing in our copy",
    ),
    (
        "cal-8b-smoothed",
        "§5.4, Fig. 16, Table 7",
        "Smoothed variants improve on no sampling (58.5 and 58.3 on AIME, against 58.3); without smoothing it is best "
        "(+0.3 points on average, smoothed +0.0).",
        "Qwen3-8B",
        "needs an 8B model",
    ),
    (
        "cal-scales",
        "§5.4",
        "The savings and the quality of |A| as a proxy hold from 1.5B to 8B.",
        "1.5B, 4B and 8B models",
        "needs models of several sizes",
    ),
)
_D3S = (
    (
        "d3s-usefulness-level",
        "§4.5, Fig. 2a",
        "The sample usefulness rate of GRPO and of D¹S is about 70%.",
        "Qwen2.5-Math-7B, DeepScaleR data",
        "a property of the queries and of the policy; the differences between methods are tested",
    ),
    (
        "d3s-larger-models",
        "§4.4, Table 3",
        "Speed-up and gain are greater for larger models (2.04× at 7B, 1.57× at 1.5B).",
        "Qwen2.5-Math-7B and -1.5B",
        "needs models of several sizes",
    ),
    (
        "d3s-unaligned",
        "App. D.1, Table 6",
        "On a general model, selection within groups (D¹S 23.5, D³S-I 24.0 in pass@1) beats selection across groups "
        "(D¹S-C 20.7; by the text D³S too, which has 23.8).",
        UNALIGNED,
        LLAMA,
    ),
    (
        "d3s-unaligned-dynamics",
        "App. D.1, Fig. 5",
        "On a general model D³S makes gradients unsteady and the KL divergence rise sharply; D³S-I does neither.",
        UNALIGNED,
        LLAMA,
    ),
    (
        "d3s-unaligned-entropy",
        "§4.6, Fig. 4c",
        "On a general model D³S raises the entropy instead of lowering it.",
        UNALIGNED,
        LLAMA,
    ),
    (
        "d3s-alignment",
        "App. D.1, Table 6",
        "The better a model is aligned with the task, the less selection within and across groups differ (D¹S less "
        "D¹S-C: 2.8 and 2.0 points of pass@1).",
        "Llama3.1-8B-Instruct and OpenMath2-Llama3.1-8B",
        "needs the same model before and after training on the task",
    ),
)

CLAIMS = [
    Claim(name, paper, place, statement, setting, reason=reason)
    for paper, rows in ((COST_AWARE_LEARNING, _COST_AWARE_LEARNING), (D3S, _D3S))
    for name, place, statement, setting, reason in rows
]
