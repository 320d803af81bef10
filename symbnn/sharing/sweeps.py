"""The E-step: responsibilities of a mixture's components for all points, summed cell by cell.

    r_ik ∝ w_k N(x_i | m_k, S_k)          over the candidates of the point's cell (`sharing.cells`)

The sums Σ r (1, x - m_k, (x - m_k)(x - m_k)ᵀ) run in the dtype of the points, about the centre of each cell,
and become moments in float64 on the host: there are only six numbers per component.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from symbnn.sharing.cells import Cells, Gaussians, candidates, in_steps, log_densities


class Mixture(NamedTuple):
    """Weights (k,), means (k, 2) and covariances (k, 2, 2), float64 on the host."""

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    @property
    def num_components(self) -> int:
        """Number of Gaussians."""
        return len(self.weights)

    def take(self, index: Any) -> "Mixture":
        """The components at `index`, weights scaled to sum to one."""
        weights = self.weights[index]
        return Mixture(weights / weights.sum(), self.means[index], self.covariances[index])

    def rescaled(self, factor: float) -> "Mixture":
        """The mixture of the points times `factor`."""
        if factor == 1.0:
            return self
        return Mixture(self.weights, factor * self.means, factor**2 * self.covariances)


class Moments(NamedTuple):
    """Share (k,), mean (k, 2) and covariance (k, 2, 2) of what each component is responsible for."""

    shares: np.ndarray
    means: np.ndarray
    covariances: np.ndarray


def sweep(cells: Cells, mixture: Mixture, *, num_candidates: int) -> tuple[Moments, float]:
    """One E-step over all cells: moments of the responsibilities, and the mean log-density of a point."""
    measured = mixture.rescaled(1.0 / cells.unit)
    gaussians = prepare(measured, cells.points.dtype)
    points, counts = in_steps(cells, min(num_candidates, mixture.num_components))
    chosen = candidates(points, gaussians, num_candidates=num_candidates)
    sums, value = _accumulate(points, counts, chosen, gaussians)
    moments = _moments(np.asarray(sums, np.float64), measured, cells.num_points)
    # A density is per area, so it changes with the unit.
    mean_log_density = float(value) / cells.num_points - 2 * math.log(cells.unit)
    return Moments(*Mixture(*moments).rescaled(cells.unit)), mean_log_density


def best_components(cells: Cells, mixture: Mixture, *, num_candidates: int) -> np.ndarray:
    """The component with the largest responsibility for every point, int32 (n,)."""
    gaussians = prepare(mixture.rescaled(1.0 / cells.unit), cells.points.dtype)
    points, _ = in_steps(cells, min(num_candidates, mixture.num_components))
    chosen = candidates(points, gaussians, num_candidates=num_candidates)
    best = np.asarray(_best(points, chosen, gaussians)).reshape(-1)
    labels = np.empty(cells.num_points, np.int32)
    labels[cells.order] = best[cells.slots]
    return labels


def prepare(mixture: Mixture, dtype: Any) -> Gaussians:
    """Components as the E-step reads them."""
    factors = np.linalg.cholesky(mixture.covariances)
    diagonal = factors[:, [0, 1], [0, 1]]
    whitening = np.stack([1.0 / diagonal[:, 0], factors[:, 1, 0], 1.0 / diagonal[:, 1]], axis=1)
    # A component that lost all its points keeps a finite score, too low to ever be a candidate.
    log_weights = np.log(np.maximum(mixture.weights, 1e-30))
    offsets = log_weights - np.log(2 * math.pi * diagonal.prod(1))
    return Gaussians(*(jnp.asarray(array, dtype) for array in (mixture.means, whitening, offsets)))


def _moments(sums: np.ndarray, old: Mixture, num_points: int) -> Moments:
    """Moments from Σ r (1, d, d², ...) with d = x - m (old); a component without points stays as it was."""
    mass = sums[:, 0]
    has_points = mass > 0
    safe = np.where(has_points, mass, 1.0)
    shift = sums[:, 1:3] / safe[:, None]
    second = sums[:, [3, 4, 4, 5]].reshape(-1, 2, 2) / safe[:, None, None]
    covariance = second - shift[:, :, None] * shift[:, None, :]
    # A component of one point has variance zero up to rounding, which may fall below it.
    lowest = np.linalg.eigvalsh(covariance)[:, 0]
    covariance = covariance + np.maximum(-2.0 * lowest, 0.0)[:, None, None] * np.eye(2)
    covariance = np.where(has_points[:, None, None], covariance, old.covariances)
    return Moments(mass / num_points, old.means + shift, covariance)


def _scores(
    points: Float[Array, "b p 2"], chosen: Int[Array, "b c"], gaussians: Gaussians
) -> Float[Array, "b p c"]:
    of_cell = Gaussians(*(array[chosen][:, None] for array in gaussians))
    return log_densities(points[..., 0, None], points[..., 1, None], of_cell)


@jax.jit
def _accumulate(
    points: Float[Array, "s b p 2"],
    counts: Float[Array, "s b p"],
    chosen: Int[Array, "s b c"],
    gaussians: Gaussians,
) -> tuple[Float[Array, "k 6"], Float[Array, ""]]:
    """Σ r (1, d₁, d₂, d₁², d₁d₂, d₂²) of every component with d = x - mean, and Σ log-density."""

    def step(carry: Any, inputs: Any) -> tuple[Any, None]:
        sums, total = carry
        cell_points, cell_counts, cell_chosen = inputs
        scores = _scores(cell_points, cell_chosen, gaussians)
        largest = scores.max(-1)
        relative = jnp.exp(scores - largest[..., None])
        norm = relative.sum(-1)
        # About the centre of the cell the sums over points are one matrix product for all candidates.
        centre = cell_points.mean(1, keepdims=True)
        features = _powers(cell_points - centre) * (cell_counts / norm)[..., None]
        local = jnp.einsum("bpc,bpf->bcf", relative, features)
        moved = _shift(local, centre - gaussians.means[cell_chosen])
        return (
            sums.at[cell_chosen].add(moved),
            total + jnp.sum((largest + jnp.log(norm)) * cell_counts),
        ), None

    dtype = points.dtype
    empty = jnp.zeros((gaussians.offsets.shape[0], 6), dtype), jnp.zeros((), dtype)
    return jax.lax.scan(step, empty, (points, counts, chosen))[0]


def _powers(points: Float[Array, "b p 2"]) -> Float[Array, "b p 6"]:
    first, second = points[..., 0], points[..., 1]
    one = jnp.ones_like(first)
    return jnp.stack([one, first, second, first * first, first * second, second * second], axis=-1)


def _shift(sums: Float[Array, "b c 6"], offset: Float[Array, "b c 2"]) -> Float[Array, "b c 6"]:
    """Sums over powers of y + offset from those over powers of y."""
    mass, first, second, xx, xy, yy = jnp.moveaxis(sums, -1, 0)
    a, b = offset[..., 0], offset[..., 1]
    return jnp.stack(
        [
            mass,
            first + a * mass,
            second + b * mass,
            xx + 2 * a * first + a * a * mass,
            xy + a * second + b * first + a * b * mass,
            yy + 2 * b * second + b * b * mass,
        ],
        axis=-1,
    )


@jax.jit
def _best(
    points: Float[Array, "s b p 2"], chosen: Int[Array, "s b c"], gaussians: Gaussians
) -> Int[Array, "s b p"]:
    def step(inputs: Any) -> Int[Array, "b p"]:
        cell_points, cell_chosen = inputs
        scores = _scores(cell_points, cell_chosen, gaussians)
        return jnp.take_along_axis(cell_chosen, jnp.argmax(scores, axis=-1), axis=1)

    return jax.lax.map(step, (points, chosen))
