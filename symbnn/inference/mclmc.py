"""Microcanonical Langevin Monte Carlo (Robnik et al. 2023), adjusted and not, from BlackJAX.

The momentum is a unit vector u; the dynamics conserve energy and move at unit speed, and u is forgotten
over a length L. Unadjusted, a step costs two gradients and is always taken: its bias is set by the variance
of the energy error per dimension, which the burn-in brings to a wanted value. Adjusted, a trajectory is a
Metropolis proposal.

For networks, start from a trained ensemble (`initial`), with small steps, and let the wanted variance fall
from 0.5 to 0.1 in the burn-in: the recipe of MILE (Sommer et al. 2025), whose first step size is 1e-3
because BlackJAX's own √d / 4 throws a network off its mode.
"""

import math
from functools import partial
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
from blackjax.mcmc.adjusted_mclmc import adjusted_mclmc_proposal
from blackjax.mcmc.hmc import HMCState
from blackjax.mcmc.integrators import IntegratorState, isokinetic_mclachlan, with_isokinetic_maruyama
from blackjax.mcmc.proposal import static_binomial_sampling
from blackjax.util import generate_unit_vector
from jaxtyping import Array

from symbnn import tree
from symbnn.density import LogDensity, Target
from symbnn.inference.base import Fit, Method, Sink, check_count
from symbnn.inference.chains import adaptation, driver
from symbnn.inference.chains.energy_variance import check_burnin
from symbnn.inference.chains.energy_variance import energy_variance as energy_variance_tuner
from symbnn.inference.chains.kernels import Info, Kernel, Tuning, is_divergence
from symbnn.inference.chains.relative import Density, relative_kernel
from symbnn.inference.chains.settings import Run, check_positive, sampler
from symbnn.inference.placement import EVERYWHERE, Placement
from symbnn.inference.progress import ShowProgress
from symbnn.inference.storage import IN_MEMORY, Storage
from symbnn.types import Key, Params, Samples

FIRST_STEP_SIZE = 1e-3
ENERGY_VARIANCE = (0.5, 0.1)
TARGET_ACCEPTANCE = 0.9
GRADIENTS_PER_STEP = 2
"""Of McLachlan's integrator, which takes two half steps with a gradient each."""


@sampler
def mclmc(
    *,
    num_chains: int = 4,
    num_samples: int = 1000,
    num_burnin: int = 1000,
    step_size: float | None = None,
    length: float | None = None,
    kernel: str = "unadjusted",
    energy_variance: tuple[float, float] | None = None,
    target_acceptance: float | None = None,
    max_num_steps: int = 1000,
    thinning: int = 10,
    initial: Samples | None = None,
    chunk_size: int | None = None,
    placement: Placement = EVERYWHERE,
    storage: Storage = IN_MEMORY,
    progress: ShowProgress = "auto",
    sink: Sink | None = None,
) -> Method:
    """MCLMC over the weights of a network, or over any target with a log-density.

    Args:
        step_size: Of the integrator; None adapts it in the burn-in.
        length: Over which the momentum is forgotten; None is, unadjusted, the spread √Σ_i var(w_i) seen in
            the burn-in and, adjusted, π σ √(T d) / 2.
        kernel: "unadjusted" takes every step, with a small bias; "adjusted" is exact.
        energy_variance: Wanted of the unadjusted kernel, per dimension, at the start and at the end of the
            burn-in; None is (0.5, 0.1). It is that of usual steps: where a few errors are far larger, as with
            ReLU networks, the mean square (`energy_error`²) is several times as large. Smaller values have
            less bias and move more slowly.
        target_acceptance: What the adaptation of the adjusted kernel aims at; None is 0.9.
        max_num_steps: Most steps, on average, of an adjusted trajectory.
        (settings of all samplers)
    """
    run = Run.of(locals())
    check_positive(step_size=step_size, length=length)
    adaptation.require_adapting(
        step_size, energy_variance=energy_variance, target_acceptance=target_acceptance
    )
    _check(kernel, energy_variance, target_acceptance)
    check_count("max_num_steps", max_num_steps)
    if kernel == "adjusted" and step_size is None:
        adaptation.check_windows(num_burnin, target_acceptance=target_acceptance)
    if kernel == "unadjusted" and (step_size is None or length is None):
        check_burnin(num_burnin, finds_length=length is None)

    def method(key: Key, target: Target) -> Fit:
        distance = length or 0.5 * math.pi * adaptation.prior_radius(target)
        if step_size is not None and (length is not None or kernel == "adjusted"):
            tuner = adaptation.fixed(step_size=step_size, length=distance)
        elif kernel == "adjusted":
            tuner = _windows(target, num_burnin, target_acceptance, distance)
        else:
            tuner = energy_variance_tuner(
                num_burnin,
                step_size=step_size,
                initial_step_size=FIRST_STEP_SIZE,
                length=length,
                initial_length=distance,
                variance=ENERGY_VARIANCE if energy_variance is None else energy_variance,
            )
        built = adjusted_kernel(max_num_steps) if kernel == "adjusted" else unadjusted_kernel()
        name = f"mclmc({kernel}, {max_num_steps}, {tuner.name})"
        return driver.run(key, target, built, tuner, run, name=name)

    return method


