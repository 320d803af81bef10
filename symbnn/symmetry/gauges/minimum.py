"""Minimiser of the mass over the scales: sweeps that cannot raise it, then Newton.

A sweep updates all units at once. With P and N the positive and negative pull on a unit and E± the largest
Σ|c| of a term that pulls so, convexity of exp bounds m by a sum of one-unit functions with the minimum

    u ← u + log(N / P) / (2 (E₊ + E₋)),

so no sweep can raise the mass. A damped Newton method finishes, in float64: the residual is squared in the
mass, which float32 would not resolve.
"""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from symbnn.symmetry.gauges.mass import Logs, Mass, Term
from symbnn.symmetry.numerics import quick_options
from symbnn.symmetry.spec import SymmetrySpec

# Up to here the Hessian is built and factorised; above, conjugate gradients only multiply with it.
DENSE_UNKNOWNS = 256
# A balanced unit is pulled by the geometric mean of what pulls it now. Below this share of the largest one it
# is dead: a factor of float32 zeros and denormals.
DEAD = 1e-30

Value = Callable[[jax.Array], jax.Array]


class Limits(NamedTuple):
    """When to stop."""

    sweeps: int
    steps: int
    tolerance: float
    """Of Newton's decrement, relative to the mass."""


class Minimum(NamedTuple):
    """Where the mass is least."""

    logs: Logs
    alive: Logs
    """1 for units whose scale has a minimum, 0 for dead ones."""
    residual: jax.Array


def minimise_on_host(mass: Mass, limits: Limits) -> Minimum:
    """The same steps, driven by the host: only the pull and its derivative are compiled.

    The mass is convex along a step, so its slope at the end tells whether the step was too long.
    """
    unravel, reach = partial(_apart, mass.spec), _reaches(mass)
    logs, alive, gap = np.zeros(reach.size), np.ones(reach.size), np.inf
    pull, push = partial(quickly_compiled(_pull), mass), partial(quickly_compiled(_push), mass)
    for step in range(limits.sweeps + limits.steps):
        down, up = (np.asarray(value) for value in pull(logs, alive))
        balanced = np.sqrt(down) * np.sqrt(up)
        kept = alive * (balanced > DEAD * balanced.max())
        is_settled, alive = np.array_equal(kept, alive), kept
        total = np.where(alive > 0, down + up, 1)
        gap = np.max(alive * np.abs(down - up) / total)
        if step < limits.sweeps or not is_settled:
            logs = logs + np.log(np.where(alive > 0, up, 1) / np.where(alive > 0, down, 1)) / (2 * reach)
            continue
        slope = 2 * alive * (down - up)
        change = _host_direction(partial(push, logs, alive), slope, alive, total)
        decrement = -slope @ change
        if decrement <= limits.tolerance * np.sum(alive * total):
            break
        length = 1.0
        while length > 1e-12:
            further_down, further_up = (np.asarray(v) for v in pull(logs + length * change, alive))
            if 2 * (alive * (further_down - further_up)) @ change <= decrement / 2:
                break
            length /= 2
        logs = logs + length * change
    return Minimum(unravel(jnp.asarray(logs)), unravel(jnp.asarray(alive)), jnp.asarray(gap))


class _State(NamedTuple):
    """What the minimisation carries; arrays over all units, flat."""

    logs: jax.Array
    alive: jax.Array
    residual: jax.Array
    decrement: jax.Array
    """Newton's, relative to the mass: about twice the distance to the minimum."""
    step: jax.Array


