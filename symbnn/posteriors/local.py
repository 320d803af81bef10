"""Local reparametrisation of any network: sample pre-activations instead of weights.

For weights W ~ N(M, S²) and an input x the product xW is Gaussian with mean xM and variance x²S². Drawing it
directly costs one normal number per pre-activation instead of one per weight and input, and gradients of
different inputs are not correlated by a shared draw (Kingma, Salimans and Welling 2015).

The network is read from its jaxpr for one input and mapped over the batch. A value is an array or `Normal`: a
Gaussian that was not drawn yet. Matrix products, convolutions, sums, products with arrays and views of a
`Normal` are `Normal`; everything else draws it. A `Normal` that is read twice is drawn before the first
reading, so a draw is never inconsistent with itself: shared weights are drawn as weights, once per input.

Every pre-activation has its exact law given its inputs. Jointly a layer is exact where each weight meets one
number per input, as in a dense layer; a convolution's positions (a token's rows) share weights, and the
correlation between them is left out, as is usual.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from jaxtyping import Array

from symbnn import tree
from symbnn.programs import bind
from symbnn.types import Key, Params

Noise = Callable[[tuple[int, ...]], Array]
"""shape -> N(0, 1) numbers, new ones at every call."""

ApplyLocal = Callable[[Key, Params, Params, Array], Array]


class Normal(NamedTuple):
    """Independent Gaussians that were not drawn yet."""

    mean: Array
    variance: Array
    is_weight: bool
    """Whether no data has met it yet; after that a product would mix its numbers into dependent ones."""


VIEWS = frozenset(
    {
        "reshape",
        "transpose",
        "squeeze",
        "expand_dims",
        "convert_element_type",
        "rev",
        "copy",
        "broadcast_in_dim",
    }
)
PRODUCTS = frozenset({"dot_general", "conv_general_dilated"})
CALLS = {"jit": "jaxpr", "closed_call": "call_jaxpr", "remat2": "jaxpr"}
"""Calls whose body is read, with the parameter that holds it. A function with its own derivative rule is not
among them: it is called on what was drawn, and keeps its rule."""

SMALLEST_VARIANCE = 1e-30
"""Under the root: a unit without input has variance zero, where the root has no derivative."""


def local_reparametrisation(apply: Callable[[Params, Array], Array]) -> ApplyLocal:
    """`apply_local(key, mean, std, inputs)`: outputs of `apply` with its weights drawn anew for every input.

    `apply(params, inputs)` must treat the inputs of a batch independently. The drawn outputs have the law of
    `apply(mean + std∘ε, x)` for each input x, up to what the module docstring says about convolutions.
    """

    def apply_local(key: Key, mean: Params, std: Params, inputs: Array) -> Array:
        tree.check_same_shapes("std", std, mean)
        closed = jax.make_jaxpr(apply)(mean, inputs[:1])
        weights = [
            Normal(m, jnp.square(s), is_weight=True)
            for m, s in zip(jax.tree.leaves(mean), jax.tree.leaves(std), strict=True)
        ]

        def one(source: Noise, x: Array) -> Array:
            outputs = _run(closed.jaxpr, closed.consts, [*weights, x[None]], source)
            return _draw(outputs[0], source)[0]

        # All noise in one flat draw: every generator is compiled for itself, a shaped one five times as long.
        shapes = _noise_shapes(one, inputs[0])
        total = len(inputs), sum(map(math.prod, shapes))
        dtype = jnp.result_type(*jax.tree.leaves(mean))
        noise = jax.random.normal(key, (math.prod(total),), dtype).reshape(total)

        def of_input(flat: Array, x: Array) -> Array:
            parts = iter(tree.cut(flat, shapes))
            return one(lambda shape: next(parts), x)

        return jax.vmap(of_input)(noise, inputs)

    return apply_local


def _noise_shapes(one: Callable[[Noise, Array], Array], x: Array) -> list[tuple[int, ...]]:
    """Shapes of the normal numbers that each draw takes, in order, for one input."""
    shapes: list[tuple[int, ...]] = []

    def record(shape: tuple[int, ...]) -> Array:
        shapes.append(shape)
        return jnp.zeros(shape)

    jax.eval_shape(lambda x: one(record, x), x)
    return shapes


def _draw(value: Any, noise: Noise) -> Any:
    """`value` as an array, drawn if it is `Normal`."""
    if not isinstance(value, Normal):
        return value
    spread = jnp.sqrt(jnp.maximum(value.variance, SMALLEST_VARIANCE))
    return value.mean + spread * noise(value.mean.shape).astype(value.mean.dtype)


def _run(jaxpr: Jaxpr, consts: Sequence[Any], arguments: Sequence[Any], noise: Noise) -> list[Any]:
    """Read a jaxpr whose arguments may be `Normal`."""
    readings = Counter(
        atom
        for atoms in (*(equation.invars for equation in jaxpr.eqns), jaxpr.outvars)
        for atom in atoms
        if isinstance(atom, Var)
    )
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))

    def write(variables: Sequence[Any], results: Sequence[Any]) -> None:
        for variable, result in zip(variables, results, strict=True):
            values[variable] = _draw(result, noise) if readings[variable] > 1 else result

    write(jaxpr.invars, arguments)
    for equation in jaxpr.eqns:
        inputs = [atom.val if isinstance(atom, Literal) else values[atom] for atom in equation.invars]
        write(equation.outvars, _step(equation, inputs, noise))
    return [atom.val if isinstance(atom, Literal) else values[atom] for atom in jaxpr.outvars]


def _step(equation: JaxprEqn, inputs: list[Any], noise: Noise) -> Sequence[Any]:
    """Results of one equation."""
    if not any(isinstance(value, Normal) for value in inputs):
        return bind(equation, inputs)
    name = equation.primitive.name
    if name in CALLS:
        inner = equation.params[CALLS[name]]
        body, consts = (inner.jaxpr, inner.consts) if isinstance(inner, ClosedJaxpr) else (inner, ())
        return _run(body, consts, inputs, noise)
    linear = _linear(equation, inputs)
    return bind(equation, [_draw(value, noise) for value in inputs]) if linear is None else [linear]


def _linear(equation: JaxprEqn, inputs: list[Any]) -> Normal | None:
    """The law of the result where it is Gaussian and independent again; None elsewhere."""
    name = equation.primitive.name
    first, second = inputs[0], inputs[-1]
    normals = [value for value in inputs if isinstance(value, Normal)]
    is_weight = all(value.is_weight for value in normals)

    def apply(*values: Any) -> Array:
        return bind(equation, list(values))[0]

    def product(is_weight: bool) -> Normal:
        variances = [v.variance if isinstance(v, Normal) else jnp.square(v) for v in inputs]
        return Normal(apply(_mean(first), _mean(second)), apply(*variances), is_weight)

    if name in PRODUCTS:
        return product(False) if is_weight and len(normals) == 1 else None
    if _copies(equation, normals):
        return None
    if name in VIEWS:
        return Normal(apply(first.mean), apply(first.variance), is_weight)
    if name == "neg":
        return Normal(-first.mean, first.variance, is_weight)
    if name in ("add", "sub"):
        mean = apply(_mean(first), _mean(second))
        variance = sum((value.variance for value in normals), jnp.zeros_like(mean))
        return Normal(mean, variance, is_weight)
    if name == "mul" and len(normals) == 1:
        return product(is_weight)
    if name == "div" and not isinstance(second, Normal):
        return Normal(apply(first.mean, second), apply(first.variance, jnp.square(second)), is_weight)
    return None


def _copies(equation: JaxprEqn, normals: Sequence[Normal]) -> bool:
    """Whether the result holds a `Normal` several times, by broadcasting: copies are not independent."""
    result: Any = equation.outvars[0].aval
    return any(value.mean.size != result.size for value in normals)


def _mean(value: Any) -> Any:
    return value.mean if isinstance(value, Normal) else value
