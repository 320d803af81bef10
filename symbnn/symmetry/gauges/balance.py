"""Minimum mass: the point of least L2 norm among all rescalings of a network.

Minimises the posynomial m(u) of `mass`. At the minimum every unit is balanced, its incoming and
outgoing squared weights are equal: they form a flow from the inputs (and biases) to the outputs. In a chain
without biases every layer then has the same mass. Laurent, Aldea & Franchi (2024); the sweeps generalise
Stock et al., "Equi-normalization of neural networks" (2019), to any exponents. Units that any invertible
matrix may mix are balanced by matrices (`mixing`), in turns with the scales of all others.
"""

import math
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn.symmetry.gauges.mass import Logs, Mass, counted, degenerate_groups, exponents_one, mass_of, terms
from symbnn.symmetry.gauges.minimum import (
    DENSE_UNKNOWNS,
    Limits,
    Minimum,
    minimise,
    minimise_on_host,
    quickly_compiled,
)
from symbnn.symmetry.gauges.mixing import GAP, balanced_once, mixed_groups
from symbnn.symmetry.group import Element, act, compose, identity
from symbnn.symmetry.numerics import check_finite
from symbnn.symmetry.spec import Leaf, SymmetrySpec, check_params, map_atoms
from symbnn.types import Params


class Balanced(NamedTuple):
    """The network of least mass among all rescalings and mixings."""

    params: Params
    mass_before: jax.Array
    mass_after: jax.Array
    residual: jax.Array
    """Largest |in − out| / (in + out) over the units, and of Gram matrices over the groups that are mixed."""
    dead_units: dict[str, jax.Array]
    """Number of units by group that no path joins to both ends: their scale has no minimum."""
    element: Element
    """What was applied: scales, and matrices where units may be mixed."""


def balance(
    spec: SymmetrySpec,
    params: Params,
    *,
    count_bias: bool = True,
    max_sweeps: int = 20,
    max_steps: int = 50,
    tolerance: float = 1e-24,
) -> Balanced:
    """The network of least mass among all positive rescalings of this one; jits and vmaps.

    Of groups whose `kind` is invertible the matrix of least mass is found; rotations are all that is left.

    Args:
        spec: The network's symmetries; some group must have scales.
        params: The weights.
        count_bias: The mass is the whole squared norm, as weight decay sees it, and dead units are set to
            zero, the limit of their orbit. Without it biases are scaled along but not counted, and dead units
            stay as they are.
        max_sweeps: Sweeps over all units before Newton's method takes over.
        max_steps: Most steps of Newton's method, and most turns between scales and matrices.
        tolerance: Newton's method stops when its decrement is below this share of the mass.
    """
    check_params(spec, params)
    check_finite(params, "such a network has no minimum mass")
    why = no_minimum(spec, count_bias)
    if why is not None:
        raise ValueError(why)
    # Masses and scales go back in the precision that the caller works in.
    dtype = jax.dtypes.canonicalize_dtype(float)
    with jax.enable_x64(True):
        unknowns = sum(group.num_scales * math.prod(spec.shape(group)) for group in spec.groups)
        is_traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(params))
        solve = _balance if is_traced or unknowns <= DENSE_UNKNOWNS else _balance_on_host
        return solve(spec, params, count_bias, Limits(max_sweeps, max_steps, tolerance), dtype)


@lru_cache(maxsize=64)
def no_minimum(spec: SymmetrySpec, count_bias: bool = True) -> str | None:
    """Why the mass has no minimum over the scales, or cannot be minimised; None if it can."""
    if not any(group.num_scales for group in spec.groups):
        return "no group of the spec can be rescaled, so there is nothing to balance"
    for leaf in counted(spec, count_bias):
        if leaf.shift and any(any(factor.scales) for _, factor in leaf.factors()):
            return (
                f"leaf {leaf.name!r} is used as {leaf.shift:g} + leaf, so its mass is no sum of powers of "
                "the scales, which balance needs; use normalise"
            )
    degenerate = degenerate_groups(spec, terms(spec, count_bias))
    if not degenerate:
        return None
    return (
        f"the mass has no minimum: the weights into group {degenerate[0]!r} "
        + (f"(and {len(degenerate) - 1} more groups) " if len(degenerate) > 1 else "")
        + "can shrink without any other weight growing, as in front of a normalisation layer; "
        "use normalise, or fold the normalisation into the weights first"
    )


@partial(jax.jit, static_argnames=("spec", "count_bias", "limits", "dtype"))
def _balance(
    spec: SymmetrySpec, params: Params, count_bias: bool, limits: Limits, dtype: np.dtype
) -> Balanced:
    return _rescaled(spec, params, _search(spec, params, count_bias, limits), count_bias, dtype)


