"""Components that are nearly the same become one, again and again until no pair is left.

A pair is merged if W² < distance, and both components have Δ_g < gradient and Δ_v < variance, where Δ_g is
the mean over batches of ‖∂L/∂m_k‖ and Δ_v the variance of the members' means. Under sharing the gradient of
a centre is the sum over its members, and the variance of a union follows from shares, means and variances:
so merged components carry exact values and need no pass over the data. Pairs are taken nearest first, each
component at most once per round, and everything is computed anew before the next round."""

from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from symbnn.names import lookup
from symbnn.sharing.sweeps import Mixture
from symbnn.sharing.wasserstein import MERGES, squared_distance

NUM_NEIGHBOURS = 10
# Times the median W² to the nearest component: merges what is as near as typical neighbours, and no more.
RELATIVE_DISTANCE = 4.0


class Guards(NamedTuple):
    """What decides, besides distance, whether a component may be merged."""

    counts: np.ndarray
    """Members (k,)."""
    means: np.ndarray
    """Mean of the members' means (k,)."""
    variances: np.ndarray
    """Variance of the members' means (k,)."""
    gradients: np.ndarray
    """(batches, k, 2): gradient of the loss in the centre."""

    @property
    def gradient_norms(self) -> np.ndarray:
        """Δ_g of every component."""
        return np.linalg.norm(self.gradients, axis=-1).mean(0)


class Merged(NamedTuple):
    """The mixture after merging, the new number of every old component, and the thresholds that held."""

    mixture: Mixture
    numbers: np.ndarray
    distance: float
    gradient: float


def guards_of(
    points: np.ndarray, labels: np.ndarray, num_components: int, gradients: np.ndarray | None = None
) -> Guards:
    """Counts, means and variances of the members' means.

    Args:
        points: (mean, standard deviation) of every weight.
        labels: Its component, or -1.
        num_components: Of the mixture.
        gradients: Of `component_gradients`; zero if not given.
    """
    members = labels >= 0
    own, values = labels[members], points[members, 0].astype(np.float64)
    counts = np.bincount(own, minlength=num_components)
    safe = np.maximum(counts, 1)
    means = np.bincount(own, values, num_components) / safe
    variances = np.bincount(own, (values - means[own]) ** 2, num_components) / safe
    if gradients is None:
        gradients = np.zeros((1, num_components, 2))
    return Guards(counts, means, variances, np.asarray(gradients, np.float64))


def merge(
    mixture: Mixture,
    guards: Guards,
    *,
    formula: str = "moment",
    distance: float | None = None,
    gradient: float | None = None,
    gradient_quantile: float = 0.99,
    variance: float = 1e-3,
    fewest: int = 1,
) -> Merged:
    """Merge to a fixpoint.

    Args:
        mixture: The components.
        guards: Of `guards_of`.
        formula: `"moment"`, `"paper"`, `"code"` or `"barycenter"`.
        distance: Limit of W²; by default four times the median to the nearest component.
        gradient: Limit of Δ_g; by default the `gradient_quantile` of it over the components.
        gradient_quantile: Between 0 and 1.
        variance: Limit of Δ_v.
        fewest: Components that remain at least.
    """
    combine = lookup(MERGES, formula, "merge formula")
    if not 0.0 <= gradient_quantile <= 1.0:
        raise ValueError(f"gradient_quantile must be in [0, 1]; got {gradient_quantile}")
    distance = _typical_distance(mixture) if distance is None else distance
    if gradient is None:
        # Not below the largest of equal norms: zero gradients forbid nothing.
        gradient = float(np.nextafter(np.quantile(guards.gradient_norms, gradient_quantile), np.inf))
    numbers = np.arange(mixture.num_components)
    while True:
        first, second = _chosen(mixture, guards, distance, gradient, variance, fewest)
        if not len(first):
            return Merged(mixture, numbers, distance, gradient)
        mean, covariance = combine(*(array[pair] for pair in (first, second) for array in mixture))
        mixture, guards, renumber = _join(mixture, guards, first, second, mean, covariance)
        numbers = renumber[numbers]


