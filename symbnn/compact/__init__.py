"""Compact posteriors: simple laws fitted to aligned samples."""

from symbnn.compact.gaussian import gaussian, low_rank
from symbnn.compact.merge import Merged, merge
from symbnn.compact.mixture import k_means, mixture
from symbnn.compact.moves import Displacement, displacement
from symbnn.compact.prune import prune
from symbnn.compact.refine import mixed_up, refine

__all__ = [
    "Displacement",
    "Merged",
    "displacement",
    "gaussian",
    "k_means",
    "low_rank",
    "merge",
    "mixed_up",
    "mixture",
    "prune",
    "refine",
]