def minimise(mass: Mass, limits: Limits) -> Minimum:
    """Sweeps, then damped Newton steps; units that turn out dead are taken out on the way. Traceable."""
    unravel, reach = partial(_apart, mass.spec), _reaches(mass)
    start = jnp.zeros(reach.size, jnp.float64)
    endless = jnp.array(jnp.inf, start.dtype)

    def advance(state: _State) -> _State:
        (down, up), change_of_pull = jax.linearize(lambda u: _pull(mass, u, state.alive), state.logs)
        balanced = jnp.sqrt(down) * jnp.sqrt(up)
        alive = state.alive * (balanced > DEAD * jnp.max(balanced))
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
                return mass.scaled(unravel(u), unravel(u), unravel(alive))

            stepped = _backtracked(value, state.logs, change, decrement)
            return stepped, decrement / jnp.sum(alive * total)

        is_sweep = (state.step < limits.sweeps) | ~is_settled
        logs, decrement = jax.lax.cond(is_sweep, sweep, newton)
        return _State(logs, alive, gap, decrement, state.step + 1)

    first = _State(start, jnp.ones_like(start), endless, endless, jnp.array(0))

    def is_open(state: _State) -> jax.Array:
        return (state.decrement > limits.tolerance) & (state.step < limits.sweeps + limits.steps)

    end = jax.lax.while_loop(is_open, advance, first)
    return Minimum(unravel(end.logs), unravel(end.alive), end.residual)


def _reach(terms: tuple[Term, ...], group: str, generator: int) -> float:
    """E₊ + E₋ of the bound in the module's docstring."""
    largest = {1: 0.0, -1: 0.0}
    for term in terms:
        for exponent in term.exponents().get((group, generator), []):
            side = 1 if exponent > 0 else -1
            largest[side] = max(largest[side], float(term.reach()))
    return sum(largest.values())


def _direction(product: Value, slope: jax.Array, diagonal: jax.Array) -> jax.Array:
    """Newton's: minus the inverse Hessian times the slope."""
    if slope.size > DENSE_UNKNOWNS:
        scaled: Value = partial(jnp.multiply, 1 / diagonal)
        return jax.scipy.sparse.linalg.cg(product, -slope, tol=1e-8, maxiter=1000, M=scaled)[0]
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


def _host_direction(push: Callable, slope: np.ndarray, alive: np.ndarray, total: np.ndarray) -> np.ndarray:
    diagonal = np.where(alive > 0, 4 * total, 1)
    size = (slope.size, slope.size)
    hessian = LinearOperator(size, lambda v: 2 * alive * np.asarray(push(alive * v)) + (1 - alive) * v)
    scaled = LinearOperator(size, lambda v: v / diagonal)
    return cg(hessian, -slope, rtol=1e-8, maxiter=1000, M=scaled)[0]


def _shapes(spec: SymmetrySpec) -> dict[str, tuple[int, ...]]:
    """Of the logarithms u by group."""
    return {group.name: (group.num_scales, *spec.shape(group)) for group in spec.groups}


def _apart(spec: SymmetrySpec, flat: Any) -> Logs:
    """Flat u, or anything like it, by group."""
    shapes = _shapes(spec)
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    starts = [0, *ends[:-1]]
    return {
        name: flat[start:end].reshape(shape)
        for (name, shape), start, end in zip(shapes.items(), starts, ends, strict=True)
    }


def _flat(spec: SymmetrySpec, logs: Logs) -> jax.Array:
    """The inverse of `_apart`."""
    return jnp.concatenate([logs[group.name].ravel() for group in spec.groups])


def _reaches(mass: Mass) -> np.ndarray:
    return np.concatenate(
        [
            np.full(math.prod(shape[1:]), _reach(mass.terms, name, generator))
            for name, shape in _shapes(mass.spec).items()
            for generator in range(shape[0])
        ]
    )


def _pull(mass: Mass, logs: jax.Array, alive: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Pull down and up on every unit, flat."""
    both = mass.flow(_apart(mass.spec, logs), _apart(mass.spec, alive))
    return _flat(mass.spec, both.positive), _flat(mass.spec, both.negative)


def _push(mass: Mass, logs: jax.Array, alive: jax.Array, change: jax.Array) -> jax.Array:
    """Change of the pull down minus the pull up along `change`."""
    _, (down, up) = jax.jvp(lambda u: _pull(mass, u, alive), (logs,), (change,))
    return down - up


@cache
def quickly_compiled(function: Callable, *static_argnames: str) -> Callable:
    """Jitted for a large network: the products with vectors that it consists of do not get slower."""
    return jax.jit(function, static_argnames=static_argnames, compiler_options=quick_options())
