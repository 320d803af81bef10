"""Stages 1b and 2: from (mean, standard deviation) of every weight to shared Gaussians.

cluster:  outliers out, mixture fitted to the rest, members of small clusters out
refine:   components merged to a fixpoint, then weights outside their ellipse blended; or, as in the paper,
          first the ellipse weights, whose blends follow their components through the merging
share:    all of it as a `SharedWeights` posterior
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn.names import lookup
from symbnn.sharing import gmm
from symbnn.sharing.ellipses import CHI_SQUARE_95, Ellipses, find_ellipses
from symbnn.sharing.files import label_type
from symbnn.sharing.kmeans import kmeans
from symbnn.sharing.layout import Layout, remainder
from symbnn.sharing.merge import Merged, guards_of, merge
from symbnn.sharing.outliers import Outliers, drop_small_clusters
from symbnn.sharing.posterior import SharedWeights
from symbnn.sharing.sweeps import Mixture
from symbnn.types import Key, Params

# Weights per component below which clusters fall under the smallest size by chance.
WEIGHTS_PER_COMPONENT = 150
ORDERS = {"merge first": False, "ellipses first": True}
"""Whether ellipse weights are found before merging."""


class Clusters(NamedTuple):
    """A mixture, the component of every weight (-1 for outliers), and why weights are outliers."""

    mixture: Mixture
    labels: np.ndarray
    outliers: Outliers
    log_likelihoods: np.ndarray


class Refined(NamedTuple):
    """What is left after merging, with the ellipse weights."""

    mixture: Mixture
    labels: np.ndarray
    ellipses: Ellipses
    merged: Merged | None


def default_components(num_inliers: int) -> int:
    """Between 16 and 6,000, one for every 150 weights."""
    return int(min(6000, max(16, num_inliers // WEIGHTS_PER_COMPONENT), num_inliers))


def cluster(
    key: Key,
    points: np.ndarray,
    outliers: Outliers,
    *,
    num_components: int | None = None,
    smallest_cluster: int = 20,
    num_sweeps: int = 10,
    minibatch: int | None = None,
) -> Clusters:
    """A mixture of the inliers: k-means, then EM.

    Args:
        key: For the start and the order of batches.
        points: (mean, standard deviation) of every weight.
        outliers: Weights to leave out, of `find_outliers`.
        num_components: By default `default_components`.
        smallest_cluster: Members of smaller clusters become outliers.
        num_sweeps: Passes of EM over the points.
        minibatch: Points per step of EM; by default all.
    """
    inliers = np.flatnonzero(~outliers.mask)
    inside = points[inliers]
    count = default_components(len(inliers)) if num_components is None else num_components
    start = kmeans(key, inside, count)
    if minibatch is None:
        fitted = gmm.fit(inside, start, num_sweeps=num_sweeps)
    else:
        seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
        steps = num_sweeps * max(1, len(inside) // minibatch)
        fitted = gmm.fit_minibatch(seed, inside, start, num_steps=steps, batch_size=minibatch)
    found = gmm.assign(inside, fitted.mixture)
    small, found, mixture = drop_small_clusters(found, fitted.mixture, smallest_cluster=smallest_cluster)
    labels = np.full(len(points), -1, np.int32)
    labels[inliers] = found
    lonely = np.zeros(len(points), bool)
    lonely[inliers] = small
    return Clusters(mixture, labels, outliers._replace(lonely=lonely), fitted.log_likelihoods)


def refine(
    points: np.ndarray,
    mixture: Mixture,
    labels: np.ndarray,
    *,
    merging: bool = True,
    ellipses: bool = True,
    order: str = "merge first",
    gradients: np.ndarray | None = None,
    formula: str = "moment",
    distance: float | None = None,
    gradient_quantile: float = 0.99,
    variance: float = 1e-3,
    fewest: int = 1,
    num_nearest: int = 5,
    num_kept: int = 2,
) -> Refined:
    """Merge and find ellipse weights, in this order or the other; either may be left out.

    In the order of the paper, `"ellipses first"`, ellipse weights are those outside the fitted components; a
    merged one stands for both of its parts in their blends. Merging first, they are those outside the merged
    components, which are wider. `gradients` are those of `component_gradients`. The next five settings are
    those of `merge`, the last two those of `find_ellipses`.
    """
    is_first = lookup(ORDERS, order, "order")
    threshold = CHI_SQUARE_95 if ellipses else math.inf
    find = functools.partial(
        find_ellipses, points, threshold=threshold, num_nearest=num_nearest, num_kept=num_kept
    )
    blended = find(labels, mixture) if is_first else None
    merged = None
    if merging:
        merged = merge(
            mixture,
            guards_of(points, labels, mixture.num_components, gradients),
            formula=formula,
            distance=distance,
            gradient_quantile=gradient_quantile,
            variance=variance,
            fewest=fewest,
        )
        mixture = merged.mixture
        labels = np.where(labels >= 0, merged.numbers[labels], -1).astype(np.int32)
        if blended is not None:
            blended = blended._replace(components=merged.numbers[blended.components].astype(np.int32))
    return Refined(mixture, labels, find(labels, mixture) if blended is None else blended, merged)


def share(
    params: Params,
    layout: Layout,
    points: np.ndarray,
    refined: Refined,
    *,
    sampling: str = "hierarchical",
    noise: str = "component",
    blending: str = "samples",
) -> SharedWeights:
    """The posterior of a refined clustering.

    Args:
        params: The network; its leaves outside `layout` stay as they are.
        layout: Which weights are shared.
        points: (mean, standard deviation) of each of them.
        refined: Their components, of `refine`.
        sampling: `"hierarchical"` or `"first_coord"`; this and the next are explained in `SharedWeights`.
        noise: `"component"`, `"sign"`, `"layer"` or `"weight"`.
        blending: `"samples"`, `"centers"` or `"mixture"`.
    """
    if len(points) != layout.num_weights or len(refined.labels) != len(points):
        raise ValueError(
            f"share: the network has {layout.num_weights} shared weights, but there are {len(points)} points "
            f"and {len(refined.labels)} labels; they come from another model or another run"
        )
    outliers = np.flatnonzero(refined.labels < 0)
    factors = np.linalg.cholesky(refined.mixture.covariances)
    kind = label_type(refined.mixture.num_components)
    # An ellipse weight counts for the densest component of its blend.
    labels = np.maximum(refined.labels, 0)
    labels[refined.ellipses.indices] = refined.ellipses.components[:, 0]
    single = lambda values: jnp.asarray(values, jnp.float32)  # noqa: E731
    return SharedWeights(
        means=single(refined.mixture.means),
        factors=single(np.stack([factors[:, 0, 0], factors[:, 1, 0], factors[:, 1, 1]], axis=1)),
        labels=jnp.asarray(labels.astype(kind)),
        outlier_indices=jnp.asarray(outliers.astype(np.uint32)),
        outlier_means=single(points[outliers, 0]),
        outlier_stds=single(points[outliers, 1]),
        ellipse_indices=jnp.asarray(refined.ellipses.indices.astype(np.uint32)),
        ellipse_components=jnp.asarray(refined.ellipses.components.astype(kind)),
        ellipse_weights=single(refined.ellipses.weights),
        fixed=remainder(layout, params),
        layout=layout,
        sampling=sampling,
        noise=noise,
        blending=blending,
    )


def mixture_of(shared: SharedWeights, counts: np.ndarray) -> Mixture:
    """The components of a posterior as a mixture, weighted by their members: to refine it again."""
    first, slant, last = (np.asarray(shared.factors[:, index], np.float64) for index in range(3))
    zero: Any = np.zeros_like(first)
    factors = np.stack([first, zero, slant, last], axis=1).reshape(-1, 2, 2)
    weights = np.maximum(counts, 1e-9) / max(counts.sum(), 1)
    return Mixture(
        weights / weights.sum(), np.asarray(shared.means, np.float64), factors @ factors.swapaxes(1, 2)
    )
