"""Symmetries of networks: find, verify, act, align, fix gauges, count transpositions. Knows arrays, not Bayes."""

from symbnn.symmetry.act import Element, act, compose, identity, inverse, random_element
from symbnn.symmetry.handwritten import from_axes
from symbnn.symmetry.spec import Group, SymmetrySpec

__all__ = [
    "Element",
    "Group",
    "SymmetrySpec",
    "act",
    "compose",
    "from_axes",
    "identity",
    "inverse",
    "random_element",
]
