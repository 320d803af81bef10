"""Compact posteriors: simple laws fitted to aligned samples."""

from symbnn.compact.gaussian import gaussian, low_rank
from symbnn.compact.prune import prune

__all__ = ["gaussian", "low_rank", "prune"]