def _balance_on_host(
    spec: SymmetrySpec, params: Params, count_bias: bool, limits: Limits, dtype: np.dtype
) -> Balanced:
    """The same in several smaller programs: one for all would take a large network a minute to compile."""
    rescaled = quickly_compiled(_rescaled, "spec", "count_bias", "dtype")
    return rescaled(spec, params, _search_on_host(spec, params, count_bias, limits), count_bias, dtype)


class _State(NamedTuple):
    """Scales and matrices in turns."""

    element: Element
    alive: Logs
    residual: jax.Array
    turn: jax.Array


def _search(spec: SymmetrySpec, params: Params, count_bias: bool, limits: Limits) -> _State:
    """The balancing element; traceable."""
    first = _start(spec, minimise(mass_of(spec, params, count_bias), limits))
    if not mixed_groups(spec):
        return first

    def turn(state: _State) -> _State:
        mixed, gap, mass = _mixed(spec, params, state.element, count_bias)
        return _rescaled_too(spec, mixed, gap, state.turn, minimise(mass, limits))

    unsettled = first._replace(residual=jnp.full_like(first.residual, jnp.inf))
    return jax.lax.while_loop(partial(_is_open, limits), turn, unsettled)


def _search_on_host(spec: SymmetrySpec, params: Params, count_bias: bool, limits: Limits) -> _State:
    mass = quickly_compiled(mass_of, "spec", "count_bias")(spec, params, count_bias)
    state = _start(spec, minimise_on_host(mass, limits))
    if not mixed_groups(spec):
        return state
    mix = quickly_compiled(_mixed, "spec", "count_bias")
    rescale = quickly_compiled(_rescaled_too, "spec")
    state = state._replace(residual=jnp.full_like(state.residual, jnp.inf))
    while _is_open(limits, state):
        mixed, gap, mass = mix(spec, params, state.element, count_bias)
        state = rescale(spec, mixed, gap, state.turn, minimise_on_host(mass, limits))
    return state


def _start(spec: SymmetrySpec, minimum: Minimum) -> _State:
    element = identity(spec)._replace(scales=_scales(minimum))
    return _State(element, minimum.alive, minimum.residual, jnp.array(0))


def _scales(minimum: Minimum) -> dict[str, jax.Array]:
    return {name: jnp.exp(value) for name, value in minimum.logs.items() if len(value)}


def _mixed(
    spec: SymmetrySpec, params: Params, element: Element, count_bias: bool
) -> tuple[Element, jax.Array, Mass]:
    """The element followed by one balancing of every mixed group; how unbalanced they were; the mass then."""
    wide = jax.tree.map(_widened, params)
    mass = mass_of(spec, params, count_bias).total()
    step, gap = balanced_once(spec, act(spec, element, wide), count_bias, mass)
    element = compose(spec, step, element)
    return element, gap, mass_of(spec, act(spec, element, wide), count_bias)


def _rescaled_too(
    spec: SymmetrySpec, element: Element, gap: jax.Array, turn: jax.Array, minimum: Minimum
) -> _State:
    element = compose(spec, Element({}, _scales(minimum), {}), element)
    return _State(element, minimum.alive, jnp.maximum(gap, minimum.residual), turn + 1)


def _is_open(limits: Limits, state: _State) -> jax.Array:
    return (state.residual > GAP) & (state.turn < limits.steps)


def _rescaled(
    spec: SymmetrySpec, params: Params, state: _State, count_bias: bool, dtype: np.dtype
) -> Balanced:
    scaled = act(spec, state.element, jax.tree.map(_widened, params))
    if count_bias:
        scaled = _without_dead(spec, state.alive, scaled)
    mass = mass_of(spec, params, count_bias)
    found = Balanced(
        None,
        mass.total(),
        replace(mass_of(spec, scaled, count_bias), rest=mass.rest).total(),
        state.residual,
        {name: jnp.sum(jnp.any(value == 0, axis=0), dtype=jnp.int32) for name, value in state.alive.items()},
        state.element,
    )
    narrow = jax.tree.map(lambda leaf: leaf.astype(dtype) if leaf.dtype == jnp.float64 else leaf, found)
    return narrow._replace(params=jax.tree.map(lambda new, old: new.astype(old.dtype), scaled, params))


def _without_dead(spec: SymmetrySpec, alive: Logs, params: Params) -> Params:
    """Weights of dead units set to zero."""

    def masked(leaf: Leaf) -> Leaf:
        axes = (map_atoms(lambda factor: exponents_one((factor,))[0], word) for word in leaf.axes)
        return replace(leaf, axes=tuple(axes), shift=0.0)

    masks = {name: value for name, value in alive.items() if len(value)}
    return act(replace(spec, leaves=tuple(map(masked, spec.leaves))), Element({}, masks, {}), params)


def _widened(leaf: jax.Array) -> jax.Array:
    return leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
