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
    ones = jax.tree.map(jnp.ones_like, zero)
    before = mass(spec, parts, weights, zero, zero, ones)
    logs, alive, residual = _minimise(spec, parts, weights, zero, max_sweeps, max_steps, tolerance)
    element = identity(spec)._replace(scales={name: jnp.exp(value) for name, value in logs.items()})
    scaled = act(spec, element, jax.tree.map(_widened, params))
    if count_bias:
        scaled = _without_dead(spec, alive, scaled)
    after = sum(squares(spec, scaled, count_bias)[0][i].sum() for i in range(len(parts))) + rest
    return Balanced(
        jax.tree.map(lambda new, old: new.astype(old.dtype), scaled, params),
        before + rest,
        after,
        residual,
        {name: jnp.sum(jnp.any(value == 0, axis=0), dtype=jnp.int32) for name, value in alive.items()},
        element,
    )


class _State(NamedTuple):
    """What the minimisation carries; arrays over all units, flat."""

    logs: jax.Array
    alive: jax.Array
    residual: jax.Array
    decrement: jax.Array
    """Newton's, relative to the mass: about twice the distance to the minimum."""
    step: jax.Array


def _minimise(
    spec: SymmetrySpec,
    parts: tuple[Term, ...],
    weights: tuple[jax.Array, ...],
    zero: Logs,
    max_sweeps: int,
    max_steps: int,
    tolerance: float,
) -> tuple[Logs, Logs, jax.Array]:
    """Sweeps, then damped Newton steps; units that turn out dead are taken out on the way."""
    start, unravel = ravel_pytree(zero)
    reach = ravel_pytree(
        {
            name: jnp.stack([jnp.full(value.shape[1:], _reach(parts, name, k)) for k in range(len(value))])
            for name, value in zero.items()
        }
    )[0]

    endless = jnp.array(jnp.inf, start.dtype)

    def advance(state: _State) -> _State:
        def pull(u: jax.Array) -> tuple[jax.Array, jax.Array]:
            both = flow(spec, parts, weights, unravel(u), unravel(state.alive))
            return ravel_pytree(both.positive)[0], ravel_pytree(both.negative)[0]

        (down, up), change_of_pull = jax.linearize(pull, state.logs)
        alive = state.alive * (jnp.minimum(down, up) > DEAD * jnp.max(jnp.maximum(down, up)))
        is_settled = jnp.all(alive == state.alive)
        total = jnp.where(alive > 0, down + up, 1)
        gap = jnp.max(alive * jnp.abs(down - up) / total)

        def sweep() -> tuple[jax.Array, jax.Array]:
            ratio = jnp.where(alive > 0, up, 1) / jnp.where(alive > 0, down, 1)
            return state.logs + jnp.log(ratio) / (2 * reach), endless

        def newton() -> tuple[jax.Array, jax.Array]:
            def curved(v: jax.Array) -> jax.Array:
                more_down, more_up = change_of_pull(alive * v)
                return 2 * alive * (more_down - more_up) + (1 - alive) * v

            # 4 (in + out) is the Hessian's diagonal where all exponents are ±1, and of its size elsewhere.
            diagonal = jnp.where(alive > 0, 4 * total, 1)
            slope = 2 * alive * (down - up)
            change = _direction(curved, slope, diagonal)
            decrement = -jnp.vdot(slope, change)

            def value(u: jax.Array) -> jax.Array:
                return mass(spec, parts, weights, unravel(u), unravel(u), unravel(alive))

            stepped = _backtracked(value, state.logs, change, decrement)
            return stepped, decrement / jnp.sum(alive * total)

        is_sweep = (state.step < max_sweeps) | ~is_settled
        logs, decrement = jax.lax.cond(is_sweep, sweep, newton)
        return _State(logs, alive, gap, decrement, state.step + 1)

    first = _State(start, jnp.ones_like(start), endless, endless, jnp.array(0))
    end = jax.lax.while_loop(
        lambda state: (state.decrement > tolerance) & (state.step < max_sweeps + max_steps), advance, first
    )
    return unravel(end.logs), unravel(end.alive), end.residual


def _reach(parts: tuple[Term, ...], group: str, generator: int) -> float:
    """E₊ + E₋ of the bound in the module's docstring."""
    largest = {1: 0.0, -1: 0.0}
    for part in parts:
        for exponent in part.exponents().get((group, generator), []):
            side = 1 if exponent > 0 else -1
            largest[side] = max(largest[side], float(part.degree()))
    return sum(largest.values())


def _direction(product: Value, slope: jax.Array, diagonal: jax.Array) -> jax.Array:
    """Newton's: minus the inverse Hessian times the slope."""
    if slope.size > DENSE_UNKNOWNS:
        return jax.scipy.sparse.linalg.cg(product, -slope, tol=1e-8, maxiter=1000, M=lambda v: v / diagonal)[
            0
        ]
    size = 1 / jnp.sqrt(diagonal)
    # Unit diagonal, and a ridge at the level of rounding for directions that no term depends on.
    hessian = jax.vmap(product)(jnp.eye(slope.size)) * jnp.outer(size, size)
    factor = jax.scipy.linalg.cho_factor(hessian + 1e-14 * jnp.eye(slope.size))
    return -size * jax.scipy.linalg.cho_solve(factor, size * slope)


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
