"""How activations are compared: centred and scaled to unit length (correlation), or as they are.

Both are inner products of features, so the same search serves them; an activation that is constant over the
inputs correlates with nothing. Relabelling the units of one layer only relabels the activations of that
layer, whatever was done to the layers before it: one assignment per group is the optimum, and recomputing
later layers with the relabelled network changes nothing.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from symbnn.symmetry.alignment.features.capture import arguments
from symbnn.symmetry.alignment.features.weights import ACTIVATION, Arrays, Features, plain_leaf
from symbnn.symmetry.numerics import length
from symbnn.symmetry.spec import Factor, Leaf, SymmetrySpec
from symbnn.types import Params, Samples

Activations = Callable[..., Mapping[str, jax.Array]]


def correlation(spec: SymmetrySpec, features: Features) -> Features:
    """Features with every unit's values centred over the inputs and scaled to unit length."""

    def extract(samples: Samples) -> Arrays:
        return tuple(
            _standardised(array, _free_axes(spec, leaf))
            for leaf, array in zip(features.leaves, features.extract(samples), strict=True)
        )

    return Features(features.leaves, extract)


def hooked_features(spec: SymmetrySpec, activations: Activations, params: Params, inputs: Any) -> Features:
    """Features from a user's function that returns activations `(inputs, *over, units)` by group."""
    inputs = arguments(inputs)
    shapes = jax.eval_shape(activations, params, *inputs)
    missing = [group.name for group in spec.groups if group.name not in shapes]
    if missing:
        raise ValueError(
            f"activations= must return every group; it returned {sorted(shapes)} and not {missing}"
        )
    leaves = []
    for group in spec.groups:
        expected = spec.shape(group)
        shape = tuple(shapes[group.name].shape)
        if shape[1:] != expected:
            raise ValueError(
                f"activations of group {group.name!r} must have shape (inputs, "
                f"{', '.join(map(str, expected))}); got {shape}"
            )
        named = zip(expected, (*group.over, group.name), strict=True)
        leaves.append(
            plain_leaf(
                ACTIVATION,
                (Factor(shape[0]), *(Factor(size, name, signs=_signs(spec, name)) for size, name in named)),
            )
        )
    order = tuple(group.name for group in spec.groups)
    return Features(tuple(leaves), lambda samples: _hooked(activations, order, samples, inputs))


def _signs(spec: SymmetrySpec, group: str) -> tuple[int, ...]:
    """How a unit's activation flips: like the weights that read it, or those that write it if none does."""
    found = [factor for leaf in spec.leaves for _, factor in leaf.factors() if factor.group == group]
    reading = [factor for factor in found if factor.role == "consumes"]
    return (reading or found)[0].signs if found else ()


@partial(jax.jit, static_argnames=("activations", "order"))
def _hooked(activations: Activations, order: tuple[str, ...], samples: Samples, inputs: tuple) -> Arrays:
    def one(params: Params) -> Arrays:
        found = activations(params, *inputs)
        return tuple(found[name] for name in order)

    return jax.lax.map(one, samples, batch_size=8)


def _free_axes(spec: SymmetrySpec, leaf: Leaf) -> tuple[int, ...]:
    """Axes of stacked arrays that hold data of one unit: the inputs, and positions.

    Neither the units nor what they vary over: unit 1 of one layer is another than unit 1 of the next.
    """
    names = {factor.group for _, factor in leaf.factors()}
    own = {name for group in spec.groups if group.name in names for name in (group.name, *group.over)}
    return tuple(axis + 1 for axis, factor in leaf.factors() if factor.group not in own)


@partial(jax.jit, static_argnames="axes")
def _standardised(array: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    centred = array - jnp.mean(array, axis=axes, keepdims=True)
    spread = length(centred, axes, keepdims=True)
    # Rounding leaves a constant unit a length of about 1e-7 times its value, which means nothing.
    scale = length(array, axes, keepdims=True)
    return jnp.where(spread > 1e-5 * scale, centred / jnp.where(spread > 0, spread, 1), 0)
