"""Posteriors of the smallest networks by quadrature: evidence, function and marginals to many digits.

Of a network 1-k-1 with Gaussian noise s and a standard normal prior, the last layer given the hidden weights
θ is a Bayesian linear regression on features Φ(θ), so only θ, two numbers a unit, is left to integrate on a
grid:

    p(y | θ) = N(y; 0, s² I + Φ Φᵀ),   out | θ, y ~ N(m, V),   V⁻¹ = I + ΦᵀΦ / s²,   m = V Φᵀ y / s².

tanh is odd, so (u, b) and (-u, -b) give the same features up to a sign: u > 0 is half of the integral. The
midpoint rule converges faster than any power of the spacing on integrands that are smooth and vanish at the
ends.
"""

import functools
from typing import NamedTuple

import numpy as np
from scipy import special

from symbnn import density, models

NOISE = 0.4
INPUTS = np.array([-1.5, -1.0, -0.4, 0.2, 0.7, 1.4], np.float32)[:, None]
TARGETS = np.array([-0.9, -1.1, -0.3, 0.4, 0.6, 1.2], np.float32)[:, None]
PLACES = np.linspace(-3, 3, 25, dtype=np.float32)[:, None]
"""x* at which functions are compared."""
REACH = 5.5
"""Standard deviations of the prior that the grid covers: 4e-8 of its mass lies outside."""
CHUNK = 200_000


class Exact(NamedTuple):
    """The posterior, integrated."""

    log_evidence: float
    mean: np.ndarray
    """Of f(x*) at `PLACES`."""
    std: np.ndarray
    slopes: np.ndarray
    """Grid of |u|, the incoming weight of a unit."""
    slope_cdf: np.ndarray
    """P(|u| <= the grid), at the upper ends of its cells."""
    offsets: np.ndarray
    """Values of the bias of the last layer."""
    offset_cdf: np.ndarray


def target(num_units: int) -> density.Target:
    """The same posterior, for samplers."""
    model = models.mlp((1,), 1, hidden=(num_units,), activation="tanh")
    return density.target(model, density.Batch(INPUTS, TARGETS), likelihood=density.gaussian(NOISE))


@functools.cache
def exact(num_units: int, spacing: float) -> Exact:
    """Quadrature on a grid of that spacing; memory is that of a chunk of it."""
    slopes = np.arange(0.5 * spacing, REACH, spacing)
    biases = np.arange(-REACH, REACH + spacing / 2, spacing)
    units = np.stack(np.meshgrid(slopes, biases, indexing="ij"), axis=-1).reshape(-1, 2)
    log_prior = -0.5 * np.sum(units**2, axis=1) - np.log(2 * np.pi) + np.log(2 * spacing**2)
    offsets = np.linspace(-4, 4, 161)
    first = np.arange(len(units) ** num_units)
    sums = _Sums(offsets)
    for start in range(0, len(first), CHUNK):
        chosen = np.stack(np.unravel_index(first[start : start + CHUNK], (len(units),) * num_units), axis=1)
        sums.add(units[chosen], log_prior[chosen].sum(1))
    return sums.result(slopes, spacing)


class _Sums:
    """Weighted sums over the grid, relative to the largest log-weight seen."""

    def __init__(self, offsets: np.ndarray) -> None:
        self.offsets = offsets
        self.top = -np.inf
        self.values: list[np.ndarray] = []
        self.slope_weights: dict[float, float] = {}

    def add(self, units: np.ndarray, log_prior: np.ndarray) -> None:
        """Grid points `units` (points, units, (u, b))."""
        precise = [np.asarray(array, np.float64)[:, 0] for array in (INPUTS, TARGETS, PLACES)]
        inputs, targets, places = precise
        features, probes = (_features(units, x) for x in (inputs, places))
        precision = np.eye(features.shape[-1]) + np.swapaxes(features, 1, 2) @ features / NOISE**2
        covariance = np.linalg.inv(precision)
        moment = np.einsum("pnk,n->pk", features, targets) / NOISE**2
        means = np.einsum("pij,pj->pi", covariance, moment)
        # The determinant and the quadratic form of s² I + Φ Φᵀ, by Woodbury.
        quadratic = np.sum(targets**2) / NOISE**2 - np.sum(moment * means, axis=1)
        log_determinant = np.linalg.slogdet(precision)[1] + len(targets) * np.log(2 * np.pi * NOISE**2)
        log_weights = log_prior - 0.5 * (quadratic + log_determinant)
        top = max(self.top, log_weights.max())
        weights = np.exp(log_weights - top)
        outputs = np.einsum("pxk,pk->px", probes, means)
        variances = np.einsum("pxi,pij,pxj->px", probes, covariance, probes, optimize=True)
        scaled = (self.offsets - means[:, -1:]) / np.sqrt(covariance[:, -1, -1:])
        new = [
            weights.sum(),
            weights @ outputs,
            weights @ (variances + outputs**2),
            weights @ special.ndtr(scaled),
        ]
        old = [np.exp(self.top - top) * value for value in self.values] or [np.zeros(()) for _ in new]
        self.values = [before + after for before, after in zip(old, new, strict=True)]
        slopes = {key: np.exp(self.top - top) * value for key, value in self.slope_weights.items()}
        for slope in np.unique(units[:, 0, 0]):
            slopes[slope] = slopes.get(slope, 0.0) + weights[units[:, 0, 0] == slope].sum()
        self.top, self.slope_weights = top, slopes

    def result(self, slopes: np.ndarray, spacing: float) -> Exact:
        """Divided by the evidence."""
        total, first, second, offset_cdf = self.values
        mean = first / total
        cdf = np.cumsum([self.slope_weights[slope] for slope in slopes]) / total
        std = np.sqrt(second / total - mean**2)
        log_evidence = float(self.top + np.log(total))
        return Exact(log_evidence, mean, std, slopes + spacing / 2, cdf, self.offsets, offset_cdf / total)


def _features(units: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """(points, inputs, units + 1): tanh(u x + b) of every unit, and 1."""
    hidden = np.tanh(inputs[None, :, None] * units[:, None, :, 0] + units[:, None, :, 1])
    return np.concatenate([hidden, np.ones((*hidden.shape[:2], 1))], axis=2)
