"""What a Markov chain is made of: a kernel, its tuning, and what a transition reports.

A kernel sees the target's log-density by its parts (`density.LogDensity`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from symbnn.density import LogDensity, draw_like
from symbnn.types import Key, Params

DIVERGENCE = 1000.0
"""An energy error above it means the integrator has left the level set: Stan's and BlackJAX's threshold."""


class Tuning(NamedTuple):
    """What adaptation sets, per chain."""

    step_size: Array
    inverse_mass: Params
    """Variances the momentum is measured against: scalars, or arrays shaped like the leaves."""
    length: Array
    """Length of a trajectory (HMC) or over which the momentum is forgotten (MCLMC)."""


class Info(NamedTuple):
    """What one transition reports."""

    acceptance: Any
    """Metropolis probability (NUTS: its mean over the trajectory; unadjusted MCLMC: 1 unless not finite)."""
    log_density: Any
    """At the new position."""
    is_divergent: Any = False
    energy_error: Any = 0.0
    num_gradients: Any = 0


class PositionState(NamedTuple):
    """Where a chain is, for kernels that need nothing else."""

    position: Params


class Kernel(NamedTuple):
    """A Markov kernel; its state has a field `position`."""

    init: Callable[[Key, Params, LogDensity], Any]
    """(key, position, log-density) -> state."""
    step: Callable[[Key, Any, Tuning, LogDensity], tuple[Any, Info]]
    """(key, state, tuning, log-density) -> (next state, what happened)."""
    takes_vectors: bool = False
    """Whether the weights may also be one vector, by which small networks save a program per leaf."""


def is_divergence(energy_error: Array) -> Array:
    """Far too large, or not a number."""
    return ~(energy_error < DIVERGENCE)


def sample_momentum(key: Key, params: Params, inverse_mass: Params) -> Params:
    """p ~ N(0, M)."""
    return jax.tree.map(lambda z, v: z / jnp.sqrt(v), draw_like(key, params), inverse_mass)
