"""Do two sources rank arms alike, and does one predict the other?

A source is a table of differences from its baseline, differences_A_U: a row per arm (the index), a column per *unit*,
which is what another study of its kind would draw anew: base policies, each with its seeds, where it has several; else
seeds; of a published table its benchmarks. Two sources are compared on the arms that they have in common.

    ρ           Spearman's, of the arms' means over units
    interval    tanh(artanh ρ ± z √(v + s)), v = (1 + ρ²/2) / (A − 3) for arms drawn at random (Bonett and Wright, 2000,
                Psychometrika 65), which includes the noise of each arm's own runs. s is for what units do to many arms
                at once: the variance of artanh ρ when the units of either source are resampled for all arms together,
                less that when they are for each arm apart, if more than 0 (crossed resampling: Owen and Eckles, 2012,
                Annals of Applied Statistics 6)
    reliability of a source: U r / (1 + (U − 1) r), r the mean rank correlation of two units (Spearman and Brown)
    ceiling     of ρ, the root of the product of both reliabilities: that of sources that agree but for noise

How often an interval contains the ρ of infinitely many arms measured with as many units, by simulation of 1,000 pairs
of sources with 8 and 4 units and reliabilities of 0.85 and 0.6, without effects of units on many arms at once. In
parentheses a percentile bootstrap of arms and units together, which counts each run's noise twice; then the median
width of either, and the mean ceiling, which few arms put too low: 0.71 is true.

    true ρ      0                      0.5                    0.9                    width at 0.5    ceiling
    4 arms      100% (100%)            100% (100%)            99% (100%)             1.91 (2.00)     0.41
    8 arms      97% (100%)             98% (100%)             96% (100%)             1.35 (1.67)     0.55
    16 arms     97% (100%)             96% (100%)             96% (99%)              0.94 (1.10)     0.63
    32 arms     96% (99%)              97% (99%)              97% (97%)              0.66 (0.75)     0.67

Where half of the noise is common to families of a quarter of the arms, intervals contain it in 95 to 98% of pairs.
"""

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri
from scipy.stats import false_discovery_control, rankdata

from repro.settings import Statistics
from repro.stats.correlation import spearman
from repro.stats.intervals import t_quantile
from repro.stats.nested import nested

LEAST = 4  # arms in common; with fewer no ρ has an interval


def by_unit(table: pd.DataFrame, measure: str, baseline: str) -> pd.DataFrame:
    """differences_A_U of `measure`, arm less baseline on the same base policy and seed. `table`: a row per run with
    policy, arm, seed and the measure. Arms that are not on every unit of the baseline are left out."""
    wide = table.pivot_table(index=["policy", "seed"], columns="arm", values=measure)
    wide = wide[wide[baseline].notna()]
    less = wide.drop(columns=baseline).sub(wide[baseline], axis=0)
    units = "policy" if less.index.get_level_values("policy").nunique() > 1 else "seed"
    return less.groupby(level=units).mean().dropna(axis=1).T


def reliability(differences: pd.DataFrame) -> float:
    """Of the ranks of the arms' means over units, between 0 and 1; NaN for a single unit."""
    units = differences.shape[1]
    if units < 2:
        return float("nan")
    between = differences.corr("spearman").to_numpy()[np.triu_indices(units, 1)].mean()
    return float(units * between / (1 + (units - 1) * between)) if between > 0 else 0.0


def ranked(rho: float, arms: int, confidence: float, shared: float = 0.0) -> tuple[float, float, float]:
    """(low, high, p of ρ = 0) of a rank correlation over `arms`; NaN below LEAST of them. `shared`: s."""
    if arms < LEAST or np.isnan(rho):
        return float("nan"), float("nan"), float("nan")
    centre = _artanh(rho, arms)
    error = np.sqrt((1 + rho**2 / 2) / (arms - 3) + shared)
    half = ndtri((1 + confidence) / 2) * error
    return float(np.tanh(centre - half)), float(np.tanh(centre + half)), float(2 * ndtr(-abs(centre) / error))


def agreement(first: pd.DataFrame, second: pd.DataFrame, statistics: Statistics) -> dict[str, float]:
    """Of two sources' differences_A_U: arms, rho, rho_low, rho_high, p; ceiling; pairs, of arms and the baseline whose
    difference is distinguishable from 0 in either source (`signs`), and agree, the share of them in which it has the
    same sign. ValueError with fewer than LEAST arms in common."""
    arms = first.index.intersection(second.index)
    if len(arms) < LEAST:
        raise ValueError(f"agreement: {len(arms)} arms in common; it takes {LEAST}")
    sources = [of.loc[arms] for of in (first, second)]
    rho = spearman(*(of.mean(axis=1) for of in sources))
    low, high, p = ranked(rho, len(arms), statistics.confidence, shared_variance(*sources, statistics))
    one, other = (signs(of.to_numpy(), statistics.confidence) for of in sources)
    both = (one != 0) & (other != 0)
    return {
        "arms": len(arms),
        "rho": rho,
        "rho_low": low,
        "rho_high": high,
        "p": p,
        "ceiling": float(np.sqrt(np.prod([reliability(of) for of in sources]))),
        "pairs": int(both.sum()),
        "agree": float((one == other)[both].mean()) if both.any() else float("nan"),
    }


