"""Teach discovery a primitive it does not know, such as a custom kernel."""

from typing import Any

from symbnn.symmetry.degree_rules import DEGREES, Relation, zero
from symbnn.symmetry.rules.base import RULES, Rule


def register_rule(primitive: Any, rule: Rule, *, scale: Relation = zero, sign: Relation = zero) -> None:
    """Make `rule` say what a primitive (or its name) does to indices; see `symbnn.symmetry.rules.base`.

    `scale` and `sign` say what it does to positive factors and to signs (`symbnn.symmetry.degree_rules`);
    unless given, nothing that reaches the primitive is rescaled or flipped, which is always sound. Each
    process registers its own rules; registering again replaces.
    """
    name = primitive if isinstance(primitive, str) else primitive.name
    RULES[name] = rule
    DEGREES[name] = (scale, sign)
