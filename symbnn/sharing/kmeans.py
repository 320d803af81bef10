"""Where EM starts: k-means++ and Lloyd's iterations on a subsample, in the units of the points.

The axes are not standardised. Standard deviations of weights vary little, and standardised they would take
the resolution from the means, on which the network depends: at K = 256 the error of a LeNet's weights grows
15-fold.

Lloyd's iteration is EM in the limit of small, equal, isotropic covariances, so it runs on the same cells, and
thousands of centres are affordable: 4,096 of 204,800 points take 9 s on two cores, and scikit-learn's KMeans
takes 225 s for 4 % less inertia. EM follows in either case.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbnn.sharing.cells import Cells, arrange
from symbnn.sharing.gmm import NUM_CANDIDATES, check_points
from symbnn.sharing.sweeps import Mixture, sweep
from symbnn.types import Key

# Spacing of centres over the width of the soft-min that stands for the nearest: e^-500 is zero in float32.
SHARPNESS = 1e3
# Size of the subsample.
FEWEST_POINTS, POINTS_PER_COMPONENT = 2**16, 50


def kmeans(key: Key, points: np.ndarray, num_components: int, *, num_iterations: int = 10) -> Mixture:
    """Clusters as a mixture: shares, means, and covariances within (the median one where points are few).

    Args:
        key: For the subsample and the start.
        points: (n, 2), finite.
        num_components: From 1 to n.
        num_iterations: Of Lloyd.
    """
    points = check_points(points, num_components)
    key_subset, key_centres = jax.random.split(key)
    wanted = min(len(points), max(FEWEST_POINTS, POINTS_PER_COMPONENT * num_components))
    subset = points
    if wanted < len(points):
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key_subset)))
        subset = points[rng.integers(len(points), size=wanted)]
    cells = arrange(subset)
    measured = jnp.asarray(subset if cells.unit == 1.0 else subset / cells.unit, jnp.float32)
    centres = plus_plus(key_centres, measured, num_components=num_components)
    width = _spacing(subset, num_components) / SHARPNESS
    mixture = _sharp(cells.unit * np.asarray(centres, np.float64), width)
    for _ in range(num_iterations):
        moments, _ = sweep(cells, mixture, num_candidates=NUM_CANDIDATES)
        mixture = _sharp(moments.means, width)
    return _clusters(cells, mixture)


@functools.partial(jax.jit, static_argnames="num_components")
def plus_plus(key: Key, points: Float[Array, "n 2"], *, num_components: int) -> Float[Array, "k 2"]:
    """Centres by k-means++: each next one is a point drawn by its squared distance to the nearest so far.

    (Arthur and Vassilvitskii 2007.) Drawn in two levels, a row of √n points and a point of it, because a
    running sum over all points is slow.
    """
    num = points.shape[0]
    side = math.isqrt(num - 1) + 1
    filled = jnp.concatenate([points, jnp.broadcast_to(points[:1], (side * side - num, 2))])
    is_point = (jnp.arange(side * side) < num).astype(points.dtype)
    draws = jax.random.uniform(key, (num_components, 2), points.dtype)

    def pick(distances: Array, draw: Float[Array, "2"]) -> Array:
        rows = distances.reshape(side, side)
        row = _inverse(rows.sum(1), draw[0])
        return filled[row * side + _inverse(rows[row], draw[1])]

    def step(distances: Array, draw: Array) -> tuple[Array, Array]:
        centre = pick(distances, draw)
        return jnp.minimum(distances, jnp.sum((filled - centre) ** 2, axis=1)), centre

    first = pick(is_point, draws[0])
    distances = jnp.sum((filled - first) ** 2, axis=1) * is_point
    return jnp.concatenate([first[None], jax.lax.scan(step, distances, draws[1:])[1]])


def _inverse(weights: Float[Array, " m"], level: Float[Array, ""]) -> Array:
    """Index drawn with probability proportional to `weights`, from a uniform `level`."""
    sums = jnp.cumsum(weights)
    return jnp.minimum(jnp.searchsorted(sums, level * sums[-1], side="right"), weights.shape[0] - 1)


def _spacing(points: np.ndarray, num_components: int) -> float:
    """About the distance between neighbouring centres, if they tile the bounding box."""
    sides = points.max(0).astype(np.float64) - points.min(0)
    largest = float(sides.max()) or 1.0
    return math.sqrt(max(float(sides.prod()), (largest * 1e-3) ** 2) / num_components)


def _sharp(centres: np.ndarray, width: float) -> Mixture:
    num = len(centres)
    covariances = np.broadcast_to(width**2 * np.eye(2), (num, 2, 2))
    return Mixture(np.full(num, 1.0 / num), centres, covariances)


def _clusters(cells: Cells, mixture: Mixture) -> Mixture:
    moments, _ = sweep(cells, mixture, num_candidates=NUM_CANDIDATES)
    # Three points are the fewest that span the plane.
    is_solid = (moments.shares * cells.num_points > 3.5) & (np.linalg.det(moments.covariances) > 0)
    typical = np.median(moments.covariances[is_solid], axis=0) if is_solid.any() else mixture.covariances[0]
    typical = np.diag(np.diag(typical))
    covariances = np.where(is_solid[:, None, None], moments.covariances, typical)
    # A centre that lost its points comes back with the smallest share that it could have.
    shares = np.maximum(moments.shares, 1.0 / cells.num_points)
    return Mixture(shares / shares.sum(), moments.means, covariances)
