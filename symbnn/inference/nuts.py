"""The No-U-Turn Sampler (Hoffman & Gelman 2014) with multinomial proposals (Betancourt 2017), from BlackJAX,
with energies that float32 can hold (`chains.relative`)."""

import logging

import blackjax
from blackjax.mcmc.hmc import HMCState

from symbnn.density import Target
from symbnn.inference.base import Fit, Method, Sink, check_count
from symbnn.inference.chains import adaptation, driver
from symbnn.inference.chains.kernels import Info, Kernel, Tuning
from symbnn.inference.chains.relative import Density, centred_metric, relative_kernel
from symbnn.inference.chains.settings import Run, check_positive, sampler
from symbnn.inference.placement import EVERYWHERE, Placement
from symbnn.inference.progress import ShowProgress
from symbnn.inference.storage import IN_MEMORY, Storage
from symbnn.types import Key, Samples

logger = logging.getLogger(__name__)


@sampler
def nuts(
    *,
    num_chains: int = 4,
    num_samples: int = 1000,
    num_burnin: int = 500,
    step_size: float | None = None,
    max_doublings: int = 10,
    thinning: int = 1,
    mass: adaptation.Mass | None = None,
    target_acceptance: float | None = None,
    initial: Samples | None = None,
    chunk_size: int | None = None,
    placement: Placement = EVERYWHERE,
    storage: Storage = IN_MEMORY,
    progress: ShowProgress = "auto",
    sink: Sink | None = None,
) -> Method:
    """NUTS over the weights of a network, or over any target with a log-density.

    Args:
        step_size: Of the leapfrog integrator, with unit masses; None adapts it by windows in the burn-in.
        max_doublings: A trajectory that does not turn back ends after 2^`max_doublings` steps.
        mass: While adapting, None and "diagonal" find a mass for every weight, "identity" leaves them at 1.
            A burn-in of fewer than 20 finds none: None leaves them at 1 then, "diagonal" is refused.
        target_acceptance: What the adaptation aims at; None is 0.8.
        (settings of all samplers)
    """
    run = Run.of(locals())
    check_positive(step_size=step_size)
    adaptation.require_adapting(step_size, mass=mass, target_acceptance=target_acceptance)
    if step_size is None:
        adaptation.check_windows(num_burnin, mass=mass, target_acceptance=target_acceptance)
        adaptation.require_mass(num_burnin, mass)
        if mass is None and num_burnin < adaptation.LEAST_FOR_MASS:
            least = adaptation.LEAST_FOR_MASS
            logger.warning("nuts: masses stay at 1, a burn-in of %d is too short (%d)", num_burnin, least)
    check_count("max_doublings", max_doublings)

    def method(key: Key, target: Target) -> Fit:
        if step_size is None:
            tuner = adaptation.windows(
                num_burnin,
                initial_step_size=adaptation.first_step_size(target),
                mass=mass or "diagonal",
                target_acceptance=target_acceptance,
            )
        else:
            tuner = adaptation.fixed(step_size=step_size)
        name = f"nuts(max_doublings={max_doublings}, {tuner.name})"
        return driver.run(key, target, build_kernel(max_doublings=max_doublings), tuner, run, name=name)

    return method


def build_kernel(*, max_doublings: int = 10) -> Kernel:
    """The Markov kernel."""
    transition = blackjax.nuts.build_kernel()

    def move(key: Key, start: HMCState, relative: Density, tuning: Tuning) -> tuple[HMCState, Info]:
        metric = centred_metric(start.position, tuning.inverse_mass)
        new, info = transition(key, start, relative, tuning.step_size, metric, max_doublings)
        return new, Info(
            acceptance=info.acceptance_rate,
            is_divergent=info.is_divergent,
            energy_error=info.energy - metric.kinetic_energy(info.momentum),
            num_gradients=info.num_integration_steps,
            log_density=new.logdensity,
        )

    return relative_kernel(move)
