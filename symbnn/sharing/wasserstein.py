"""2-Wasserstein distance between Gaussians of the plane in closed form, and four ways to merge two of them.

    W² = ‖m₁ - m₂‖² + tr(S₁ + S₂ - 2 (S₁^½ S₂ S₁^½)^½)

In two dimensions tr((S₁^½ S₂ S₁^½)^½) = √(tr(S₁S₂) + 2 √(det S₁ det S₂)) and
√A = (A + √det A · I) / √(tr A + 2 √det A), so no eigenvectors are needed. Float64: the trace term cancels.

| merge        | mean                 | covariance, d = m₁ - m₂                               |
|--------------|----------------------|-------------------------------------------------------|
| `moment`     | weighted             | Σ w_i (S_i + (m_i - m)(m_i - m)ᵀ): keeps both moments |
| `paper`      | midpoint             | (S₁ + S₂)/2 + ddᵀ/8 + (S₁^½ S₂ S₁^½)^½ / 2            |
| `code`       | midpoint             | (S₁ + S₂)/2                                           |
| `barycenter` | midpoint             | (I + T) S₁ (I + T) / 4, T the transport map           |

`paper` is equations 5 and 6 as printed: not idempotent (two equal Gaussians give 1.5 S) nor symmetric.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


def squared_distance(
    mean: np.ndarray, covariance: np.ndarray, other_mean: np.ndarray, other_covariance: np.ndarray
) -> Any:
    """W² of Gaussians with any leading axes: an array of those axes, or a number."""
    mean, covariance, other_mean, other_covariance = _doubles(mean, covariance, other_mean, other_covariance)
    product = np.einsum("...ij,...ji->...", covariance, other_covariance)
    determinants = np.sqrt(np.maximum(_det(covariance) * _det(other_covariance), 0.0))
    overlap = np.sqrt(product + 2.0 * determinants)
    traces = np.trace(covariance, axis1=-2, axis2=-1) + np.trace(other_covariance, axis1=-2, axis2=-1)
    between = np.sum((mean - other_mean) ** 2, axis=-1)
    # Of equal covariances the trace term is zero up to rounding.
    return between + np.maximum(traces - 2.0 * overlap, 0.0)


def square_root(matrix: np.ndarray) -> np.ndarray:
    """The positive root of symmetric positive 2x2 matrices."""
    root_det = np.asarray(np.sqrt(np.maximum(_det(matrix), 0.0)))[..., None, None]
    trace = np.asarray(np.trace(matrix, axis1=-2, axis2=-1))[..., None, None]
    return (matrix + root_det * np.eye(2)) / np.sqrt(trace + 2.0 * root_det)


@dataclass(frozen=True)
class Merge:
    """How two Gaussians become one: what the first counts in the mean, and the covariance."""

    share: Callable[[Any, Any], Any]
    """Of both weights."""
    covariance: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    """Of the share, both covariances and the gap between the means."""

    def __call__(
        self,
        weight: Any,
        mean: np.ndarray,
        covariance: np.ndarray,
        other_weight: Any,
        other_mean: np.ndarray,
        other_covariance: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of the merged Gaussians, with any leading axes."""
        share = np.asarray(self.share(weight, other_weight))[..., None]
        merged = share * mean + (1.0 - share) * other_mean
        return merged, self.covariance(share[..., None], covariance, other_covariance, mean - other_mean)


def by_weight(weight: Any, other_weight: Any) -> Any:
    """The mean of the two components together."""
    return weight / (weight + other_weight)


def by_half(_weight: Any, _other_weight: Any) -> float:
    """The midpoint."""
    return 0.5


def moment(share: np.ndarray, covariance: np.ndarray, other: np.ndarray, gap: np.ndarray) -> np.ndarray:
    """Covariance of the two components together."""
    between = (share * (1.0 - share) * gap[..., :, None]) * gap[..., None, :]
    return share * covariance + (1.0 - share) * other + between


def paper(_share: np.ndarray, covariance: np.ndarray, other: np.ndarray, gap: np.ndarray) -> np.ndarray:
    """Equation 6 as printed."""
    between = gap[..., :, None] * gap[..., None, :]
    return (covariance + other) / 2 + between / 8 + _overlap(covariance, other) / 2


def code(_share: np.ndarray, covariance: np.ndarray, other: np.ndarray, _gap: np.ndarray) -> np.ndarray:
    """The released code's average, which forgets the distance of the means."""
    return (covariance + other) / 2


def barycenter(_share: np.ndarray, covariance: np.ndarray, other: np.ndarray, _gap: np.ndarray) -> np.ndarray:
    """Covariance halfway on the 2-Wasserstein geodesic."""
    inverse_root = np.linalg.inv(square_root(covariance))
    transport = np.eye(2) + inverse_root @ _overlap(covariance, other) @ inverse_root
    return transport @ covariance @ transport / 4


MERGES = {
    "moment": Merge(by_weight, moment),
    "paper": Merge(by_half, paper),
    "code": Merge(by_half, code),
    "barycenter": Merge(by_half, barycenter),
}


def _overlap(covariance: np.ndarray, other: np.ndarray) -> np.ndarray:
    root = square_root(covariance)
    return square_root(root @ other @ root)


def _det(matrix: np.ndarray) -> Any:
    return matrix[..., 0, 0] * matrix[..., 1, 1] - matrix[..., 0, 1] * matrix[..., 1, 0]


def _doubles(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(array, np.float64) for array in arrays)
