"""BlackJAX's kernels, whose energy is one float, made exact in float32 at a million weights.

Two shifts, which cancel in every difference, keep that float small, of order √d instead of d: the
log-density is measured from the start of the trajectory, weight by weight, and the kinetic energy from its
mean,

    H = -(log p(w) - log p(w_0)) + Σ_i ½ (p_i² / m_i - 1).

At a million weights H is then about 1e3, where neighbouring float32 numbers are 6e-5 apart; unshifted it is
about 1e6, where they are 0.06 apart and an energy error of 0.1 is lost.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.mcmc.hmc import HMCState
from blackjax.mcmc.metrics import Metric
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from symbnn.density import LogDensity
from symbnn.density.parts import total
from symbnn.inference.chains.kernels import Info, Kernel, Tuning, sample_momentum
from symbnn.types import Key, Params

Density = Callable[[Params], Array]
"""The log-density minus that at the start of a trajectory."""


class EvaluatedState(NamedTuple):
    """Where a chain is, with what the next transition would otherwise compute again."""

    position: Params
    log_likelihood: Array
    gradient: Params


def relative_kernel(
    move: Callable[[Key, HMCState, Density, Tuning], tuple[HMCState, Info]],
) -> Kernel:
    """A kernel of BlackJAX with log-densities measured from where it starts.

    `move(key, start, relative density, tuning)` gives the new state and an `Info` with its relative density.
    """

    def init(key: Key, params: Params, density: LogDensity) -> EvaluatedState:
        return EvaluatedState(params, *density.likelihood_and_gradient(params))

    def step(
        key: Key, state: EvaluatedState, tuning: Tuning, density: LogDensity
    ) -> tuple[EvaluatedState, Info]:
        here = HMCState(state.position, jnp.zeros_like(state.log_likelihood), state.gradient)
        there, info = move(key, here, density.relative_to(state.position, state.log_likelihood), tuning)
        likelihood = density.likelihood_after(
            there.logdensity, there.position, state.position, state.log_likelihood
        )
        new = EvaluatedState(there.position, likelihood, there.logdensity_grad)
        return new, info._replace(log_density=density.assemble(new.position, likelihood))

    return Kernel(init, step)


def centred_metric(params: Params, inverse_mass: Params) -> Metric:
    """A Euclidean metric on trees shaped like `params` whose kinetic energy has mean zero."""
    variances, _ = ravel_pytree(jax.tree.map(lambda v, w: jnp.broadcast_to(v, w.shape), inverse_mass, params))

    def kinetic_energy(momentum: Params, position: Any = None) -> Array:
        return 0.5 * total(jax.tree.map(lambda p, v: v * jnp.square(p) - 1.0, momentum, inverse_mass))

    def is_turning(
        left: Params, right: Params, total: Params, position_left: Any = None, position_right: Any = None
    ) -> Array:
        # BlackJAX keeps momenta of the trajectory in one array, so these come as trees or as vectors.
        p_left, p_right, p_total = (ravel_pytree(momentum)[0] for momentum in (left, right, total))
        velocity = variances * (p_total - 0.5 * (p_left + p_right))
        return (p_left @ velocity <= 0) | (p_right @ velocity <= 0)

    def scale(position: Params, element: Params, *, inv: bool, trans: bool) -> Params:
        power = 0.5 if inv else -0.5
        return jax.tree.map(lambda e, v: e * v**power, element, inverse_mass)

    return Metric(
        lambda key, position: sample_momentum(key, position, inverse_mass), kinetic_energy, is_turning, scale
    )
