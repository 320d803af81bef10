"""Points of the plane sorted into cells, so that an E-step looks at few components and never gathers.

Sorting by the first coordinate cuts the points into strips, sorting each strip by the second cuts it into
cells of equally many points. Neighbours in the plane share a cell, and a cell shares its candidates: the
components with the largest weighted density at the point of the cell's bounding box that is nearest to
their mean. So an E-step is dense arithmetic on (cells, points, candidates): no tree, no index per point,
the same program on CPU and on accelerators."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from symbnn.symmetry.numerics import unit_of

CELL_SIZE = 256
# Pairs (point, component) that one step of a scan holds: about a core's share of cache in float32.
PAIRS_PER_STEP = 2**19


class Cells(NamedTuple):
    """Points by cell; the last slots of the last cells may be copies, which count zero."""

    points: Any
    """(cells, size, 2)."""
    counts: Any
    """(cells, size): one, or zero for a copy."""
    order: np.ndarray
    """Index of the point in every slot, flat; copies are at the end of this list of slots."""
    slots: np.ndarray
    """Slot of every entry of `order`."""
    unit: float
    """What the points are measured in: one, unless their squares would leave the range of float32."""

    @property
    def num_points(self) -> int:
        """Points, without copies."""
        return len(self.order)


class Gaussians(NamedTuple):
    """Components as an E-step reads them: x whitened by the inverse Cholesky factor."""

    means: Any
    """(k, 2)."""
    whitening: Any
    """(k, 3): 1/l11, l21, 1/l22."""
    offsets: Any
    """(k,): log weight - log(2π l11 l22)."""


def arrange(points: np.ndarray, *, size: int = CELL_SIZE, dtype: Any = np.float32) -> Cells:
    """Points (n, 2) in cells of about `size`, about as wide as high in the units of the points."""
    unit = unit_of(float(np.max(np.abs(points))))
    points = points / unit if unit != 1.0 else points
    num = len(points)
    num_cells = max(1, math.ceil(num / size))
    width, height = (float(np.subtract(*np.quantile(points[:, axis], [0.95, 0.05]))) for axis in (0, 1))
    wanted = math.sqrt(num_cells * width / height) if height > 0 else num_cells
    strips = int(np.clip(round(wanted), 1, num_cells))
    per_strip = math.ceil(num_cells / strips)
    length = math.ceil(num / (strips * per_strip))
    total = strips * per_strip * length
    # Copies of the rightmost point fill the last strip up.
    by_first = np.argsort(points[:, 0], kind="stable")
    by_first = np.concatenate([by_first, np.full(total - num, by_first[-1])]).reshape(strips, -1)
    is_copy = (np.arange(total) >= num).reshape(strips, -1)
    within = np.argsort(points[by_first, 1], axis=1, kind="stable")
    index = np.take_along_axis(by_first, within, 1).reshape(-1)
    copies = np.take_along_axis(is_copy, within, 1).reshape(-1)
    slots = np.flatnonzero(~copies)
    return Cells(
        jnp.asarray(points[index].reshape(-1, length, 2), dtype),
        jnp.asarray((~copies).reshape(-1, length), dtype),
        index[slots],
        slots,
        unit,
    )


def in_steps(cells: Cells, num_candidates: int) -> tuple[Float[Array, "s b p 2"], Float[Array, "s b p"]]:
    """Cells grouped for a scan, filled up with empty ones."""
    num, length, _ = cells.points.shape
    block = max(1, min(num, PAIRS_PER_STEP // (length * num_candidates)))
    extra = -num % block
    points = jnp.concatenate([cells.points, jnp.broadcast_to(cells.points[-1:], (extra, length, 2))])
    counts = jnp.concatenate([cells.counts, jnp.zeros((extra, length), cells.counts.dtype)])
    return points.reshape(-1, block, length, 2), counts.reshape(-1, block, length)


@functools.partial(jax.jit, static_argnames="num_candidates")
def candidates(
    points: Float[Array, "s b p 2"], gaussians: Gaussians, *, num_candidates: int
) -> Int[Array, "s b c"]:
    """The components that each cell looks at, best first; all of them if there are no more."""
    num_components = gaussians.offsets.shape[0]
    if num_candidates >= num_components:
        every = jnp.arange(num_components, dtype=jnp.int32)
        return jnp.broadcast_to(every, (*points.shape[:2], num_components))

    def of_cell(cell: Float[Array, "p 2"]) -> Int[Array, " c"]:
        nearest = jnp.clip(gaussians.means, cell.min(0), cell.max(0))
        scores = log_densities(nearest[:, 0], nearest[:, 1], gaussians)
        return jax.lax.top_k(scores.astype(jnp.float32), num_candidates)[1].astype(jnp.int32)

    return jax.lax.map(jax.vmap(of_cell), points)


def log_densities(first: Array, second: Array, gaussians: Gaussians) -> Array:
    """log(weight · N(x | mean, covariance)); the coordinates of x broadcast against the components.

    From differences, so that no large numbers cancel, and coordinate by coordinate, which vectorises.
    """
    whitening = gaussians.whitening
    along = (first - gaussians.means[..., 0]) * whitening[..., 0]
    across = (second - gaussians.means[..., 1] - whitening[..., 1] * along) * whitening[..., 2]
    return gaussians.offsets - 0.5 * (along * along + across * across)
