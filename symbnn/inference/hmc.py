"""Hamiltonian Monte Carlo with the full-data gradient, as Izmailov et al. (2021) run it on networks.

    p ~ N(0, M);   L leapfrog steps of size ε;   accept with probability min(1, exp(-ΔH)),
    ΔH = -Δ log p(w | D) + ½ Σ_i [p'_i² - p_i²] / m_i

The kernel is our own: BlackJAX keeps the energy in one float, which at a million weights is too coarse (see
`density.parts`); here every difference is formed weight by weight, so acceptance is right in float32. The
default trajectory is π σ √T / 2, a quarter of the period of the prior's own oscillation; measured against
a diagonal mass, whose inverse is the variances, every weight has unit scale and the quarter period is π / 2.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from symbnn.density import LogDensity, Target
from symbnn.inference.base import Fit, Method, Sink, check_count
from symbnn.inference.chains import adaptation, driver
from symbnn.inference.chains.kernels import Info, Kernel, Tuning, is_divergence, sample_momentum
from symbnn.inference.chains.placement import EVERYWHERE, Placement
from symbnn.inference.chains.settings import Run, check_positive, sampler
from symbnn.inference.progress import ShowProgress
from symbnn.inference.storage import IN_MEMORY, Storage
from symbnn.types import Key, Params, Samples

MAX_NUM_STEPS = 1000
"""Of a trajectory whose step size adapts, which may be tiny for a while."""


class HMCState(NamedTuple):
    """Where a chain is, with what the next transition would otherwise compute again."""

    position: Params
    log_likelihood: Array
    gradient: Params


@sampler
def hmc(
    *,
    num_chains: int = 4,
    num_samples: int = 1000,
    num_burnin: int = 100,
    step_size: float | None = None,
    num_steps: int | None = None,
    trajectory: float | None = None,
    jitter: float = 0.0,
    thinning: int = 1,
    mass: adaptation.Mass | None = None,
    target_acceptance: float | None = None,
    max_num_steps: int | None = None,
    initial: Samples | None = None,
    chunk_size: int | None = None,
    placement: Placement = EVERYWHERE,
    storage: Storage = IN_MEMORY,
    progress: ShowProgress = "auto",
    sink: Sink | None = None,
) -> Method:
    """HMC over the weights of a network, or over any target with a log-density.

    Args:
        step_size: Of the leapfrog integrator; None adapts it by windows in the burn-in.
        num_steps: Leapfrog steps per transition; None is as many as `trajectory` / `step_size`.
        trajectory: Length of a transition; None is a quarter of the period of the prior's own oscillation.
        jitter: In [0, 1): every step size is uniform on ±jitter around its value, which breaks periods.
        mass: While adapting, "diagonal" finds a mass for every weight; None is "identity".
        target_acceptance: What the adaptation aims at; None is 0.8.
        max_num_steps: Most steps of a transition whose step size adapts, in the burn-in, when it may be tiny,
            and after it; None is 1000.
        (settings of all samplers)
    """
    run = Run.of(locals())
    _check(step_size, num_steps, trajectory, jitter, max_num_steps)
    adaptation.require_adapting(
        step_size, mass=mass, target_acceptance=target_acceptance, max_num_steps=max_num_steps
    )
    if step_size is None:
        adaptation.check_windows(num_burnin, mass=mass, target_acceptance=target_acceptance)
    most = MAX_NUM_STEPS if max_num_steps is None else max_num_steps

    def method(key: Key, target: Target) -> Fit:
        length, steps = default_trajectory(target) if trajectory is None else trajectory, num_steps
        if step_size is None:
            tuner = adaptation.windows(
                num_burnin,
                initial_step_size=adaptation.first_step_size(target),
                mass=mass or "identity",
                target_acceptance=target_acceptance,
                length=length,
                # A quarter period against either mass.
                length_with_mass=0.5 * math.pi if trajectory is None else trajectory,
            )
        else:
            steps = num_steps or max(1, math.ceil(length / step_size - 1e-6))
            tuner = adaptation.fixed(step_size=step_size, length=steps * step_size)
        name = f"hmc(num_steps={steps}, max_num_steps={most}, jitter={jitter}, {tuner.name})"
        kernel = build_kernel(num_steps=steps, jitter=jitter, max_num_steps=most)
        return driver.run(key, target, kernel, tuner, run, name=name)

    return method


def default_trajectory(target: Target) -> float:
    """π σ √T / 2 with σ² the mean prior variance of a weight: for unit masses."""
    return 0.5 * math.pi * adaptation.prior_radius(target) / math.sqrt(adaptation.num_weights(target))


def build_kernel(*, num_steps: int | None, jitter: float = 0.0, max_num_steps: int = MAX_NUM_STEPS) -> Kernel:
    """The Markov kernel; without `num_steps`, as many as the tuned length and step size say."""

    def init(key: Key, params: Params, density: LogDensity) -> HMCState:
        return HMCState(params, *density.likelihood_and_gradient(params))

    def step(key: Key, state: HMCState, tuning: Tuning, density: LogDensity) -> tuple[HMCState, Info]:
        key_momentum, key_uniform = jax.random.split(key)
        for_jitter, for_acceptance = jax.random.uniform(key_uniform, (2,))
        momentum = sample_momentum(key_momentum, state.position, tuning.inverse_mass)
        factor = 1.0 + jitter * (2.0 * for_jitter - 1.0)
        size = (tuning.step_size * factor).astype(state.log_likelihood.dtype)
        count: Any = num_steps
        if count is None:
            count = jnp.clip(jnp.ceil(tuning.length / tuning.step_size), 1, max_num_steps).astype(jnp.int32)
        proposal, end = leapfrog(state, momentum, size, count, tuning.inverse_mass, density)
        gain = density.difference(
            proposal.position, proposal.log_likelihood, state.position, state.log_likelihood
        )
        energy_error = kinetic_difference(end, momentum, tuning.inverse_mass) - gain
        probability = jnp.where(jnp.isnan(energy_error), 0.0, jnp.exp(-jnp.maximum(energy_error, 0.0)))
        accept = for_acceptance < probability
        new = jax.tree.map(lambda a, b: jnp.where(accept, a, b), proposal, state)
        log_density = density.assemble(new.position, new.log_likelihood)
        divergent = is_divergence(energy_error)
        return new, Info(probability, log_density, divergent, energy_error, jnp.asarray(count, jnp.int32))

    return Kernel(init, step)


def leapfrog(
    state: HMCState,
    momentum: Params,
    step_size: Array,
    num_steps: Any,
    inverse_mass: Params,
    density: LogDensity,
) -> tuple[HMCState, Params]:
    """Half a kick, `num_steps` drifts with kicks between them, and half a kick.

    The log-likelihood itself is needed at the end only: within the loop it would cost one step in twenty of a
    small network.
    """

    def drift(position: Params, momentum: Params) -> Params:
        return jax.tree.map(lambda w, p, v: w + step_size * v * p, position, momentum, inverse_mass)

    def kick(momentum: Params, gradient: Params, size: Array) -> Params:
        return jax.tree.map(lambda p, g: p + size * g, momentum, gradient)

    def body(_: Any, carry: tuple[Params, Params]) -> tuple[Params, Params]:
        position = drift(*carry)
        _, gradient = density.likelihood_and_gradient(position)
        return position, kick(carry[1], gradient, step_size)

    start = (state.position, kick(momentum, state.gradient, 0.5 * step_size))
    position, momentum = jax.lax.fori_loop(0, num_steps - 1, body, start)
    position = drift(position, momentum)
    end = HMCState(position, *density.likelihood_and_gradient(position))
    return end, kick(momentum, end.gradient, 0.5 * step_size)


def kinetic_difference(new: Params, old: Params, inverse_mass: Params) -> Array:
    """½ Σ_i (new_i² - old_i²) / m_i, as (new - old)(new + old): no two large numbers are subtracted."""
    terms = jax.tree.map(lambda a, b, v: jnp.sum((a - b) * (a + b) * v), new, old, inverse_mass)
    return 0.5 * jax.tree.reduce(jnp.add, terms)


def _check(
    step_size: float | None,
    num_steps: int | None,
    trajectory: float | None,
    jitter: float,
    max_num_steps: int | None,
) -> None:
    check_positive(step_size=step_size, trajectory=trajectory)
    for name, value in {"num_steps": num_steps, "max_num_steps": max_num_steps}.items():
        if value is not None:
            check_count(name, value)
    if num_steps is not None and trajectory is not None:
        raise ValueError("Give num_steps or trajectory, not both: num_steps is trajectory / step_size")
    if not 0 <= jitter < 1:
        raise ValueError(f"jitter must be in [0, 1); got {jitter}")
    if max_num_steps is not None and num_steps is not None:
        raise ValueError(
            "max_num_steps applies only when num_steps is None; got both "
            f"(max_num_steps={max_num_steps}, num_steps={num_steps})"
        )
