"""The group at work: a spec, elements and weights go in, moved weights, distances and reports come out."""

from symbnn.symmetry.group.act import Element, act, act_leaf
from symbnn.symmetry.group.distances import kendall_tau, number_of_transpositions, random_permutation
from symbnn.symmetry.group.elements import compose, identity, inverse, random_element
from symbnn.symmetry.group.verify import Report, verify

__all__ = [
    "Element",
    "Report",
    "act",
    "act_leaf",
    "compose",
    "identity",
    "inverse",
    "kendall_tau",
    "number_of_transpositions",
    "random_element",
    "random_permutation",
    "verify",
]