def _pairs(mixture: Mixture) -> tuple[np.ndarray, np.ndarray]:
    """Every component with its nearest centres, each pair once, smaller index first."""
    count = min(NUM_NEIGHBOURS + 1, mixture.num_components)
    _, found = cKDTree(mixture.means).query(mixture.means, k=count)
    own = np.repeat(np.arange(mixture.num_components), count)
    pairs = np.stack([own, found.reshape(-1)], axis=1)
    pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
    return pairs[:, 0], pairs[:, 1]


def _distances(mixture: Mixture, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return squared_distance(
        mixture.means[first], mixture.covariances[first], mixture.means[second], mixture.covariances[second]
    )


def _typical_distance(mixture: Mixture) -> float:
    """Four times the median W² of a component to the nearest of its neighbours."""
    if mixture.num_components < 2:
        return 0.0
    pairs = _pairs(mixture)
    nearest = np.full(mixture.num_components, np.inf)
    for ends in pairs:
        np.minimum.at(nearest, ends, _distances(mixture, *pairs))
    return RELATIVE_DISTANCE * float(np.median(nearest))


def _chosen(
    mixture: Mixture, guards: Guards, distance: float, gradient: float, variance: float, fewest: int
) -> tuple[np.ndarray, np.ndarray]:
    """Disjoint pairs that pass all tests, nearest first."""
    most = mixture.num_components - fewest
    if most < 1:
        return np.zeros(0, int), np.zeros(0, int)
    first, second = _pairs(mixture)
    may = (guards.gradient_norms < gradient) & (guards.variances < variance)
    distances = _distances(mixture, first, second)
    passed = np.flatnonzero((distances < distance) & may[first] & may[second])
    taken = np.zeros(mixture.num_components, bool)
    kept: list[int] = []
    for pair in passed[np.argsort(distances[passed], kind="stable")]:
        if len(kept) < most and not (taken[first[pair]] or taken[second[pair]]):
            taken[[first[pair], second[pair]]] = True
            kept.append(pair)
    return first[kept], second[kept]


def _join(
    mixture: Mixture,
    guards: Guards,
    first: np.ndarray,
    second: np.ndarray,
    mean: np.ndarray,
    covariance: np.ndarray,
) -> tuple[Mixture, Guards, np.ndarray]:
    """Mixture and guards with `second` joined to `first`, and the new number of every component."""
    weights, means, covariances = (array.copy() for array in mixture)
    weights[first] += weights[second]
    means[first], covariances[first] = mean, covariance
    joined = guards_after(guards, first, second)
    is_kept = np.ones(mixture.num_components, bool)
    is_kept[second] = False
    target = np.arange(mixture.num_components)
    target[second] = first
    renumber = (np.cumsum(is_kept) - 1)[target]
    kept = np.flatnonzero(is_kept)
    counts, averages, variances, gradients = joined
    pruned = Guards(counts[kept], averages[kept], variances[kept], gradients[:, kept])
    return Mixture(weights[kept], means[kept], covariances[kept]), pruned, renumber


def guards_after(guards: Guards, first: np.ndarray, second: np.ndarray) -> Guards:
    """Guards in which `first` stands for the union with `second`."""
    counts, means, variances, gradients = (array.copy() for array in guards)
    total = np.maximum(counts[first] + counts[second], 1)
    share = counts[first] / total
    gap = means[first] - means[second]
    variances[first] = (
        share * variances[first] + (1 - share) * variances[second] + share * (1 - share) * gap**2
    )
    means[first] = share * means[first] + (1 - share) * means[second]
    counts[first] += counts[second]
    gradients[:, first] += gradients[:, second]
    return Guards(counts, means, variances, gradients)
