"""A log-density by its parts, so that differences can be formed weight by weight.

    log p(w) = (log-likelihood(w) + Σ_i log p(w_i)) / T

Energies in float32. A network of a million weights has |log p| ~ 1e6, where neighbouring float32 numbers are
0.06 apart: an energy error of 0.1 would be lost in one number for log p. So differences are formed weight by
weight and summed afterwards,

    Δ log p = (Δ log-likelihood + Σ_i [log p(w'_i) - log p(w_i)]) / T,

whose terms are of the size of the change, not of the total (as in Izmailov et al. 2021).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn.types import Params


def tempered(log_likelihood: Any, log_prior: Any, temperature: float) -> Any:
    """(log-likelihood + log-prior) / T: of whole densities, of minibatch estimates and of differences."""
    return (log_likelihood + log_prior) / temperature


@dataclass(frozen=True)
class LogDensity:
    """A log-density that knows its parts; called with a network it gives one number."""

    log_likelihood: Callable[..., Array]
    """(params, batch=None, weights=None) -> number, as `Target.log_likelihood`, in a target that has data,
    which samplers hand over shard by shard; else (params) -> number. The whole log-density, with its
    temperature, if there are no `log_priors`."""
    log_priors: Callable[[Params], Params] | None = None
    """Of every single weight; None if the log-density has no parts."""
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.log_priors is None and self.temperature != 1.0:
            raise ValueError(
                "LogDensity without log_priors is the whole log-density and has no temperature of its own; "
                f"give log_priors, or divide the function by it; got temperature={self.temperature}"
            )

    def __call__(self, params: Params) -> Float[Array, ""]:
        """The log-density in one number."""
        return self.assemble(params, self.log_likelihood(params))

    def assemble(self, params: Params, log_likelihood: Array) -> Float[Array, ""]:
        """The log-density from a log-likelihood that is known already."""
        if self.log_priors is None:
            return log_likelihood
        return tempered(log_likelihood, total(self.log_priors(params)), self.temperature)

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
        if self.log_priors is None:
            return new_likelihood - old_likelihood
        priors = jax.tree.map(jnp.subtract, self.log_priors(new), self.log_priors(old))
        return tempered(new_likelihood - old_likelihood, total(priors), self.temperature)

    def likelihood_after(
        self, gain: Array, new: Params, old: Params, old_likelihood: Array
    ) -> Float[Array, ""]:
        """Log-likelihood at `new` from the log-density there minus that at `old`: undoes `difference`.

        No error piles up along a chain: `gain` was formed with the true log-likelihood at `new`.
        """
        return old_likelihood + self.temperature * (
            gain - self.difference(new, old_likelihood, old, old_likelihood)
        )

    def relative_to(self, origin: Params, likelihood: Array) -> Callable[[Params], Array]:
        """The log-density minus that at `origin`: small enough for kernels that keep it in one number."""
        return lambda params: self.difference(params, self.log_likelihood(params), origin, likelihood)


def total(tree: Params) -> Array:
    """Sum over all numbers of a tree."""
    return jax.tree.reduce(jnp.add, jax.tree.map(jnp.sum, tree))
