"""What a Markov chain is made of: the density a chain sees, a kernel, its tuning, what a transition reports.

Energies in float32. A network of a million weights has |H| ~ 1e6, where neighbouring float32 numbers are
0.06 apart: an energy error of 0.1 would be lost in one number for H. So differences are formed weight by
weight and summed afterwards,

    Δ log p = (Δ log-likelihood + Σ_i [log p(w'_i) - log p(w_i)]) / T,

whose terms are of the size of the change, not of the total (as in Izmailov et al. 2021).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn.density import Target
from symbnn.types import Key, Params

DIVERGENCE = 1000.0
"""An energy error above it means the integrator has left the level set: Stan's and BlackJAX's threshold."""


class ChainDensity(NamedTuple):
    """The log-density as one chain sees it: its parts, so that differences can be formed term by term."""

    log_likelihood: Callable[[Params], Array]
    """Over all data, wherever it lies, with a gradient to match."""
    log_priors: Callable[[Params], Params]
    temperature: float

    def __call__(self, params: Params) -> Float[Array, ""]:
        """The log-density in one number."""
        return self.assemble(params, self.log_likelihood(params))

    def assemble(self, params: Params, log_likelihood: Array) -> Float[Array, ""]:
        """The log-density from a log-likelihood that is known already."""
        return (log_likelihood + total(self.log_priors(params))) / self.temperature

    def likelihood_and_gradient(self, params: Params) -> tuple[Float[Array, ""], Params]:
        """(log-likelihood, gradient of the log-density)."""

        def both(params: Params) -> tuple[Array, Array]:
            log_likelihood = self.log_likelihood(params)
            return self.assemble(params, log_likelihood), log_likelihood

        (_, log_likelihood), gradient = jax.value_and_grad(both, has_aux=True)(params)
        return log_likelihood, gradient

    def difference(
        self, new: Params, new_likelihood: Array, old: Params, old_likelihood: Array
    ) -> Float[Array, ""]:
        """Log-density at `new` minus that at `old`, weight by weight."""
        priors = jax.tree.map(jnp.subtract, self.log_priors(new), self.log_priors(old))
        return ((new_likelihood - old_likelihood) + total(priors)) / self.temperature

    def relative_to(self, origin: Params, likelihood: Array) -> Callable[[Params], Array]:
        """The log-density minus that at `origin`: small enough for kernels that keep it in one number."""
        return lambda params: self.difference(params, self.log_likelihood(params), origin, likelihood)


class Tuning(NamedTuple):
    """What adaptation sets, per chain."""

    step_size: Array
    inverse_mass: Params
    """Variances the momentum is measured against: scalars, or arrays shaped like the leaves."""
    length: Array
    """Length of a trajectory (HMC) or over which the momentum is forgotten (MCLMC)."""


class Info(NamedTuple):
    """What one transition reports."""

    acceptance: Array
    """Metropolis probability (NUTS: its mean over the trajectory; unadjusted MCLMC: 1 unless not finite)."""
    is_divergent: Array
    energy_error: Array
    num_gradients: Array
    log_density: Array


class PositionState(NamedTuple):
    """Where a chain is; the gradient there is computed by each transition anew, one in a trajectory of
    many."""

    position: Params


class Kernel(NamedTuple):
    """A Markov kernel; its state has a field `position`."""

    init: Callable[[Key, Params, ChainDensity], Any]
    step: Callable[[Key, Any, Tuning, ChainDensity], tuple[Any, Info]]


def chain_density(target: Target, log_likelihood: Callable[[Params], Array]) -> ChainDensity:
    """The density of `target` with the log-likelihood of where the data lies."""
    return ChainDensity(log_likelihood, target.prior.log_probs, target.temperature)


def is_divergence(energy_error: Array) -> Array:
    """Far too large, or not a number."""
    return ~(energy_error < DIVERGENCE)


def total(tree: Params) -> Array:
    """Sum over all numbers of a tree."""
    return jax.tree.reduce(jnp.add, jax.tree.map(jnp.sum, tree))
