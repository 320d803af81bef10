"""The marginal likelihood of Laplace's approximation, and the prior and noise that maximise it.

Let λ be the eigenvalues of P^(-1/2) G P^(-1/2), the curvature G whitened by the prior's precisions P, let τ
multiply these precisions, and let noise ν in place of ν₀ multiply the curvature by c = ν₀²/ν². Then (MacKay
1992; Immer et al. 2021)

    log Z(τ, ν) = log p(D | w, ν) - ½ Σ_i log(1 + c λ_i / τ) - ½ τ wᵀPw

at the given weights, for temperature 1. Where leaves have a factor τ each, the last two terms are sums over
leaves. With γ = Σ_i c λ_i / (c λ_i + τ), the number of weights that the data determine, the
derivatives vanish where

    γ(τ, ν) = τ wᵀPw        and        SSE / ν² + γ = number of targets.

γ falls with τ, so the first has one solution τ(ν); and γ at it falls with ν, so the second has one too. Both
are bisected: there is one maximum and nothing to choose.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn.density import Batch
from symbnn.inference.curvature import Fitted, sum_over_chunks

NUM_HALVINGS = 48
"""Of the interval for a logarithm: to 2e-13, below the rounding of float32."""
WIDEST = 25.0
"""Largest change of a logarithm: factors from 1e-11 to 1e11."""


class Evidence(NamedTuple):
    """What the marginal likelihood depends on, at one mode; `spectra` and `masses` by group of weights."""

    spectra: dict[str, Float[Array, " k"]]
    """λ."""
    masses: dict[str, Float[Array, ""]]
    """wᵀPw."""
    log_likelihood: Float[Array, ""]
    squared_error: Float[Array, ""]
    """SSE in units of the noise, SSE / ν₀²; zero if the likelihood has no known noise."""
    num_targets: int


class Tuned(NamedTuple):
    """What multiplies the prior's precisions, by group of weights, and the noise."""

    precision: dict[str, Float[Array, ""]]
    noise: Float[Array, ""]


def fit_to_data(network: Fitted, data: Batch, *, chunk_size: int) -> tuple[Array, Array]:
    """Log-likelihood of all data at the weights, and the squared error in units of the noise."""

    def chunk(batch: Batch) -> tuple[Array, Array]:
        outputs, likelihood = network.outputs(network.weights, batch.inputs), network.likelihood
        errors = jnp.zeros(())
        if likelihood.noise is not None:
            errors = (likelihood.predictive(outputs) - batch.targets) / likelihood.noise
        return jnp.sum(likelihood.log_prob(outputs, batch.targets)), jnp.sum(jnp.square(errors))

    return sum_over_chunks(chunk, data, chunk_size)


def log_marginal_likelihood(evidence: Evidence, tuned: Tuned) -> Float[Array, ""]:
    """log Z."""
    curvature = tuned.noise**-2.0
    # The change of Σ -½ (error/ν)² - log ν with the noise.
    fit = evidence.log_likelihood - 0.5 * evidence.squared_error * (curvature - 1.0)
    fit = fit - evidence.num_targets * jnp.log(tuned.noise)
    for name, spectrum in evidence.spectra.items():
        precision = tuned.precision[name]
        occam = jnp.sum(jnp.log1p(curvature * spectrum / precision))
        fit = fit - 0.5 * (occam + precision * evidence.masses[name])
    return fit


def joined(evidence: Evidence) -> Evidence:
    """All weights in one group."""
    spectrum = jnp.concatenate([values.ravel() for values in evidence.spectra.values()])
    mass = jnp.sum(jnp.stack(list(evidence.masses.values())))
    return evidence._replace(spectra={"": spectrum}, masses={"": mass})


def tune(evidence: Evidence, *, prior: bool, noise: bool) -> Tuned:
    """The factors that maximise log Z: of the prior of every group, of the noise; one where not asked for."""

    def precisions(log_noise: Array) -> dict[str, Array]:
        if not prior:
            return {name: jnp.ones_like(mass) for name, mass in evidence.masses.items()}
        curvature = jnp.exp(-2.0 * log_noise)
        return {name: jnp.exp(_log_precision(evidence, name, curvature)) for name in evidence.masses}

    def excess(log_noise: Array) -> Array:
        """SSE / ν² + γ - number of targets, which falls with ν."""
        curvature = jnp.exp(-2.0 * log_noise)
        determined = [
            _determined(evidence.spectra[name], curvature, precision)
            for name, precision in precisions(log_noise).items()
        ]
        return evidence.squared_error * curvature + sum(determined) - evidence.num_targets

    log_noise = jnp.zeros_like(evidence.log_likelihood)
    if noise:
        log_noise = _bisect(excess, log_noise)
    return Tuned(precisions(log_noise), jnp.exp(log_noise))


def _log_precision(evidence: Evidence, name: str, curvature: Array) -> Array:
    """log τ with γ(τ) = τ wᵀPw."""
    spectrum, mass = evidence.spectra[name], evidence.masses[name]

    def excess(log_precision: Array) -> Array:
        precision = jnp.exp(log_precision)
        return _determined(spectrum, curvature, precision) - precision * mass

    return _bisect(excess, jnp.zeros_like(mass))


def _determined(spectrum: Array, curvature: Array, precision: Array) -> Array:
    """γ, the number of weights that the data determine."""
    return jnp.sum(curvature * spectrum / (curvature * spectrum + precision))


def _bisect(falling: Callable[[Array], Array], start: Array) -> Array:
    """Where a falling function is zero, within ±WIDEST; the nearer end if it is nowhere."""

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        is_left = falling(middle) > 0
        return jnp.where(is_left, middle, low), jnp.where(is_left, high, middle)

    low, high = jax.lax.fori_loop(0, NUM_HALVINGS, halve, (start - WIDEST, start + WIDEST))
    return 0.5 * (low + high)
