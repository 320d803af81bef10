"""Gauges: a spec and weights go in, the representative of their orbit comes out."""

from symbnn.symmetry.gauges.balance import Balanced, balance, no_minimum
from symbnn.symmetry.gauges.folding import Folded, Folding, find_folding, fold, fold_gains, refusal
from symbnn.symmetry.gauges.gauges import canonicalise, normalise
from symbnn.symmetry.gauges.mass import Mass, mass_of
from symbnn.symmetry.gauges.mixing import balancing, mixed_groups
from symbnn.symmetry.gauges.settling import settle
from symbnn.symmetry.gauges.sorting import incoming, sort_units

__all__ = [
    "Balanced",
    "Folded",
    "Folding",
    "Mass",
    "balance",
    "balancing",
    "canonicalise",
    "find_folding",
    "fold",
    "fold_gains",
    "incoming",
    "mass_of",
    "mixed_groups",
    "no_minimum",
    "normalise",
    "refusal",
    "settle",
    "sort_units",
]
