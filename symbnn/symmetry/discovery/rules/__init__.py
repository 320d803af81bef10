"""What each primitive does to indices, one small function per primitive; and all that a rule is written with.

`Alignment`, `Span`, `layout` and `constant_along` say what happens to indices, `equal`, `product` and the
other relations what happens to positive factors and signs: see `symbnn.symmetry.register_rule`.
"""

from symbnn.symmetry.discovery.exponent_rules import (
    Relation,
    equal,
    equal_unless_infinite,
    first_operands,
    forget,
    parallel,
    power,
    product,
    quotient,
    zero,
)
from symbnn.symmetry.discovery.rules import contract, elementwise, index, reduce, shape
from symbnn.symmetry.discovery.rules.base import (
    RULES,
    Alignment,
    Layout,
    Rule,
    Span,
    Variable,
    broadcast,
    constant_along,
    layout,
)
from symbnn.symmetry.discovery.rules.elementwise import elementwise as elementwise_rule
from symbnn.symmetry.program import Equation, Value

__all__ = [
    "RULES",
    "Alignment",
    "Equation",
    "Layout",
    "Relation",
    "Rule",
    "Span",
    "Value",
    "Variable",
    "broadcast",
    "constant_along",
    "contract",
    "elementwise",
    "elementwise_rule",
    "equal",
    "equal_unless_infinite",
    "first_operands",
    "forget",
    "index",
    "layout",
    "parallel",
    "power",
    "product",
    "quotient",
    "reduce",
    "shape",
    "zero",
]
