"""Mixtures of full-covariance Gaussians in the plane, for ten million points and thousands of components.

    M:  w_k = Σ_i r_ik / n,   m_k = Σ_i r_ik x_i / Σ_i r_ik,
        S_k = Σ_i r_ik (x_i - m_k)(x_i - m_k)ᵀ / Σ_i r_ik + εI       with r_ik of `sharing.sweeps`

Mini-batch EM mixes the moments of a batch into running ones with weight (t + 2)^-κ (Cappé and Moulines 2009).
With at least as many candidates as components EM is exact, and the likelihood never falls (ε = 0).
"""

import contextlib
from typing import Any, NamedTuple

import jax
import numpy as np

from symbnn.sharing.cells import arrange
from symbnn.sharing.sweeps import Mixture, Moments, best_components, sweep

NUM_CANDIDATES = 32
# Of the median variance of a component. In a LeNet with 256 components that is 4e-7, so 1e-6 would be huge.
RELATIVE_JITTER = 1e-3
DTYPES = {"float32": np.float32, "float64": np.float64}


class Fitted(NamedTuple):
    """A mixture with the mean log-density per point before every sweep (of the batch, in mini-batch EM)."""

    mixture: Mixture
    log_likelihoods: np.ndarray


def fit(
    points: np.ndarray,
    start: Mixture,
    *,
    num_sweeps: int = 20,
    tolerance: float = 0.0,
    jitter: float | None = None,
    num_candidates: int = NUM_CANDIDATES,
    dtype: str = "float32",
) -> Fitted:
    """EM over all points.

    Args:
        points: (n, 2), finite.
        start: The mixture to start from, of `kmeans`.
        num_sweeps: Passes over the points at most.
        tolerance: Gain of the mean log-density below which it ends.
        jitter: Added to every variance; by default a thousandth of the median variance of `start`.
        num_candidates: Components that a cell of points looks at; all of them make EM exact.
        dtype: `"float32"` or `"float64"`.
    """
    points = check_points(points, start.num_components)
    jitter = default_jitter(start) if jitter is None else jitter
    mixture, values = start, []
    with precision(dtype):
        cells = arrange(points, dtype=DTYPES[dtype])
        for _ in range(num_sweeps):
            moments, value = sweep(cells, mixture, num_candidates=num_candidates)
            mixture = maximise(moments, jitter)
            values.append(value)
            if len(values) > 1 and values[-1] - values[-2] < tolerance:
                break
    return Fitted(mixture, np.array(values))


def fit_minibatch(
    seed: int,
    points: np.ndarray,
    start: Mixture,
    *,
    num_steps: int,
    batch_size: int = 500_000,
    decay: float = 0.7,
    jitter: float | None = None,
) -> Fitted:
    """Mini-batch EM: batches without replacement, in a new order after every pass.

    `seed` decides on the order; `num_steps` batches of `batch_size` points are taken; `decay` is κ, in
    (0.5, 1]; `points`, `start` and `jitter` are those of `fit`.
    """
    points = check_points(points, start.num_components)
    if not 0.5 < decay <= 1.0:
        raise ValueError(f"decay must be in (0.5, 1] for EM to converge; got {decay}")
    jitter = default_jitter(start) if jitter is None else jitter
    size = min(batch_size, len(points))
    per_pass = len(points) // size
    running, values = Moments(start.weights, start.means, start.covariances), []
    mixture = start
    for step in range(num_steps):
        if step % per_pass == 0:
            order = np.random.default_rng([seed, step]).permutation(len(points))
        begin = step % per_pass * size
        cells = arrange(points[order[begin : begin + size]])
        moments, value = sweep(cells, mixture, num_candidates=NUM_CANDIDATES)
        running = blend(running, moments, (step + 2.0) ** -decay)
        mixture = maximise(running, jitter)
        values.append(value)
    return Fitted(mixture, np.array(values))


def assign(
    points: np.ndarray, mixture: Mixture, *, num_candidates: int = NUM_CANDIDATES, dtype: str = "float32"
) -> np.ndarray:
    """The component with the largest responsibility for every point, int32 (n,)."""
    points = check_points(points, 1)
    with precision(dtype):
        return best_components(arrange(points, dtype=DTYPES[dtype]), mixture, num_candidates=num_candidates)


def maximise(moments: Moments, jitter: float) -> Mixture:
    """The M-step."""
    return Mixture(
        moments.shares / moments.shares.sum(), moments.means, moments.covariances + jitter * np.eye(2)
    )


def blend(old: Moments, new: Moments, rate: float) -> Moments:
    """(1 - rate) · old + rate · new, of raw moments, kept as means and covariances: nothing cancels."""
    first, second = (1.0 - rate) * old.shares, rate * new.shares
    shares = first + second
    part = np.where(shares > 0, second / np.where(shares > 0, shares, 1.0), 0.0)[:, None]
    gap = new.means - old.means
    between = (part * (1.0 - part) * gap)[:, :, None] * gap[:, None, :]
    inside = (1.0 - part)[..., None] * old.covariances + part[..., None] * new.covariances
    return Moments(shares, old.means + part * gap, inside + between)


def default_jitter(mixture: Mixture) -> float:
    """A thousandth of the median variance of a component."""
    return RELATIVE_JITTER * float(np.median(np.trace(mixture.covariances, axis1=1, axis2=2))) / 2


def check_points(points: np.ndarray, num_components: int) -> np.ndarray:
    """The points, or a `ValueError` that says what is wrong with them."""
    points = np.asarray(points)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"points: expected shape (n, 2), got {points.shape}")
    if not 1 <= num_components <= len(points):
        raise ValueError(
            f"num_components must be between 1 and {len(points)}, the number of points; got {num_components}"
        )
    if not np.isfinite(points).all():
        bad = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
        raise ValueError(f"points must be finite (mean, std) of weights; point {bad} is {points[bad]}")
    return points


def precision(dtype: str) -> Any:
    """A context in which JAX computes in `dtype`."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype: expected one of {sorted(DTYPES)}, got {dtype!r}")
    return jax.enable_x64(True) if dtype == "float64" else contextlib.nullcontext()
