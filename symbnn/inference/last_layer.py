"""Which leaves are the last layer of a network: those that the outputs are affine in, given all others.

Read forward from the jaxpr. A value is a view of a leaf, or carries the set of leaves in which it is affine:
a product of data with a leaf starts that set anew, sums unite it, anything nonlinear empties it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from symbnn import tree
from symbnn.posteriors.local import CALLS, PRODUCTS, VIEWS
from symbnn.types import Params

Label = frozenset[str]
NOTHING: Label = frozenset()
AFFINE = VIEWS | {"broadcast_in_dim", "slice", "neg", "reduce_sum"}
JOINS = {"add", "sub", "mul", "div"}


def last_layer(apply: Callable[..., Any], params: Params, inputs: Any) -> tuple[str, ...]:
    """Names of the last layer's leaves, in tree order; `ValueError` if the outputs are affine in none."""
    closed = jax.make_jaxpr(apply)(params, inputs)
    leaves = list(tree.named_leaves(params))
    labels = [frozenset({name}) for name in leaves]
    (found,) = _read(closed.jaxpr, [*((label, True) for label in labels), (NOTHING, False)])
    if not found[0]:
        raise ValueError("No last layer: the outputs are not affine in any leaf; name the leaves instead")
    return tuple(name for name in leaves if name in found[0])


def _read(jaxpr: Jaxpr, arguments: Sequence[tuple[Label, bool]]) -> list[tuple[Label, bool]]:
    """(leaves in which a value is affine, whether it is a bare view of a leaf) of every output."""
    values: dict[Any, tuple[Label, bool]] = dict(zip(jaxpr.invars, arguments, strict=True))

    def value(atom: Any) -> tuple[Label, bool]:
        return (NOTHING, False) if isinstance(atom, Literal) else values.get(atom, (NOTHING, False))

    for equation in jaxpr.eqns:
        results = _step(equation, [value(atom) for atom in equation.invars])
        values.update(zip(equation.outvars, results, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def _step(equation: JaxprEqn, inputs: list[tuple[Label, bool]]) -> list[tuple[Label, bool]]:
    name = equation.primitive.name
    if name in CALLS:
        inner = equation.params[CALLS[name]]
        return _read(inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner, inputs)
    labels = [label for label, _ in inputs]
    views = [label for label, is_view in inputs if is_view]
    if name in AFFINE:
        return [(labels[0], inputs[0][1])]
    if name in PRODUCTS:
        return [(views[0] if len(views) == 1 else NOTHING, False)]
    if name in JOINS:
        is_sum = name in ("add", "sub") or not all(labels)
        return [(labels[0] | labels[1] if is_sum else NOTHING, False)]
    return [(NOTHING, False) for _ in equation.outvars]
