"""Minimum mass: the point of least L2 norm among all rescalings of a network.

Minimises the posynomial m(u) of `mass`. At the minimum every unit is balanced, its incoming and
outgoing squared weights are equal: they form a flow from the inputs (and biases) to the outputs. In a chain
without biases every layer then has the same mass. Laurent, Aldea & Franchi (2024); the sweeps generalise
Stock et al., "Equi-normalization of neural networks" (2019), to any exponents.
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
from symbnn.symmetry.group import Element, act, identity
from symbnn.symmetry.numerics import check_finite
from symbnn.symmetry.spec import Leaf, SymmetrySpec, check_params, map_atoms
from symbnn.types import Params


class Balanced(NamedTuple):
    """The network of least mass in the scaling orbit."""

    params: Params
    mass_before: jax.Array
    mass_after: jax.Array
    residual: jax.Array
    """Largest |in − out| / (in + out) over the units."""
    dead_units: dict[str, jax.Array]
    """Number of units by group that no path joins to both ends: their scale has no minimum."""
    element: Element
    """The scaling that was applied."""


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

    Args:
        spec: The network's symmetries; some group must have scales.
        params: The weights.
        count_bias: The mass is the whole squared norm, as weight decay sees it, and dead units are set to
            zero, the limit of their orbit. Without it biases are scaled along but not counted, and dead units
            stay as they are.
        max_sweeps: Sweeps over all units before Newton's method takes over.
        max_steps: Most steps of Newton's method.
        tolerance: Newton's method stops when its decrement is below this share of the mass.
    """
    check_params(spec, params)
    check_finite(params, "such a network has no minimum mass")
    _check_minimum(spec, count_bias)
    # Masses and scales go back in the precision that the caller works in.
    dtype = jax.dtypes.canonicalize_dtype(float)
    with jax.enable_x64(True):
        unknowns = sum(group.num_scales * math.prod(spec.shape(group)) for group in spec.groups)
        is_traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(params))
        solve = _balance if is_traced or unknowns <= DENSE_UNKNOWNS else _balance_on_host
        return solve(spec, params, count_bias, Limits(max_sweeps, max_steps, tolerance), dtype)


@lru_cache(maxsize=64)
def _check_minimum(spec: SymmetrySpec, count_bias: bool) -> None:
    if not any(group.num_scales for group in spec.groups):
        raise ValueError("no group of the spec can be rescaled, so there is nothing to balance")
    for leaf in counted(spec, count_bias):
        if leaf.shift and any(any(factor.scales) for _, factor in leaf.factors()):
            raise ValueError(
                f"leaf {leaf.name!r} is used as {leaf.shift:g} + leaf, so its mass is no sum of powers of "
                "the scales, which balance needs; use normalise"
            )
    degenerate = degenerate_groups(spec, terms(spec, count_bias))
    if degenerate:
        raise ValueError(
            f"the mass has no minimum: the weights into group {degenerate[0]!r} "
            + (f"(and {len(degenerate) - 1} more groups) " if len(degenerate) > 1 else "")
            + "can shrink without any other weight growing, as in front of a normalisation layer; "
            "use normalise, or fold the normalisation into the weights first"
        )


@partial(jax.jit, static_argnames=("spec", "count_bias", "limits", "dtype"))
def _balance(
    spec: SymmetrySpec, params: Params, count_bias: bool, limits: Limits, dtype: np.dtype
) -> Balanced:
    mass = mass_of(spec, params, count_bias)
    return _rescaled(spec, params, mass, minimise(mass, limits), count_bias, dtype)


def _balance_on_host(
    spec: SymmetrySpec, params: Params, count_bias: bool, limits: Limits, dtype: np.dtype
) -> Balanced:
    """The same in three smaller programs: one for all would take a large network a minute to compile."""
    mass = _mass_of(spec, params, count_bias)
    rescaled = quickly_compiled(_rescaled, "spec", "count_bias", "dtype")
    return rescaled(spec, params, mass, minimise_on_host(mass, limits), count_bias, dtype)


_mass_of = jax.jit(mass_of, static_argnames=("spec", "count_bias"))


def _rescaled(
    spec: SymmetrySpec, params: Params, mass: Mass, minimum: Minimum, count_bias: bool, dtype: np.dtype
) -> Balanced:
    scales = {name: jnp.exp(value) for name, value in minimum.logs.items() if len(value)}
    element = identity(spec)._replace(scales=scales)
    scaled = act(spec, element, jax.tree.map(_widened, params))
    if count_bias:
        scaled = _without_dead(spec, minimum.alive, scaled)
    found = Balanced(
        None,
        mass.total(),
        replace(mass_of(spec, scaled, count_bias), rest=mass.rest).total(),
        minimum.residual,
        {
            name: jnp.sum(jnp.any(value == 0, axis=0), dtype=jnp.int32)
            for name, value in minimum.alive.items()
        },
        element,
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
