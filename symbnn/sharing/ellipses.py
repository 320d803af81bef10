"""Shared weights outside the 95 % ellipse of their component, represented by a blend of several.

A weight with D² = (x - m)ᵀ S⁻¹ (x - m) > χ²₂(0.95) = -2 ln 0.05 is an ellipse weight. Of the five nearest
centres the two densest at x are kept, with α_k ∝ N(x | m_k, S_k), normalised."""

import math
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from symbnn.sharing.sweeps import Mixture

CHI_SQUARE_95 = -2.0 * math.log(0.05)
# Rows at a time, so that ten million weights do not hold ten million 2x2 matrices.
ROWS = 2**20


class Ellipses(NamedTuple):
    """Indices (e,) of the weights, their components (e, kept) and α (e, kept), which sum to one."""

    indices: np.ndarray
    components: np.ndarray
    weights: np.ndarray


def mahalanobis(points: np.ndarray, labels: np.ndarray, mixture: Mixture) -> np.ndarray:
    """D² of every point to its own component."""
    factors = np.linalg.cholesky(mixture.covariances)
    distances = np.empty(len(points))
    for begin in range(0, len(points), ROWS):
        rows = slice(begin, begin + ROWS)
        distances[rows] = _squared(points[rows], mixture.means[labels[rows]], factors[labels[rows]])
    return distances


def find_ellipses(
    points: np.ndarray,
    labels: np.ndarray,
    mixture: Mixture,
    *,
    threshold: float = CHI_SQUARE_95,
    num_nearest: int = 5,
    num_kept: int = 2,
) -> Ellipses:
    """Ellipse weights among `points`; indices count all points.

    Args:
        points: (mean, standard deviation) of every weight.
        labels: Its component, or -1 for a weight that is not looked at.
        mixture: The components.
        threshold: Of the squared Mahalanobis distance.
        num_nearest: Components, by their centres, that a blend is chosen from.
        num_kept: Components of a blend, at most `num_nearest`.
    """
    if num_kept > num_nearest or num_kept < 1:
        raise ValueError(f"num_kept must be between 1 and num_nearest, {num_nearest}; got {num_kept}")
    inliers = np.flatnonzero(labels >= 0)
    far = inliers[mahalanobis(points[inliers], labels[inliers], mixture) > threshold]
    nearest = min(num_nearest, mixture.num_components)
    kept = min(num_kept, nearest)
    _, found = cKDTree(mixture.means).query(points[far], k=nearest)
    found = found.reshape(len(far), nearest)
    densities = _log_normal(points[far], found, mixture)
    best = np.argsort(-densities, axis=1, kind="stable")[:, :kept]
    chosen = np.take_along_axis(found, best, 1).astype(np.int32)
    return Ellipses(far, chosen, normalised(np.take_along_axis(densities, best, 1)))


def normalised(log_densities: np.ndarray) -> np.ndarray:
    """Softmax in float32 whose last column is one minus the others: so a file need not keep it."""
    relative = np.exp(log_densities - log_densities.max(axis=1, keepdims=True))
    weights = (relative / relative.sum(axis=1, keepdims=True)).astype(np.float32)
    return complete(weights[:, :-1])


def complete(first: np.ndarray) -> np.ndarray:
    """All weights of a blend from all but the last."""
    return np.concatenate([first, 1 - first.sum(axis=1, keepdims=True, dtype=np.float32)], axis=1)


def _squared(points: np.ndarray, means: np.ndarray, factors: np.ndarray) -> np.ndarray:
    difference = points.astype(np.float64) - means
    first = difference[..., 0] / factors[..., 0, 0]
    second = (difference[..., 1] - factors[..., 1, 0] * first) / factors[..., 1, 1]
    return first**2 + second**2


def _log_normal(points: np.ndarray, components: np.ndarray, mixture: Mixture) -> np.ndarray:
    """log N(x_i | m_k, S_k) for the components (e, c) of every point."""
    factors = np.linalg.cholesky(mixture.covariances)
    log_det = np.log(factors[:, 0, 0] * factors[:, 1, 1])[components]
    squared = _squared(points[:, None], mixture.means[components], factors[components])
    return -0.5 * squared - log_det - math.log(2 * math.pi)
