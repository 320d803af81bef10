"""Rules: an equation goes in, what its primitive does to indices, scales and signs comes out.

And all that a rule is written with (`register_rule`): `AxisMap`, `Span`, `layout` and `constant_along` say
what happens to indices; `equal`, `product` and the other relations what happens to factors and signs.

A primitive that JAX adds may belong in these tables: `RULES` (a new file of rules must be imported here),
`EXPONENT_RULES`, `known_values.PASS`, `ARITHMETIC` and `ZERO_IF_*`, `exponents.VIEWS`, `roles.ROOTS`,
`digits.READERS` and `PASSING`, `program.BODY_OF_CALL`, and `capture.UNCHANGED` of the alignment's features.
"""

from symbnn.symmetry.discovery.exponent_rules import (
    EXPONENT_RULES,
    Exponents,
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

# Imported for their rules: each fills the table.
from symbnn.symmetry.discovery.rules import contract, index, reduce, shape  # noqa: F401
from symbnn.symmetry.discovery.rules.base import (
    RULES,
    AxisMap,
    Layout,
    Rule,
    Span,
    Variable,
    broadcast,
    constant_along,
    layout,
)
from symbnn.symmetry.discovery.rules.elementwise import elementwise as elementwise_rule
from symbnn.symmetry.discovery.rules.registry import register_rule
from symbnn.symmetry.program import Equation, Value

__all__ = [
    "EXPONENT_RULES",
    "RULES",
    "AxisMap",
    "Equation",
    "Exponents",
    "Layout",
    "Relation",
    "Rule",
    "Span",
    "Value",
    "Variable",
    "broadcast",
    "constant_along",
    "elementwise_rule",
    "equal",
    "equal_unless_infinite",
    "first_operands",
    "forget",
    "layout",
    "parallel",
    "power",
    "product",
    "quotient",
    "register_rule",
    "zero",
]