def unadjusted_kernel() -> Kernel:
    """One step of the dynamics; one that ends in numbers that are not finite is not taken, and u is turned.

    BlackJAX's own kernel takes the same step, but draws two more directions in every one of them, for steps
    that are refused, which takes longer than the dynamics.
    """

    def init(key: Key, params: Params, density: LogDensity) -> Any:
        return blackjax.mclmc.init(params, density, key)

    def step(key: Key, state: IntegratorState, tuning: Tuning, density: LogDensity) -> tuple[Any, Info]:
        integrate = with_isokinetic_maruyama(isokinetic_mclachlan(density, inverse_mass_matrix=1.0))
        # The first of three, as BlackJAX's own kernel: the same draws.
        key_noise = jax.random.split(key, 3)[0]
        new, kinetic = integrate(state, tuning.step_size, tuning.length, key_noise)
        energy_error = kinetic - new.logdensity + state.logdensity
        is_finite = tree.is_finite((new, energy_error))
        turned = state._replace(momentum=jax.tree.map(jnp.negative, state.momentum))
        new = jax.tree.map(partial(jnp.where, is_finite), new, turned)
        return new, Info(
            acceptance=is_finite.astype(jnp.float32),
            is_divergent=~is_finite,
            energy_error=jnp.where(is_finite, energy_error, 0.0),
            num_gradients=jnp.asarray(GRADIENTS_PER_STEP),
            log_density=new.logdensity,
        )

    # BlackJAX draws its noise for all weights at once, so a vector of them gets the same.
    return Kernel(init, step, takes_vectors=True)


def adjusted_kernel(max_num_steps: int) -> Kernel:
    """A trajectory of random length, on average `tuning.length`, then Metropolis.

    The log-density is measured from the start of the trajectory (see `chains.relative`); the change of the
    kinetic energy is summed step by step by BlackJAX. So the acceptance is right in float32. BlackJAX's own
    kernel reports the acceptance only, from which an energy error above 87 cannot be told; so its proposal is
    called as that kernel calls it, with a choice that reports the logarithm too.
    """

    def move(key: Key, start: HMCState, relative: Density, tuning: Tuning) -> tuple[HMCState, Info]:
        key_steps, key_move = jax.random.split(key)
        key_momentum, key_trajectory = jax.random.split(key_move)
        average = jnp.clip(tuning.length / tuning.step_size, 1.0, max_num_steps)
        num_steps = jnp.ceil(2.0 * average * jax.random.uniform(key_steps)).astype(jnp.int32)
        num_steps = jnp.maximum(num_steps, 1)
        propose = adjusted_mclmc_proposal(
            with_isokinetic_maruyama(isokinetic_mclachlan(relative, inverse_mass_matrix=1.0)),
            tuning.step_size,
            L_proposal_factor=jnp.inf,
            num_integration_steps=num_steps,
            sample_proposal=_accept_and_tell,
        )
        momentum = generate_unit_vector(key_momentum, start.position)
        new, info, log_probability = propose(
            key_trajectory, IntegratorState(start.position, momentum, *start[1:])
        )
        return HMCState(new.position, new.logdensity, new.logdensity_grad), Info(
            acceptance=info.acceptance_rate,
            is_divergent=is_divergence(-log_probability),
            energy_error=-log_probability,
            num_gradients=GRADIENTS_PER_STEP * num_steps,
            log_density=new.logdensity,
        )

    return relative_kernel(move)


def _accept_and_tell(key: Key, log_probability: Array, old: Any, new: Any) -> tuple[Any, Any]:
    """BlackJAX's choice between two states, with the logarithm of the odds, before it is cut at one."""
    chosen, (is_accepted, probability, _) = static_binomial_sampling(key, log_probability, old, new)
    return chosen, (is_accepted, probability, log_probability)


def _windows(target: Target, num_burnin: int, wanted: float | None, length: float) -> adaptation.Tuner:
    """Adaptation of the step size of trajectories of `length`, which is of order √d, and so is a step."""
    return adaptation.windows(
        num_burnin,
        initial_step_size=FIRST_STEP_SIZE * math.sqrt(adaptation.num_weights(target)),
        mass="identity",
        target_acceptance=TARGET_ACCEPTANCE if wanted is None else wanted,
        length=length,
    )


def _check(kernel: str, energy_variance: tuple[float, float] | None, target_acceptance: float | None) -> None:
    """The name of the kernel, and that no setting of the other one, which would be ignored, is given."""
    if kernel not in ("unadjusted", "adjusted"):
        raise ValueError(f"kernel must be 'unadjusted' or 'adjusted'; got {kernel!r}")
    if energy_variance is not None and not all(0 < value < math.inf for value in energy_variance):
        raise ValueError(f"energy_variance must be two positive numbers; got {energy_variance}")
    if kernel == "adjusted" and energy_variance is not None:
        raise ValueError(f"energy_variance applies only to kernel='unadjusted'; got {energy_variance}")
    if kernel == "unadjusted" and target_acceptance is not None:
        raise ValueError(f"target_acceptance applies only to kernel='adjusted'; got {target_acceptance}")
