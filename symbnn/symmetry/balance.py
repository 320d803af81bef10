"""Minimum mass: the point of least L2 norm among all rescalings of a network.

Minimises the posynomial m(u) of `posynomial`. At the minimum every unit is balanced, its incoming and
outgoing squared weights are equal: they form a flow from the inputs (and biases) to the outputs. In a chain
without biases every layer then has the same mass. Laurent, Aldea & Franchi (2024); the sweeps generalise
Stock et al., "Equi-normalization of neural networks" (2019), to any exponents.

A sweep updates all units at once. With P and N the positive and negative pull on a unit and E± the largest
Σ|c| of a term that pulls so, convexity of exp bounds m by a sum of one-unit functions with the minimum

    u ← u + log(N / P) / (2 (E₊ + E₋)),

so no sweep can raise the mass. A damped Newton method finishes, in float64: the residual is squared in the
mass, which float32 would not resolve.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from symbnn import tree
from symbnn.symmetry.act import Element, act, identity, multiplier
from symbnn.symmetry.pieces import join, split
from symbnn.symmetry.posynomial import (
    Logs,
    Term,
    degenerate_groups,
    exponents_one,
    flow,
    masked,
    mass,
    squares,
    terms,
)
from symbnn.symmetry.spec import SymmetrySpec, check_params
from symbnn.types import Params

# Up to here the Hessian is built and factorised; above, conjugate gradients only multiply with it.
DENSE_UNKNOWNS = 256
# Pull below this share of the largest one is no pull at all: squared weights of float32 zeros and denormals.
DEAD = 1e-30


Value = Callable[[jax.Array], jax.Array]


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
    """Minimum mass over the positive scaling orbit; jits and vmaps.

    With `count_bias` the mass is the whole squared norm, as weight decay sees it, and dead units are set to
    zero, the limit of their orbit; without, biases are scaled but not counted and dead units stay as they
    are. Newton stops when its decrement is below `tolerance` of the mass.
    """
    check_params(spec, params)
    _check_finite(params)
    parts = _parts(spec, count_bias)
    if not any(group.num_scales for group in spec.groups):
        raise ValueError("the spec has no scaling generators: there is nothing to balance")
    # Masses and scales go back in the precision that the caller works in.
    dtype = jnp.zeros(()).dtype
    with jax.enable_x64(True):
        found = _balance(spec, parts, params, count_bias, max_sweeps, max_steps, tolerance)
        return jax.tree.map(
            lambda leaf: leaf.astype(dtype) if leaf.dtype == jnp.float64 else leaf,
            found._replace(params=None),
        )._replace(params=found.params)


@lru_cache(maxsize=64)
def _parts(spec: SymmetrySpec, count_bias: bool) -> tuple[Term, ...]:
    parts = terms(spec, count_bias)
    degenerate = degenerate_groups(spec, parts)
    if degenerate:
        raise ValueError(
            f"the mass has no minimum: the scales of group {degenerate[0]!r} "
            + (f"(and of {len(degenerate) - 1} more groups) " if len(degenerate) > 1 else "")
            + "can shrink without any weight growing, as those before a normalisation layer; "
            "use normalise, or fold the normalisation into the weights first"
        )
    return parts


@partial(jax.jit, static_argnames=("spec", "parts", "count_bias", "max_sweeps", "max_steps", "tolerance"))
def _balance(
    spec: SymmetrySpec,
    parts: tuple[Term, ...],
    params: Params,
    count_bias: bool,
    max_sweeps: int,
    max_steps: int,
    tolerance: float,
) -> Balanced:
    weights, rest = squares(spec, params, count_bias)
    zero = jax.tree.map(lambda one: jnp.zeros(one.shape, jnp.float64), identity(spec).scales)
    before = mass(spec, parts, weights, zero, zero)
    alive = _alive(spec, parts, weights, zero)
    weights = masked(spec, parts, weights, alive)
    logs = jax.lax.fori_loop(0, max_sweeps, lambda _, u: _sweep(spec, parts, weights, alive, u), zero)
    logs = _newton(spec, parts, weights, alive, logs, max_steps, tolerance)
    element = identity(spec)._replace(scales={name: jnp.exp(value) for name, value in logs.items()})
    pull = flow(spec, parts, weights, logs)
    gap = jax.tree.map(
        lambda p, n, a: jnp.max(jnp.where(a > 0, jnp.abs(p - n) / jnp.where(a > 0, p + n, 1), 0)),
        pull.positive,
        pull.negative,
        alive,
    )
    scaled = act(spec, element, jax.tree.map(_widened, params))
    if count_bias:
        scaled = _without_dead(spec, alive, scaled)
    after = sum(squares(spec, scaled, count_bias)[0][i].sum() for i in range(len(parts))) + rest
    return Balanced(
        jax.tree.map(lambda new, old: new.astype(old.dtype), scaled, params),
        before + rest,
        after,
        jnp.max(jnp.stack(jax.tree.leaves(gap))),
        {name: jnp.sum(jnp.any(value == 0, axis=0), dtype=jnp.int32) for name, value in alive.items()},
        element,
    )


def _alive(spec: SymmetrySpec, parts: tuple[Term, ...], weights: tuple[jax.Array, ...], zero: Logs) -> Logs:
    """1 for units with pull on both sides through living units, 0 for the rest, peeled off round by round."""

    def peel(state: tuple[Logs, jax.Array]) -> tuple[Logs, jax.Array]:
        alive, _ = state
        pull = flow(spec, parts, masked(spec, parts, weights, alive), zero)
        largest = jnp.max(jnp.stack([jnp.max(leaf) for leaf in jax.tree.leaves(pull)]))
        kept = jax.tree.map(
            lambda p, n, a: a * (jnp.minimum(p, n) > DEAD * largest), pull.positive, pull.negative, alive
        )
        changed = [jnp.any(new != old) for new, old in zip(kept.values(), alive.values(), strict=True)]
        return kept, jnp.any(jnp.stack(changed))

    start = jax.tree.map(jnp.ones_like, zero)
    return jax.lax.while_loop(lambda state: state[1], peel, (start, jnp.array(True)))[0]


def _sweep(
    spec: SymmetrySpec, parts: tuple[Term, ...], weights: tuple[jax.Array, ...], alive: Logs, logs: Logs
) -> Logs:
    """One update of all units, which never raises the mass."""
    pull = flow(spec, parts, weights, logs)
    result = {}
    for name, value in logs.items():
        reach = jnp.array([_reach(parts, name, k) for k in range(len(value))])
        reach = reach.reshape(-1, *[1] * (value.ndim - 1))
        living = alive[name] > 0
        ratio = jnp.where(living, pull.negative[name], 1) / jnp.where(living, pull.positive[name], 1)
        result[name] = value + jnp.log(ratio) / (2 * reach)
    return result


def _reach(parts: tuple[Term, ...], group: str, generator: int) -> float:
    """E₊ + E₋ of the bound in the module's docstring."""
    largest = {1: 0.0, -1: 0.0}
    for part in parts:
        for exponent in part.exponents().get((group, generator), []):
            side = 1 if exponent > 0 else -1
            largest[side] = max(largest[side], float(part.degree()))
    return sum(largest.values())


