"""Symmetries of networks: find, verify, act, align, fix gauges, count swaps. Knows arrays, not Bayes."""

from symbnn.symmetry.alignment import Aligned, align, align_gaussians
from symbnn.symmetry.discovery import rules
from symbnn.symmetry.discovery.discover import discover
from symbnn.symmetry.discovery.registry import register_rule
from symbnn.symmetry.gauges.balance import Balanced, balance
from symbnn.symmetry.gauges.gauges import canonicalise, normalise
from symbnn.symmetry.gauges.sorting import sort_units
from symbnn.symmetry.group.act import Element, act, compose, identity, inverse, random_element
from symbnn.symmetry.group.distances import kendall_tau, number_of_transpositions, random_permutation
from symbnn.symmetry.group.verify import Report, verify
from symbnn.symmetry.spec.from_axes import from_axes
from symbnn.symmetry.spec.spec import Group, SymmetrySpec

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
    "rules",
    "sort_units",
    "verify",
]
