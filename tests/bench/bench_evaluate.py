"""Speed and memory of the streamed predictive, speed of the metrics: `python -m tests.bench`."""

import operator
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import evaluate, models
from symbnn.evaluate import one_by_one
from symbnn.posteriors import DiagonalGaussian
from tests.bench import Row, peak_memory, processes
from tests.bench.bench_inference import in_turns

INPUTS, FEATURES, UNITS, CLASSES = 10_000, 784, 512, 10
FLOPS_PER_NETWORK = 2 * INPUTS * (FEATURES * UNITS + UNITS * CLASSES)
MEBIBYTE = 2**20
Clock = Callable[[], float]


def apply(params: Any, inputs: jax.Array) -> jax.Array:
    """784-512-10 with ReLU."""
    hidden = jax.nn.relu(inputs @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    return hidden @ params["out"]["kernel"] + params["out"]["bias"]


def posterior() -> DiagonalGaussian:
    """A law over the weights of that network."""
    shapes = {
        "hidden": {"kernel": (FEATURES, UNITS), "bias": (UNITS,)},
        "out": {"kernel": (UNITS, CLASSES), "bias": (CLASSES,)},
    }
    is_shape = lambda node: isinstance(node, tuple)  # noqa: E731
    mean, std = (
        jax.tree.map(lambda shape: jnp.full(shape, value), shapes, is_leaf=is_shape)  # noqa: B023
        for value in (0.01, 0.03)
    )
    return DiagonalGaussian(mean, std)


def inputs() -> jax.Array:
    """As many inputs as a test set has."""
    return jax.random.normal(jax.random.key(1), (INPUTS, FEATURES))


def seconds(function: Callable[[], Any], repeats: int, clock: Clock = time.perf_counter) -> float:
    """Least time of several runs after one that compiles."""
    return clocked(function, repeats, (clock,))[0]


def clocked(function: Callable[[], Any], repeats: int, clocks: Sequence[Clock]) -> list[float]:
    """The same by several clocks, of the same runs."""
    jax.block_until_ready(function())
    times = []
    for _ in range(repeats):
        start = [clock() for clock in clocks]
        jax.block_until_ready(function())
        times.append([clock() - begun for clock, begun in zip(clocks, start, strict=True)])
    return [min(each) for each in zip(*times, strict=True)]


def rate_row(num_samples: int = 200) -> Row:
    """Share of the matrix-multiply rate, measured before and after in the same run; the better one counts."""
    matrix = jax.random.normal(jax.random.key(0), (2048, 2048))
    multiply = jax.jit(jnp.matmul)
    samples = posterior().sample(jax.random.key(2), num_samples)
    data = inputs()

    def predict() -> jax.Array:
        return evaluate.predict(apply, samples, data)

    clocks = time.perf_counter, time.process_time
    before = clocked(lambda: multiply(matrix, matrix), 10, clocks)
    taken = np.array(clocked(predict, 3, clocks))
    after = clocked(lambda: multiply(matrix, matrix), 10, clocks)
    rates = 2 * 2048**3 / np.minimum(before, after)
    wall, processor = num_samples * FLOPS_PER_NETWORK / taken / rates
    return Row(
        "predictive of 200 samples of 784-512-10 on 10,000 inputs, of the float32 matmul rate",
        80.0,
        100 * float(wall),
        "%",
        bool(wall >= 0.8),
        f"matmul {rates[0] / 1e9:.0f} GFLOP/s; by processor time {100 * processor:.0f} %; "
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
    )


def memory_row(num_samples: int, source: str) -> Row:
    """Peak resident memory of a fresh process, Python and JAX and the data included."""
    peak = processes.ask("tests.bench.bench_evaluate", source, num_samples)
    return Row(
        f"peak memory of that predictive, {num_samples:,} samples {source}",
        1024.0,
        peak / MEBIBYTE,
        "MiB",
        peak < 1024 * MEBIBYTE,
        "whole process",
    )


def metrics_row() -> Row:
    """Every scalar metric of 10,000 x 1,000 probabilities, one call after the other, checks included."""
    probs = jax.nn.softmax(3.0 * jax.random.normal(jax.random.key(0), (10_000, 1000)))
    labels = jax.random.randint(jax.random.key(1), (10_000,), 0, 1000)
    reference = jnp.roll(probs, 1, axis=0)
    with_labels = (
        evaluate.accuracy,
        evaluate.nll,
        evaluate.brier,
        evaluate.ece,
        evaluate.mce,
        evaluate.adaptive_ece,
        evaluate.classwise_ece,
        evaluate.aurc,
    )

    def everything() -> list[jax.Array]:
        values = [metric(probs, labels) for metric in with_labels]
        values += [metric(probs, reference) for metric in (evaluate.agreement, evaluate.total_variation)]
        scores = evaluate.entropy_score(probs), evaluate.max_probability_score(probs)
        return values + [metric(*scores) for metric in (evaluate.auroc, evaluate.aupr, evaluate.fpr_at)]

    taken = seconds(everything, 5)
    note = f"one by one, with checks; processor time {seconds(everything, 3, time.process_time):.2f} s"
    return Row("all scalar metrics of 10,000 x 1,000 probabilities", 0.5, taken, "s", taken < 0.5, note)


def convolved_row(num_samples: int = 10, num_images: int = 384, rounds: int = 3) -> Row:
    """Ten ResNet-20s: the predictive over a plain loop of one network after the other, measured in turns."""
    model = models.resnet20((32, 32, 3), 10)
    samples = jax.vmap(model.init)(jax.random.split(jax.random.key(0), num_samples))
    images = jax.random.normal(jax.random.key(1), (num_images, 32, 32, 3))
    one = jax.jit(model.apply)
    block = one_by_one.BLOCK_IMAGES

    def loop() -> Any:
        total: Any = 0.0
        for index in range(num_samples):
            network = jax.tree.map(operator.itemgetter(index), samples)
            outputs = [one(network, images[start : start + block]) for start in range(0, num_images, block)]
            total = total + jax.nn.softmax(jnp.concatenate(outputs))
        return total / num_samples

    predictive, loop_times = in_turns(
        lambda: evaluate.predict(model.apply, samples, images), loop, rounds=rounds
    )
    ratio = float(np.median(predictive / loop_times))
    return Row(
        f"predictive of {num_samples} ResNet-20s on {num_images:,} images over one network after the other",
        1.1,
        ratio,
        "times",
        ratio <= 1.1,
        f"{np.median(predictive):.1f} s against {np.median(loop_times):.1f} s, medians of {rounds} rounds in "
        f"turns; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
    )


def rows() -> Iterator[Row]:
    """All lines of this file."""
    yield rate_row()
    yield convolved_row()
    yield memory_row(200, "stored")
    yield memory_row(200, "drawn")
    yield memory_row(1000, "drawn")
    yield metrics_row()


def measure_stored(num_samples: int) -> int:
    """Most bytes of this process after a predictive of samples that are held."""
    # The sampler's own scratch memory is not the predictive's: all samples are one network here.
    samples = jax.tree.map(lambda leaf: jnp.full((num_samples, *leaf.shape), 0.01), posterior().mean)
    jax.block_until_ready(evaluate.predict(apply, samples, inputs()))
    return peak_memory()


def measure_drawn(num_samples: int) -> int:
    """The same of samples that are drawn on the way."""
    law, key = posterior(), jax.random.key(2)
    jax.block_until_ready(evaluate.predict(apply, law, inputs(), key=key, num_samples=num_samples))
    return peak_memory()


if __name__ == "__main__":
    processes.answer({"stored": measure_stored, "drawn": measure_drawn})
