"""Speed of weight sharing: EM sweeps, ten million weights to labels, sampled forward passes."""

import os
import subprocess
import sys
import time

import jax
import numpy as np
from sklearn.mixture import GaussianMixture
from sklearn.mixture._gaussian_mixture import _compute_precision_cholesky

from symbnn import models, sharing
from symbnn.sharing.cells import arrange
from symbnn.sharing.gmm import DTYPES, precision
from symbnn.sharing.layout import layout_of
from symbnn.sharing.sweeps import Mixture, sweep
from tests.bench import Row, peak_memory
from tests.bench.bench_evaluate import seconds

NUM_POINTS, NUM_COMPONENTS = 1_000_000, 256
# What scikit-learn holds at once grows with points x components; so much of it fits into 2 GB.
ORACLE_POINTS = 100_000
RESNET18_WEIGHTS, RESNET18_COMPONENTS = 11_200_000, 2_000
GIBIBYTE = 2**30


def points(num: int) -> np.ndarray:
    """Means and standard deviations as a trained network has them."""
    random = np.random.default_rng(0)
    means = np.clip(0.03 * random.standard_t(4, num), -0.2, 0.2)
    return np.stack([means, 0.03 + 0.003 * random.normal(size=num)], axis=1).astype(np.float32)


def oracle_seconds(start: Mixture, data: np.ndarray) -> float:
    """Least time of three sweeps of scikit-learn in float64: its E-step and M-step, without its start."""
    model = GaussianMixture(start.num_components)
    model.weights_, model.means_, model.covariances_ = start
    model.precisions_cholesky_ = _compute_precision_cholesky(start.covariances, "full")
    points = data.astype(np.float64)
    taken = []
    for _ in range(3):
        begin = time.perf_counter()
        _, log_responsibilities = model._e_step(points)
        model._m_step(points, log_responsibilities)
        taken.append(time.perf_counter() - begin)
    return min(taken)


def sweep_rows() -> list[Row]:
    """A sweep against scikit-learn's: all components in float64, and as the library does it."""
    data = points(NUM_POINTS)
    start = sharing.kmeans(jax.random.key(0), data, NUM_COMPONENTS)
    scale = NUM_POINTS / ORACLE_POINTS
    oracle = scale * oracle_seconds(start, data[:ORACLE_POINTS])
    rows = []
    for dtype, candidates in (("float64", NUM_COMPONENTS), ("float32", 32)):
        with precision(dtype):
            cells = arrange(data, dtype=DTYPES[dtype])
            taken = seconds(lambda: sweep(cells, start, num_candidates=candidates)[1], 3)  # noqa: B023
        what = "every component" if candidates == NUM_COMPONENTS else f"{candidates} candidates"
        rows.append(
            Row(
                f"EM sweep, 1,000,000 points x 256 components, {what}, {dtype}, over scikit-learn's",
                10.0,
                oracle / taken,
                "times",
                oracle / taken >= 10,
                f"{taken:.2f} s against {oracle:.1f} s in float64 (measured on {ORACLE_POINTS:,} points, "
                f"times {scale:.0f}); load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
            )
        )
    return rows


def labels_rows() -> list[Row]:
    """11.2 million weights with 2,000 components, start to labels, in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.bench_sharing"]
    taken, peak = map(
        float, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    )
    what = "11.2 million points, 2,000 components, k-means, 5 sweeps and labels"
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    return [
        Row(what, 300.0, taken, "s", taken < 300, load),
        Row(
            f"peak memory of that, {what}", 6.0, peak / GIBIBYTE, "GiB", peak < 6 * GIBIBYTE, "whole process"
        ),
    ]


def forward_row() -> Row:
    """ResNet-20, batch of 256: drawing the weights and applying them, over applying them."""
    model = models.resnet20_frn((32, 32, 3), 10)
    shared = untrained(model)
    inputs = jax.random.normal(jax.random.key(1), (256, 32, 32, 3))
    params = shared.mean()
    plain = jax.jit(model.apply)

    @jax.jit
    def sampled(posterior: sharing.SharedWeights, key: jax.Array) -> jax.Array:
        network = jax.tree.map(lambda leaf: leaf[0], posterior.sample(key, 1))
        return model.apply(network, inputs)

    both = [
        (seconds(lambda: plain(params, inputs), 3), seconds(lambda: sampled(shared, jax.random.key(2)), 3))
    ]
    both += [(seconds(lambda: plain(params, inputs), 3), both[0][1])]
    base, drawn = (min(pair) for pair in zip(*both, strict=True))
    return Row(
        "sampled over deterministic forward pass, ResNet-20, batch 256",
        1.3,
        drawn / base,
        "times",
        drawn / base <= 1.3,
        f"{1000 * drawn:.0f} ms against {1000 * base:.0f} ms; load {os.getloadavg()[0]:.1f}",
    )


def untrained(model: models.Model) -> sharing.SharedWeights:
    """Shared weights of a fresh network with 255 components."""
    params = model.init(jax.random.key(0))
    layout = layout_of(params)
    flat = np.asarray(sharing.flatten(layout, params))
    both = np.stack([flat, np.full_like(flat, 0.03)], axis=1)
    both[:, 1] += 1e-3 * np.random.default_rng(0).normal(size=len(flat)).astype(np.float32)
    outliers = sharing.find_outliers(both[:, 0], both[:, 1])
    clusters = sharing.cluster(jax.random.key(1), both, outliers, num_components=255, num_sweeps=2)
    refined = sharing.refine(both, clusters.mixture, clusters.labels, merging=False)
    return sharing.share(params, layout, both, refined)


def rows() -> list[Row]:
    """All lines of this file."""
    return [*sweep_rows(), *labels_rows(), forward_row()]


def main() -> None:
    """Start to labels; prints the seconds and the peak resident memory of this process in bytes."""
    data = points(RESNET18_WEIGHTS)
    begin = time.perf_counter()
    start = sharing.kmeans(jax.random.key(0), data, RESNET18_COMPONENTS)
    mixture = sharing.fit(data, start, num_sweeps=5).mixture
    labels = sharing.assign(data, mixture)
    assert labels.shape == (len(data),)
    print(time.perf_counter() - begin, peak_memory())


if __name__ == "__main__":
    main()
