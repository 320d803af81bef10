"""Gauges: a spec and weights go in, the representative of their orbit comes out."""

from symbnn.symmetry.gauges.balance import Balanced, balance
from symbnn.symmetry.gauges.gauges import canonicalise, normalise
from symbnn.symmetry.gauges.mass import flow, squares, terms
from symbnn.symmetry.gauges.sorting import incoming, sort_units

__all__ = [
    "Balanced",
    "balance",
    "canonicalise",
    "flow",
    "incoming",
    "normalise",
    "sort_units",
    "squares",
    "terms",
]
