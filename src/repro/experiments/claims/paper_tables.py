"""The tables of the two papers from which the sizes of claims are computed."""

from collections.abc import Iterable

# Cost-Aware Learning, Tables 1, 6 and 8, 1.5B model: (AIME, average of four benchmarks) of the best checkpoint. Our
# copy lacks the names of the sampled rows: read as p, then p^β, the order of §5.3, which the gains in the text confirm.
BEST_CHECKPOINT = {
    "GRPO": {"none": (61.3, 71.2), "p": (65.6, 74.0), "smoothed": (65.3, 72.9), "-LEN": (60.3, 71.0)},
    "ZVF": {"none": (58.1, 70.6), "p": (57.6, 69.8), "smoothed": (62.9, 72.5), "-LEN": (58.0, 70.3)},
    "CISPO": {"none": (57.2, 69.5), "p": (61.3, 71.7), "smoothed": (61.7, 71.6)},
}
SMOOTHED_BEST = ((65.3, 72.9), (65.6, 73.2), (65.4, 72.5))  # Table 6, GRPO, three values of β: AIME, average

# D³S, Tables 1, 2 and 6: (pass@1, pass@8), averages of seven benchmarks, as printed. Two are not the means of their
# rows: pass@1 of D3S on the 7B model in Table 1 (34.8, see TABLE_1_ROW), pass@8 of D3S-I on Llama3.1 in Table 6 (41.5).
SEVEN_BENCHMARKS = {
    "Qwen2.5-Math-7B": {
        "GRPO": (29.8, 53.1),
        "PODS": (34.1, 54.4),
        "D1S": (31.3, 54.2),
        "D1S-C": (34.1, 54.7),
        "D2S": (31.3, 54.1),
        "D3S": (34.3, 56.8),
        "GSPO": (33.2, 54.7),
        "GSPO+PODS": (33.6, 54.3),
        "GSPO+D3S": (35.8, 56.2),
    },
    "Qwen2.5-Math-1.5B": {
        "GRPO": (32.0, 50.2),
        "PODS": (32.5, 50.5),
        "D3S": (33.1, 51.8),
        "GSPO": (33.3, 51.4),
        "GSPO+PODS": (32.9, 51.4),
        "GSPO+D3S": (33.3, 51.9),
    },
    "Llama3.1-8B-Instruct": {
        "GRPO": (20.5, 32.4),
        "PODS": (20.7, 34.6),
        "D1S": (23.5, 40.6),
        "D1S-C": (20.7, 33.3),
        "D2S": (20.5, 33.0),
        "D3S": (23.8, 40.2),
        "D3S-I": (24.0, 40.2),
    },
    "OpenMath2-Llama3.1-8B": {
        "GRPO": (28.2, 40.8),
        "D1S": (31.0, 44.3),
        "D1S-C": (29.0, 41.7),
        "D2S": (28.8, 41.3),
        "D3S": (28.7, 41.3),
        "D3S-I": (30.6, 43.6),
    },
}
# D³S, Table 7: pass@16, averages of seven benchmarks.
PASS_16 = {
    "Qwen2.5-Math-7B": {"GRPO": 57.4, "PODS": 58.4, "D1S": 59.3, "D1S-C": 58.6, "D2S": 58.2, "D3S": 60.7},
    "Llama3.1-8B-Instruct": {"GRPO": 36.3, "PODS": 39.7, "D1S": 45.7, "D1S-C": 37.8, "D2S": 37.1, "D3S": 44.9},
    "OpenMath2-Llama3.1-8B": {"GRPO": 44.2, "PODS": 45.0, "D1S": 48.7, "D1S-C": 45.1, "D2S": 45.5, "D3S": 45.1},
}
# D³S, Table 1, Qwen2.5-Math-7B, GRPO + D³S, pass@1: AIME24, AIME25, AMC23, GSM8k, MATH, Minerva, Olympiad.
TABLE_1_ROW = (20.3, 7.9, 54.4, 73.4, 52.2, 25.0, 10.7)


def span(values: Iterable[float]) -> tuple[float, float]:
    """(least, most), to the one decimal of the tables."""
    rounded = [round(value, 1) for value in values]
    return min(rounded), max(rounded)


def peak_gain(setting: str, method: str, other: str = "none", base: str | None = None) -> tuple[float, float]:
    """Cost-Aware Learning: range over (AIME, average) of `method` less `other`, in points."""
    own, less = BEST_CHECKPOINT[setting][method], BEST_CHECKPOINT[base or setting][other]
    return span(a - b for a, b in zip(own, less, strict=True))


def pass_gain(method: str, other: str, k: int, model: str = "") -> tuple[float, float]:
    """D³S: range of pass@k (1, 8 or 16) of `method` less `other`, in points, over the models that the paper has both
    for, or of one model."""
    column = {1: 0, 8: 1}
    table = PASS_16 if k == 16 else SEVEN_BENCHMARKS
    rows = [row for name, row in table.items() if model in name and method in row and other in row]
    return span(row[method] - row[other] if k == 16 else row[method][column[k]] - row[other][column[k]] for row in rows)
