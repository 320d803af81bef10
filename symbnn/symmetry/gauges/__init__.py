"""Gauges: a spec and weights go in, the representative of their orbit comes out."""

from symbnn.symmetry.gauges.balance import Balanced, balance
from symbnn.symmetry.gauges.folding import Folded, fold_gains
from symbnn.symmetry.gauges.gauges import canonicalise, normalise
from symbnn.symmetry.gauges.mass import Mass, mass_of
from symbnn.symmetry.gauges.settling import settle
from symbnn.symmetry.gauges.sorting import incoming, sort_units

__all__ = [
    "Balanced",
    "Folded",
    "Mass",
    "balance",
    "canonicalise",
    "fold_gains",
    "incoming",
    "mass_of",
    "normalise",
    "settle",
    "sort_units",
]
