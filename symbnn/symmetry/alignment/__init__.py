"""Alignment of networks to a reference: which unit of one net is which unit of another."""

from symbnn.symmetry.alignment.api import Aligned, align
from symbnn.symmetry.alignment.distributions import align_gaussians

__all__ = ["Aligned", "align", "align_gaussians"]
