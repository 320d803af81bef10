"""Has a sampler converged, in function space and in weight space?"""

from symbnn.diagnostics.convergence import bulk_ess, rank_rhat, split_rhat, tail_ess

__all__ = ["bulk_ess", "rank_rhat", "split_rhat", "tail_ess"]
