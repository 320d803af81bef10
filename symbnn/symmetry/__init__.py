"""Symmetries of networks: find, verify, act, align, fix gauges, count swaps. Knows arrays, not Bayes."""

from symbnn.symmetry.act import Element, act, compose, identity, inverse, random_element
from symbnn.symmetry.alignment import Aligned, align, align_gaussians
from symbnn.symmetry.balance import Balanced, balance
from symbnn.symmetry.discover import discover
from symbnn.symmetry.gauges import canonicalise, normalise
from symbnn.symmetry.handwritten import from_axes
from symbnn.symmetry.registry import register_rule
from symbnn.symmetry.sorting import sort_units
from symbnn.symmetry.spec import Group, SymmetrySpec
from symbnn.symmetry.transpositions import kendall_tau, number_of_transpositions, random_permutation
from symbnn.symmetry.verify import Report, verify

__all__ = [
    "Aligned",
    "Balanced",
    "Element",
    "Group",
    "Report",
    "SymmetrySpec",
    "act",
    "align",
    "align_gaussians",
    "balance",
    "canonicalise",
    "compose",
    "discover",
    "from_axes",
    "identity",
    "inverse",
    "kendall_tau",
    "normalise",
    "number_of_transpositions",
    "random_element",
    "random_permutation",
    "register_rule",
    "sort_units",
    "verify",
]
