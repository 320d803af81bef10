"""Symmetries of networks: find, verify, act, align, fix gauges, count swaps. Knows arrays, not Bayes."""

from symbnn.symmetry.alignment import Aligned, align, align_gaussians
from symbnn.symmetry.certificate import Completeness, completeness
from symbnn.symmetry.discovery import discover, register_rule, rules
from symbnn.symmetry.gauges import (
    Balanced,
    Folded,
    balance,
    canonicalise,
    fold_gains,
    normalise,
    settle,
    sort_units,
)
from symbnn.symmetry.group import (
    Element,
    Report,
    act,
    compose,
    identity,
    inverse,
    kendall_tau,
    number_of_transpositions,
    random_element,
    random_permutation,
    verify,
)
from symbnn.symmetry.spec import Group, SymmetrySpec, from_axes

__all__ = [
    "Aligned",
    "Balanced",
    "Completeness",
    "Element",
    "Folded",
    "Group",
    "Report",
    "SymmetrySpec",
    "act",
    "align",
    "align_gaussians",
    "balance",
    "canonicalise",
    "completeness",
    "compose",
    "discover",
    "fold_gains",
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
    "settle",
    "sort_units",
    "verify",
]
