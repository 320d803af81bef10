"""Has a sampler converged, in function space and in weight space?"""

from symbnn.diagnostics.convergence import bulk_ess, rank_rhat, split_rhat, tail_ess
from symbnn.diagnostics.exchangeability import Exchangeability, exchangeability
from symbnn.diagnostics.spaces import (
    RHAT_LIMIT,
    Summary,
    centred_logits,
    function_space,
    relabelled,
    relabelling_control,
    verdict,
    weight_space,
)

__all__ = [
    "RHAT_LIMIT",
    "Exchangeability",
    "Summary",
    "bulk_ess",
    "centred_logits",
    "exchangeability",
    "function_space",
    "rank_rhat",
    "relabelled",
    "relabelling_control",
    "split_rhat",
    "tail_ess",
    "verdict",
    "weight_space",
]
