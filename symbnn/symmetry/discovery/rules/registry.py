"""Teach discovery a primitive it does not know, such as a custom kernel."""

from typing import Any

from symbnn.symmetry.discovery.exponent_rules import EXPONENT_RULES, Relation, zero
from symbnn.symmetry.discovery.rules.base import RULES, Rule
from symbnn.symmetry.discovery.rules.check import checked


def register_rule(primitive: Any, rule: Rule, *, scale: Relation = zero, sign: Relation = zero) -> None:
    """Make `rule` say what a primitive does to indices.

    What the rule returns is checked against shapes, but only its author knows that it is true: try
    `symbnn.symmetry.verify`. Each process registers its own rules; registering again replaces.

    Args:
        primitive: A JAX primitive, or its name.
        rule: A function from an `Equation` to an `AxisMap`, which names an index variable for every axis of
            every operand and result, like an einsum; or to None, which pins every axis. What it is written
            with is in `symbnn.symmetry.rules`.
        scale: What the primitive does to positive factors along one index. Default: nothing that reaches it
            is rescaled, which is always sound.
        sign: Likewise for signs.

    Examples:
        A kernel that sums rows of x, weighted by w:

        >>> import jax
        >>> from jax.extend.core import Primitive
        >>> from symbnn import symmetry
        >>> from symbnn.symmetry import rules
        >>> weighted_sum = Primitive("weighted_sum")
        >>> def shape_of(x, w):
        ...     return x.update(shape=x.shape[:1])
        >>> _ = weighted_sum.def_abstract_eval(shape_of)
        >>> def apply(params, x):
        ...     return weighted_sum.bind(jax.nn.relu(x @ params["in"]), params["out"])
        >>> shapes = {"in": (3, 5), "out": (5,)}
        >>> params = {name: jax.ShapeDtypeStruct(shape, float) for name, shape in shapes.items()}
        >>> x = jax.ShapeDtypeStruct((7, 3), float)
        >>> symmetry.discover(apply, params, x).groups
        ()

        Rows n are kept, units k are summed over, so the result is constant along k. Factors of x and w
        multiply, and cancel along what is summed:

        >>> def rule(equation):
        ...     n, k = rules.layout("n"), rules.constant_along("k")
        ...     return rules.AxisMap((rules.layout("nk"), rules.layout("k")), ((*n, *k),))
        >>> symmetry.register_rule(weighted_sum, rule, scale=rules.product, sign=rules.product)
        >>> [(one.name, one.size, one.num_scales) for one in symmetry.discover(apply, params, x).groups]
        [('in', 5, 1)]
    """
    name = primitive if isinstance(primitive, str) else primitive.name
    RULES[name] = checked(rule)
    EXPONENT_RULES[name] = (scale, sign)
