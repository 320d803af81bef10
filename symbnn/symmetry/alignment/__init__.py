"""Alignment: a spec and networks go in, the same networks in one labelling of their units come out."""

from symbnn.symmetry.alignment.api import Aligned, align
from symbnn.symmetry.alignment.distributions import align_gaussians

__all__ = ["Aligned", "align", "align_gaussians"]