def shared_variance(first: pd.DataFrame, second: pd.DataFrame, statistics: Statistics) -> float:
    """s, of sources with the same arms."""
    rng = np.random.default_rng(statistics.seed)
    variances = []
    for apart in (False, True):
        means = [_resampled(of.to_numpy(), statistics.resamples, apart, rng) for of in (first, second)]
        one, other = (rankdata(mean_B_A, axis=1) - (len(first) + 1) / 2 for mean_B_A in means)
        with np.errstate(invalid="ignore"):
            rho_B = (one * other).sum(1) / np.sqrt((one**2).sum(1) * (other**2).sum(1))
        variances.append(np.nanvar(_artanh(rho_B, len(first))))
    return float(max(variances[0] - variances[1], 0.0))


def _artanh(rho: np.ndarray | float, arms: int) -> np.ndarray:
    """artanh ρ, where it is infinite that of half a step before: ρ over A arms has steps of 6 / (A³ − A)."""
    furthest = 1 - 3 / (arms**3 - arms)
    return np.arctanh(np.clip(rho, -furthest, furthest))


def _resampled(differences_A_U: np.ndarray, resamples: int, apart: bool, rng: np.random.Generator) -> np.ndarray:
    """mean_B_A over units drawn again: for all arms together, or for each `apart`."""
    arms, units = differences_A_U.shape
    if not apart:
        return differences_A_U[:, rng.integers(units, size=(resamples, units))].mean(2).T
    draws_B_A_U = rng.integers(units, size=(resamples, arms, units))
    return np.take_along_axis(differences_A_U[None], draws_B_A_U, axis=2).mean(2)


def signs(differences_A_U: np.ndarray, confidence: float) -> np.ndarray:
    """sign_P, of the A(A+1)/2 pairs of A arms and the baseline, whose difference is 0 in each unit: −1 or 1 where the
    pair's difference is distinguishable from 0 at a false discovery rate, else 0. Student's t over units, variances
    drawn together over pairs (repro.stats.nested); all 0 with a single unit."""
    with_baseline = np.vstack([np.zeros(differences_A_U.shape[1]), differences_A_U])
    one, other = np.triu_indices(len(with_baseline), 1)
    less_P_U = with_baseline[other] - with_baseline[one]
    if less_P_U.shape[1] < 2:
        return np.zeros(len(less_P_U))
    p_P = nested(less_P_U[:, None]).p_values()
    return np.sign(less_P_U.mean(1)) * (false_discovery_control(p_P) < 1 - confidence)


def predicted(first: pd.DataFrame, second: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """A row per arm (the index) in common: what a line through all *other* arms' means, of `second` on `first`,
    predicts for it: known (its mean in `first`), predicted, predicted_low, predicted_high (Student's interval for one
    more arm), measured, inside; and plain, what the other arms' mean in `second` would predict for it without `first`.
    ValueError with fewer than LEAST + 1 arms."""
    arms = first.index.intersection(second.index)
    if len(arms) <= LEAST:
        raise ValueError(f"predicted: {len(arms)} arms in common; it takes {LEAST + 1}, for a line without one of them")
    x_A, y_A = (of.loc[arms].mean(axis=1).to_numpy() for of in (first, second))
    rows = []
    for own in range(len(arms)):
        x, y = np.delete(x_A, own), np.delete(y_A, own)
        off, spread = x_A[own] - x.mean(), ((x - x.mean()) ** 2).sum()
        slope = ((x - x.mean()) * y).sum() / spread
        left = y - y.mean() - slope * (x - x.mean())
        error = np.sqrt((left**2).sum() / (len(x) - 2) * (1 + 1 / len(x) + off**2 / spread))
        half, centre = t_quantile(len(x) - 2, confidence) * error, y.mean() + slope * off
        rows.append(
            (x_A[own], centre, centre - half, centre + half, y_A[own], abs(y_A[own] - centre) <= half, y.mean())
        )
    names = ["known", "predicted", "predicted_low", "predicted_high", "measured", "inside", "plain"]
    return pd.DataFrame(rows, arms, names)
