"""Samplers that are wrong on purpose, in the ways samplers have been wrong: a test that is worth its name
sees them.

Each fault is planted in the code that users run, for as long as the context lasts; programs must be traced
within it.
"""

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import blackjax
import jax
import jax.numpy as jnp
from blackjax.mcmc import integrators
from blackjax.mcmc.hmc import hmc_proposal
from blackjax.mcmc.proposal import static_binomial_sampling
from jaxtyping import Array

from symbnn import density
from symbnn.inference.chains import relative
from tests.evidence.geweke import PRIOR, conditional

MCLMC = importlib.import_module("symbnn.inference.mclmc")
"""The module, which `symbnn.inference` hides behind its function."""
MASS = 1.2
"""Factor between the mass that momenta are drawn with and that of the kinetic energy."""
TEMPERATURE = 1.05


@contextlib.contextmanager
def always_accepted() -> Iterator[None]:
    """Every proposal is taken, whatever its energy."""

    def take(key: Any, log_probability: Array, old: Any, new: Any) -> Any:
        _, told = static_binomial_sampling(key, log_probability, old, new)
        return new, told

    proposal = functools.partial(hmc_proposal, sample_proposal=take)
    with _hmc(build_proposal=proposal), mock.patch.object(MCLMC, "static_binomial_sampling", take):
        yield


@contextlib.contextmanager
def missing_half_kick() -> Iterator[None]:
    """The momentum is not updated at the end of a step."""
    verlet = integrators.generate_euclidean_integrator([0.5, 1.0, 0.0])
    *kept, _ = integrators.mclachlan_coefficients
    isokinetic = integrators.generate_isokinetic_integrator([*kept, 0.0])
    with _hmc(integrator=verlet), mock.patch.object(MCLMC, "isokinetic_mclachlan", isokinetic):
        yield


@contextlib.contextmanager
def wrong_mass() -> Iterator[None]:
    """Momenta are drawn with another mass than their energy is measured with."""
    right = relative.sample_momentum

    def heavy(*arguments: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.sqrt(MASS) * leaf, right(*arguments))

    with mock.patch.object(relative, "sample_momentum", heavy):
        yield


def prior_twice(targets: Array) -> density.LogDensity:
    """The prior is counted twice."""
    right = conditional(targets)
    twice: Callable[[Any], Any] = lambda params: jax.tree.map(lambda leaf: 2 * leaf, PRIOR.log_probs(params))  # noqa: E731
    return density.LogDensity(right.log_likelihood, twice)


def wrong_temperature(targets: Array) -> density.LogDensity:
    """The temperature is 5 % too high."""
    return density.LogDensity(conditional(targets).log_likelihood, PRIOR.log_probs, TEMPERATURE)


@contextlib.contextmanager
def _hmc(**settings: Any) -> Iterator[None]:
    """BlackJAX's HMC and, where they apply, NUTS with other parts."""
    algorithms = (blackjax.hmc, blackjax.nuts) if "integrator" in settings else (blackjax.hmc,)
    with contextlib.ExitStack() as stack:
        for algorithm in algorithms:
            changed = functools.partial(algorithm.build_kernel, **settings)
            stack.enter_context(mock.patch.object(algorithm, "build_kernel", changed))
        yield


CODE_FAULTS: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "every proposal accepted": always_accepted,
    "a half kick missing": missing_half_kick,
    f"momenta of {MASS} times the mass": wrong_mass,
}
DENSITY_FAULTS: dict[str, Callable[[Array], density.LogDensity]] = {
    "prior counted twice": prior_twice,
    f"temperature {TEMPERATURE}": wrong_temperature,
}
