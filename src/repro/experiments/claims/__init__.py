"""*Paper says / we measured*: the claims of *Cost-Aware Learning*, *D³S* and *sGPO* on training with rollouts.

The claims are data (configs/claims/*.yaml), read by `schema`; `measures` and `per_seed` compute their figures from the
study's tables, `exact` those that are mathematics; `table` puts it together by the rule of repro.stats.verdicts.
"""

from repro.experiments.claims.schema import Claim, load
from repro.experiments.claims.study import Study, Untestable
from repro.experiments.claims.table import claims_table, other_verdicts, tally, with_words

__all__ = ["Claim", "Study", "Untestable", "claims_table", "load", "other_verdicts", "tally", "with_words"]
