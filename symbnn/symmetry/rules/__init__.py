"""What each primitive does to indices, one small function per primitive."""

from symbnn.symmetry.rules import contract, elementwise, index, reduce, shape
from symbnn.symmetry.rules.base import RULES, Alignment, Rule, Span

__all__ = ["RULES", "Alignment", "Rule", "Span", "contract", "elementwise", "index", "reduce", "shape"]