def _newton(
    spec: SymmetrySpec,
    parts: tuple[Term, ...],
    weights: tuple[jax.Array, ...],
    alive: Logs,
    logs: Logs,
    max_steps: int,
    tolerance: float,
) -> Logs:
    """Damped Newton steps until the decrement, about twice the distance to the minimum, is negligible."""
    start, unravel = ravel_pytree(logs)
    living = ravel_pytree(alive)[0]

    def value(u: jax.Array) -> jax.Array:
        return mass(spec, parts, weights, unravel(u), unravel(u))

    def curvature(u: jax.Array) -> jax.Array:
        """Diagonal of the Hessian where all exponents are ±1, of its size elsewhere."""
        pull = flow(spec, parts, weights, unravel(u))
        both = jax.tree.map(lambda p, n: 4 * (p + n), pull.positive, pull.negative)
        return jnp.where(living > 0, ravel_pytree(both)[0], 1)

    direction = _dense_direction if start.size <= DENSE_UNKNOWNS else _iterative_direction

    def step(state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        u, _, count = state
        slope = jax.grad(value)(u) * living
        change = direction(value, u, slope, living, curvature(u))
        decrement = -jnp.vdot(slope, change)
        return _backtracked(value, u, change, decrement), decrement / value(u), count + 1

    state = (start, jnp.array(jnp.inf, start.dtype), jnp.array(0))
    end = jax.lax.while_loop(lambda s: (s[1] > tolerance) & (s[2] < max_steps), step, state)
    return unravel(end[0])


def _dense_direction(
    value: Value, u: jax.Array, slope: jax.Array, living: jax.Array, diagonal: jax.Array
) -> jax.Array:
    hessian = jax.hessian(value)(u) * jnp.outer(living, living) + jnp.diag(1 - living)
    size = 1 / jnp.sqrt(diagonal)
    # Unit diagonal, and a ridge at the level of rounding for directions that no term depends on.
    scaled = hessian * jnp.outer(size, size) + 1e-14 * jnp.eye(len(u))
    return -size * jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(scaled), size * slope)


def _iterative_direction(
    value: Value, u: jax.Array, slope: jax.Array, living: jax.Array, diagonal: jax.Array
) -> jax.Array:
    _, product = jax.linearize(jax.grad(value), u)
    change, _ = jax.scipy.sparse.linalg.cg(
        lambda v: living * product(living * v) + (1 - living) * v,
        -slope,
        tol=1e-8,
        maxiter=1000,
        M=lambda v: v / diagonal,
    )
    return change


def _backtracked(value: Value, u: jax.Array, change: jax.Array, decrement: jax.Array) -> jax.Array:
    """Halve the step until the mass falls as it should, up to rounding."""
    here = value(u)

    def is_too_long(step: jax.Array) -> jax.Array:
        allowed = here * (1 + 1e-15) - 1e-4 * step * decrement
        return (value(u + step * change) > allowed) & (step > 1e-12)

    step = jax.lax.while_loop(is_too_long, lambda s: s / 2, jnp.ones((), u.dtype))
    return u + step * change


def _without_dead(spec: SymmetrySpec, alive: Logs, params: Params) -> Params:
    """Weights of dead units set to zero."""
    leaves = {leaf.name: leaf for leaf in spec.leaves}
    element = Element({}, alive, {})

    def cleared(name: str, array: jax.Array) -> jax.Array:
        axes = leaves[name].axes
        pieces = []
        for piece in split(axes, array):
            factors = exponents_one(piece.factors)
            for axis in range(len(factors)):
                value = multiplier(spec, element, factors, axis)
                piece = piece if value is None else piece._replace(array=piece.array * value)
            pieces.append(piece.array)
        return join(axes, pieces)

    return tree.map_named(cleared, params)


def _widened(leaf: jax.Array) -> jax.Array:
    return leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


def _check_finite(params: Params) -> None:
    for name, leaf in tree.named_leaves(params).items():
        if isinstance(leaf, jax.core.Tracer) or not jnp.issubdtype(leaf.dtype, jnp.floating):
            continue
        if not np.all(np.isfinite(np.asarray(leaf))):
            raise ValueError(f"leaf {name!r} has values that are not finite; their scale has no minimum")
