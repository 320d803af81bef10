"""Weights that keep a mean and a standard deviation of their own.

A weight is an outlier if |mean| > magnitude, if its mean |gradient| over several batches is among the
largest share, or if its cluster has fewer than `smallest_cluster` members. The gradient's absolute value is
averaged over batches; its sign, or one last batch, says little."""

import math
from typing import NamedTuple

import numpy as np

from symbnn.sharing.sweeps import Mixture


class Outliers(NamedTuple):
    """Masks over all weights; a weight may be named by several rules."""

    large: np.ndarray
    steep: np.ndarray
    lonely: np.ndarray

    @property
    def mask(self) -> np.ndarray:
        """Named by any rule."""
        return self.large | self.steep | self.lonely


def find_outliers(
    means: np.ndarray,
    stds: np.ndarray,
    gradients: np.ndarray | None = None,
    *,
    magnitude: float = 0.2,
    gradient_share: float = 0.01,
    required: bool = False,
) -> Outliers:
    """Outliers by magnitude and gradient; a `ValueError` if every weight is one.

    Args:
        means: Of the weights.
        stds: Of the weights.
        gradients: Mean |gradient| of every weight; without it magnitude alone decides.
        magnitude: Limit of |mean|.
        gradient_share: Share of weights, of steepest gradient, that are outliers: exactly ceil(share · n).
        required: Whether it is an error that there are none.
    """
    _check_finite("means", means)
    _check_finite("stds", stds)
    if not magnitude > 0:
        raise ValueError(f"outliers: magnitude must be positive (infinity for no such rule); got {magnitude}")
    large = np.abs(means) > magnitude
    steep = np.zeros(len(means), bool)
    if gradients is not None and gradient_share > 0:
        _check_finite("gradients", gradients)
        count = math.ceil(gradient_share * len(means))
        # Stable, so that ties fall the same way everywhere.
        steep[np.argsort(-np.asarray(gradients), kind="stable")[:count]] = True
    found = Outliers(large, steep, np.zeros(len(means), bool))
    check_inliers(found, magnitude, gradient_share)
    if required and not found.mask.any():
        raise ValueError(
            f"outliers: found none in {len(means)} weights; the largest |mean| is {np.abs(means).max():.3g}; "
            f"lower magnitude (now {magnitude}) or raise gradient_share (now {gradient_share})"
        )
    return found


def check_inliers(outliers: Outliers, magnitude: float, gradient_share: float) -> None:
    """`ValueError` if every weight is an outlier."""
    if outliers.mask.all():
        raise ValueError(
            f"outliers: all {len(outliers.mask)} weights are outliers ({outliers.large.sum()} by |mean|, "
            f"{outliers.steep.sum()} by gradient, {outliers.lonely.sum()} in small clusters), so "
            f"nothing is left to share; raise magnitude (now {magnitude}), lower gradient_share (now "
            f"{gradient_share}) or take fewer components"
        )


def drop_small_clusters(
    labels: np.ndarray, mixture: Mixture, *, smallest_cluster: int = 20
) -> tuple[np.ndarray, np.ndarray, Mixture]:
    """(mask of members of small clusters, labels, mixture) with the other clusters numbered anew.

    Labels of members of small clusters are -1.
    """
    counts = np.bincount(labels, minlength=mixture.num_components)
    is_kept = counts >= max(smallest_cluster, 1)
    if not is_kept.any():
        raise ValueError(
            f"outliers: no cluster of {mixture.num_components} has {smallest_cluster} members (the largest "
            f"has {counts.max()}); take fewer components or lower smallest_cluster"
        )
    numbers = np.where(is_kept, np.cumsum(is_kept) - 1, -1)
    new = numbers[labels].astype(np.int32)
    return new < 0, new, mixture.take(np.flatnonzero(is_kept))


def _check_finite(name: str, values: np.ndarray) -> None:
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise ValueError(
            f"outliers: {name} of {bad.size} of {len(values)} weights are not finite, the first at {bad[0]}; "
            "train the stochastic network again with a smaller learning rate"
        )
