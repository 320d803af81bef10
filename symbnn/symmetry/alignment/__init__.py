"""Alignment of networks to a reference: which unit of one net is which unit of another."""

from symbnn.symmetry.alignment.api import Aligned, align

__all__ = ["Aligned", "align"]
