"""Discovery: a network function and its shapes go in, its `SymmetrySpec` comes out."""

from symbnn.symmetry.discovery import rules
from symbnn.symmetry.discovery.discover import discover
from symbnn.symmetry.discovery.gains import find_gains
from symbnn.symmetry.discovery.rules import register_rule

__all__ = ["discover", "find_gains", "register_rule", "rules"]
