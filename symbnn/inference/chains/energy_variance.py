"""Tuning of unadjusted MCLMC: a step size at which the energy error has a wanted variance per dimension.

With ξ = ΔE² / (d · wanted) and ΔE normal, ξ is χ² with one degree of freedom exactly when the step size is
right. So Robbins and Monro's (1951) iteration

    log ε ← log ε + r_t (κ - ξ / (1 + ξ)),   κ = E[z² / (1 + z²)] = 1 - √(π e / 2) erfc(1 / √2),

settles there; ξ / (1 + ξ) is bounded, so no single step throws it. Averaging ξ ε⁻⁶, as in the original
proposal, is dominated by its smallest step sizes and takes thousands of steps to recover from a first one
of 1e-3.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from symbnn.inference.chains.adaptation import Tuner, choose, initial_tuning, welford
from symbnn.inference.chains.kernels import Info, Tuning
from symbnn.types import Params

BALANCE = 1.0 - math.sqrt(0.5 * math.pi * math.e) * math.erfc(math.sqrt(0.5))
FIRST_RATE, HALF_LIFE, DECAY = 0.3, 20.0, 0.6
"""r_t = 0.3 (1 + t / 20)^-0.6: five powers of e in the first hundred steps, 4 % noise after a thousand."""
RETREAT = 0.5
"""How much log ε falls after a step that was not finite."""


class EnergyState(NamedTuple):
    """Welford's sums for the spread of the weights; empty if the length is given."""

    num: Array
    mean: Params
    squares: Params


def energy_variance(
    num_burnin: int,
    *,
    step_size: float | None,
    initial_step_size: float,
    length: float | None,
    initial_length: float,
    variance: tuple[float, float],
) -> Tuner:
    """Whichever of step size and length is None is found in the burn-in; the other stays.

    The wanted variance goes from the first value of `variance` to the second, geometrically, over the first
    half of the burn-in; the length is √Σ_i var(w_i) over the second half.
    """
    check_burnin(num_burnin, finds_length=length is None)
    half = num_burnin // 2
    falling = jnp.linspace(math.log(variance[0]), math.log(variance[1]), half)
    wanted = jnp.exp(jnp.concatenate([falling, jnp.full(num_burnin - half, math.log(variance[1]))]))

    def init(params: Params) -> tuple[Tuning, EnergyState]:
        tuning = initial_tuning(params, step_size or initial_step_size, length or initial_length)
        zeros = jax.tree.map(jnp.zeros_like, params) if length is None else ()
        return tuning, EnergyState(jnp.zeros_like(tuning.step_size), zeros, zeros)

    def update(
        index: Array, state: EnergyState, tuning: Tuning, position: Params, info: Info
    ) -> tuple[Tuning, EnergyState]:
        if step_size is None:
            found = _next_step_size(index, tuning.step_size, position, info, wanted)
            tuning = tuning._replace(step_size=found)
        if length is None:
            state = choose(index >= half, welford(state, position), state)
            squares = jax.tree.reduce(jnp.add, jax.tree.map(jnp.sum, state.squares))
            spread = jnp.sqrt(squares / jnp.maximum(state.num, 1.0))
            tuning = tuning._replace(length=jnp.where(index == num_burnin - 1, spread, tuning.length))
        return tuning, state

    name = (
        f"energy_variance({num_burnin}, step_size={step_size}, initial_step_size={initial_step_size}, "
        f"length={length}, initial_length={initial_length}, variance={variance})"
    )
    return Tuner(name, init, update)


def check_burnin(num_burnin: int, *, finds_length: bool = True) -> None:
    """`ValueError` if there is no room to adapt: a length needs two positions in the second half."""
    least = 3 if finds_length else 2
    if num_burnin < least:
        raise ValueError(
            f"Step size and length adapt in the burn-in: give both, or num_burnin of at least {least}; "
            f"got {num_burnin}"
        )


def _next_step_size(index: Array, step_size: Array, position: Params, info: Info, wanted: Array) -> Any:
    dimension = sum(leaf.size for leaf in jax.tree.leaves(position))
    ratio = jnp.square(info.energy_error) / (dimension * wanted[index])
    rate = FIRST_RATE * (1.0 + index / HALF_LIFE) ** -DECAY
    change = jnp.where(info.is_divergent, -RETREAT, rate * (BALANCE - ratio / (1.0 + ratio)))
    return (step_size * jnp.exp(change)).astype(step_size.dtype)
