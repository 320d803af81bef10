"""Hamiltonian Monte Carlo with the full-data gradient, as Izmailov et al. (2021) run it on networks.

    p ~ N(0, M);   L leapfrog steps of size ε;   accept with probability min(1, exp(-ΔH)),
    ΔH = -Δ log p(w | D) + ½ Σ_i [p'_i² - p_i²] / m_i

The kernel is BlackJAX's, with energies that float32 can hold (`chains.relative`). The default trajectory is
π σ √T / 2, a quarter of the period of the prior's own oscillation; measured against a diagonal mass, whose
inverse is the variances, every weight has unit scale and the quarter period is π / 2.

A step may be McLachlan's (1995) instead of the leapfrog: two half steps of the position with a gradient each,
momentum steps of 0.193, 0.614 and 0.193. Where the density is smooth its energy error is a tenth of that of
two leapfrog steps of half the size. With ReLU units, whose kinks make the error, it saves less: on MNIST's
196-32-10 a fifth of the gradients at the same error.
"""

import math
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
from blackjax.mcmc.hmc import HMCState
from blackjax.mcmc.integrators import mclachlan, velocity_verlet

from symbnn import keys
from symbnn.density import Target
from symbnn.inference.base import Fit, Method, Sink, check_count
from symbnn.inference.chains import adaptation, driver
from symbnn.inference.chains.kernels import Info, Kernel, Tuning
from symbnn.inference.chains.relative import Density, centred_metric, relative_kernel
from symbnn.inference.chains.settings import Run, check_positive, sampler
from symbnn.inference.placement import EVERYWHERE, Placement
from symbnn.inference.progress import ShowProgress
from symbnn.inference.storage import IN_MEMORY, Storage
from symbnn.names import lookup
from symbnn.types import Key, Samples

MAX_NUM_STEPS = 1000
"""Of a trajectory whose step size adapts, which may be tiny for a while."""

INTEGRATORS = {"leapfrog": (velocity_verlet, 1), "mclachlan": (mclachlan, 2)}
"""By name: BlackJAX's integrator, and the gradients of a step."""


@sampler
def hmc(
    *,
    num_chains: int = 4,
    num_samples: int = 1000,
    num_burnin: int = 100,
    step_size: float | None = None,
    num_steps: int | None = None,
    trajectory: float | None = None,
    integrator: str = "leapfrog",
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
        step_size: Of the integrator; None adapts it by windows in the burn-in.
        num_steps: Steps per transition; None is as many as `trajectory` / `step_size`.
        trajectory: Length of a transition; None is a quarter of the period of the prior's own oscillation.
        integrator: "leapfrog", or "mclachlan", whose step has two gradients and may be more than twice as
            long.
        jitter: In [0, 1): every step size is uniform on ±jitter around its value, which breaks periods.
        mass: While adapting, "diagonal" finds a mass for every weight, in a burn-in of at least 20; None is
            "identity".
        target_acceptance: What the adaptation aims at; None is 0.8.
        max_num_steps: Most steps of a transition whose step size adapts, in the burn-in, when it may be tiny,
            and after it; None is 1000.
        (settings of all samplers)
    """
    run = Run.of(locals())
    _check(step_size, num_steps, trajectory, jitter, max_num_steps)
    lookup(INTEGRATORS, integrator, "integrator")
    adaptation.require_adapting(
        step_size, mass=mass, target_acceptance=target_acceptance, max_num_steps=max_num_steps
    )
    if step_size is None:
        adaptation.check_windows(num_burnin, mass=mass, target_acceptance=target_acceptance)
        adaptation.require_mass(num_burnin, mass)
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
        # Left out where it is the leapfrog, so that runs kept before there was a choice go on.
        chosen = "" if integrator == "leapfrog" else f"integrator={integrator}, "
        name = f"hmc({chosen}num_steps={steps}, max_num_steps={most}, jitter={jitter}, {tuner.name})"
        kernel = build_kernel(num_steps=steps, jitter=jitter, max_num_steps=most, integrator=integrator)
        return driver.run(key, target, kernel, tuner, run, name=name)

    return method


def default_trajectory(target: Target) -> float:
    """π σ √T / 2 with σ² the mean prior variance of a weight: for unit masses."""
    return 0.5 * math.pi * adaptation.prior_radius(target) / math.sqrt(adaptation.num_weights(target))


def build_kernel(
    *,
    num_steps: int | None,
    jitter: float = 0.0,
    max_num_steps: int = MAX_NUM_STEPS,
    integrator: str = "leapfrog",
) -> Kernel:
    """The Markov kernel; without `num_steps`, as many as the tuned length and step size say."""
    step, gradients_per_step = INTEGRATORS[integrator]
    transition = blackjax.hmc.build_kernel(step)

    def move(key: Key, start: HMCState, relative: Density, tuning: Tuning) -> tuple[HMCState, Info]:
        metric = centred_metric(start.position, tuning.inverse_mass)
        factor = 1.0 + jitter * jax.random.uniform(keys.named(key, "jitter"), minval=-1.0, maxval=1.0)
        size = (tuning.step_size * factor).astype(start.logdensity.dtype)
        count: Any = num_steps
        if count is None:
            count = jnp.clip(jnp.ceil(tuning.length / tuning.step_size), 1, max_num_steps).astype(jnp.int32)
        new, info = transition(key, start, relative, size, metric, count)
        return new, Info(
            acceptance=info.acceptance_rate,
            is_divergent=info.is_divergent,
            energy_error=info.energy - metric.kinetic_energy(info.momentum),
            num_gradients=jnp.asarray(gradients_per_step * count, jnp.int32),
            log_density=new.logdensity,
        )

    return relative_kernel(move)


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
