"""*Paper says / we measured*: the claims of *Cost-Aware Learning*, *D³S* and *sGPO* on training with rollouts.

`verdicts` states the rule; `cost_aware_learning`, `d3s`, `d3s_dynamics`, `sgpo` and `elsewhere` list the claims;
`measures` and `per_seed` read the study's tables, `exact` holds the claims that are mathematics, `table` puts it
together.
"""

from repro.experiments.claims.study import Study
from repro.experiments.claims.table import BY_LUCK, CLAIMS, claims_markdown, claims_table, tally

__all__ = ["BY_LUCK", "CLAIMS", "Study", "claims_markdown", "claims_table", "tally"]
