"""Alignment and minimum mass: speed against straightforward code in the same run, and peak memory.

Ratios, because absolute times depend on the machine; both sides take turns, so that its load hits both.
"""

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator

import cvxpy
import jax
import jax.numpy as jnp
import numpy as np
import psutil
from scipy.optimize import linear_sum_assignment

from symbnn import symmetry, tree
from tests.bench import Row, peak_memory
from tests.networks import layer_name, mlp_params, mlp_spec

SIZES = (784, 512, 512, 512, 10)
GIBIBYTE = 2**30


def rows() -> Iterator[Row]:
    """Every promise of this module."""
    yield _independent_row()
    yield _chain_row()
    yield _mean_row()
    yield _memory_row()
    yield _balance_row()
    yield _residual_row()


def coordinate_descent(reference, params) -> float:
    """One pair, plainly: numpy products, one scipy assignment per layer and sweep, until none gains."""
    a, b = ([tree_[layer_name(layer, SIZES)] for layer in range(4)] for tree_ in (reference, params))
    orders = [np.arange(512) for _ in range(3)]

    def cost(layer: int) -> np.ndarray:
        entering = b[layer]["kernel"] if layer == 0 else b[layer]["kernel"][orders[layer - 1]]
        leaving = b[layer + 1]["kernel"] if layer == 2 else b[layer + 1]["kernel"][:, orders[layer + 1]]
        total = a[layer]["kernel"].T @ entering + a[layer + 1]["kernel"] @ leaving.T
        return total + np.outer(a[layer]["bias"], b[layer]["bias"])

    units = np.arange(512)
    for _ in range(100):
        gain = 0.0
        for layer in range(3):
            matrix = cost(layer)
            order = linear_sum_assignment(matrix, maximize=True)[1]
            gain += float(matrix[units, order].sum() - matrix[units, orders[layer]].sum())
            orders[layer] = order
        if gain <= 1e-4:
            break
    first = np.sum(a[0]["kernel"] * b[0]["kernel"][:, orders[0]])
    inner = sum(np.sum(a[k]["kernel"] * b[k]["kernel"][orders[k - 1]][:, orders[k]]) for k in (1, 2))
    biases = sum(np.sum(a[k]["bias"] * b[k]["bias"][orders[k]]) for k in range(3))
    return float(first + inner + biases + np.sum(a[3]["kernel"] * b[3]["kernel"][orders[2]]))


def _independent_row() -> Row:
    reference, spec = _reference()
    samples = _networks(jax.random.key(1), 200)
    ours, theirs, gaps = [], [], []
    symmetry.align(spec, _slice(samples, 0, 50), reference=reference)
    for begin in range(0, 200, 50):
        part = _slice(samples, begin, 50)
        result, seconds = _timed(lambda part=part: symmetry.align(spec, part, reference=reference))
        ours.append(seconds / 50)
        for index in range(2):
            one = _on_host(tree.take(part, index))
            value, seconds = _timed(lambda one=one: coordinate_descent(_on_host(reference), one))
            theirs.append(seconds)
            gaps.append(result.objective[-1, index] / value - 1)
    ratio = statistics.median(theirs) / statistics.median(ours)
    return Row(
        "align 200 independent 784-512-512-512-10 nets",
        3.0,
        ratio,
        "times plain numpy",
        bool(ratio >= 3 and min(gaps) >= -1e-4),
        f"{1e3 * statistics.median(ours):.0f} ms against {1e3 * statistics.median(theirs):.0f} ms a net; "
        f"objective {100 * min(gaps):+.1f} % to {100 * max(gaps):+.1f} %",
    )


def _chain_row() -> Row:
    """64 draws of a slow walk around a net that is independent of the reference."""
    reference, spec = _reference()
    start = _networks(jax.random.key(2), 1)
    walk = jax.jit(
        lambda one: jax.tree.map(
            lambda leaf: (
                leaf
                + jnp.cumsum(
                    0.02 * jnp.std(leaf) * jax.random.normal(jax.random.key(3), (64, *leaf.shape[1:])), 0
                )
            ),
            one,
        )
    )(start)
    symmetry.align(spec, walk, reference=reference, warm_start="chain")
    ours, theirs, gaps = [], [], []
    for _ in range(3):
        result, seconds = _timed(lambda: symmetry.align(spec, walk, reference=reference, warm_start="chain"))
        ours.append(seconds / 64)
        for index in (20, 60):
            one = _on_host(tree.take(walk, index))
            value, seconds = _timed(lambda one=one: coordinate_descent(_on_host(reference), one))
            theirs.append(seconds)
            gaps.append(result.objective[-1, index] / value - 1)
    ratio = statistics.median(theirs) / statistics.median(ours)
    return Row(
        "align 64 draws of a chain, warm starts",
        10.0,
        ratio,
        "times plain numpy",
        bool(ratio >= 10 and min(gaps) >= -1e-4),
        f"{1e3 * statistics.median(ours):.0f} ms against {1e3 * statistics.median(theirs):.0f} ms a draw; "
        f"objective {100 * min(gaps):+.1f} % to {100 * max(gaps):+.1f} %",
    )


def _mean_row() -> Row:
    """50 independent networks of the compact posterior's paper to their mean, compilation included."""
    sizes = (784, 512, 10)
    samples = _networks(jax.random.key(7), 50, sizes)
    spec = mlp_spec(sizes, tree.take(samples, 0))
    _, seconds = _timed(lambda: symmetry.align(spec, samples, reference="mean"))
    return Row(
        "align 50 independent 784-512-10 nets to their mean, compilation included",
        60.0,
        seconds,
        "s",
        seconds < 60,
        f"{seconds / 50:.2f} s a net",
    )


def _memory_row() -> Row:
    """In a process of its own, because a peak cannot be reset."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        held, peak = pool.apply(_measure_memory)
    extra = (peak - held) / GIBIBYTE
    return Row(
        "align 1,000 nets of 784-512-512-512-10: memory beside the samples",
        4.0,
        extra,
        "GiB",
        extra < 4,
        f"samples and program {held / GIBIBYTE:.1f} GiB; the aligned copy is 3.5 GiB of the measured",
    )


def _measure_memory() -> tuple[int, int]:
    reference, spec = _reference()

    def nearby(key: jax.Array):
        return jax.tree.map(
            lambda leaf: leaf + 0.3 * jnp.std(leaf) * jax.random.normal(key, leaf.shape), reference
        )

    make = jax.jit(lambda all_keys: jax.lax.map(nearby, all_keys))
    samples = jax.block_until_ready(make(jax.random.split(jax.random.key(4), 1000)))
    held = psutil.Process().memory_info().rss
    jax.block_until_ready(symmetry.align(spec, samples, reference=reference).samples)
    return held, peak_memory()


def _balance_row() -> Row:
    sizes = (64, 32, 32, 10)
    params = mlp_params(sizes, jax.random.key(5), spread=0.5)
    spec = mlp_spec(sizes, params, scales=True)
    jax.block_until_ready(symmetry.balance(spec, params))
    ours, theirs, gaps = [], [], []
    for _ in range(5):
        runs = [_timed(lambda: symmetry.balance(spec, params)) for _ in range(20)]
        ours.append(statistics.median(seconds for _, seconds in runs))
        value, seconds = _timed(lambda: _cvxpy_minimum(params, sizes))
        theirs.append(seconds)
        gaps.append(abs(float(runs[0][0].mass_after) / value - 1))
    ratio = statistics.median(theirs) / statistics.median(ours)
    return Row(
        "minimum mass of 64-32-32-10",
        100.0,
        ratio,
        "times cvxpy + Clarabel",
        bool(ratio >= 100 and max(gaps) < 1e-6),
        f"{1e3 * statistics.median(ours):.2f} ms against {1e3 * statistics.median(theirs):.0f} ms, compiled; "
        f"masses differ by {max(gaps):.0e}",
    )


def _cvxpy_minimum(params, sizes) -> float:
    hidden = [cvxpy.Variable(size) for size in sizes[1:-1]]
    logs = [np.zeros(sizes[0]), *hidden, np.zeros(sizes[-1])]
    total = 0
    for layer in range(len(sizes) - 1):
        weights = params[layer_name(layer, sizes)]
        before = cvxpy.reshape(logs[layer], (sizes[layer], 1), order="C")
        after = cvxpy.reshape(logs[layer + 1], (1, sizes[layer + 1]), order="C")
        squares = np.asarray(weights["kernel"], np.float64) ** 2
        total += cvxpy.sum(cvxpy.multiply(squares, cvxpy.exp(2 * (after - before))))
        total += cvxpy.sum(
            cvxpy.multiply(np.asarray(weights["bias"], np.float64) ** 2, cvxpy.exp(2 * logs[layer + 1]))
        )
    problem = cvxpy.Problem(cvxpy.Minimize(total))
    problem.solve(solver=cvxpy.CLARABEL)
    return problem.value


def _residual_row() -> Row:
    """ResNet-18 with biases instead of normalisation: 11.2 million weights, tied streams."""
    spec, params = residual_network()
    result, seconds = _timed(lambda: symmetry.balance(spec, params))
    return Row(
        "minimum mass of ResNet-18 without normalisation, compilation included",
        10.0,
        seconds,
        "s",
        seconds < 10 and float(result.residual) < 1e-8,
        f"mass {float(result.mass_before):.0f} to {float(result.mass_after):.0f}, "
        f"residual {float(result.residual):.0e}",
    )


def residual_network() -> tuple[symmetry.SymmetrySpec, dict]:
    """Stem, four stages of two blocks, projections between stages, linear head."""
    shapes: dict[str, tuple[int, ...]] = {"stem/kernel": (3, 3, 3, 64), "stem/bias": (64,)}
    axes: dict[str, tuple] = {"stem/kernel": (None, None, None, "stream0"), "stem/bias": ("stream0",)}
    widths = (64, 128, 256, 512)
    for stage, width in enumerate(widths):
        for block in range(2):
            name, inner, stream = f"stage{stage}_block{block}", f"inner{stage}_{block}", f"stream{stage}"
            before, size = (
                (stream, width) if block or not stage else (f"stream{stage - 1}", widths[stage - 1])
            )
            shapes |= {f"{name}/conv0/kernel": (3, 3, size, width), f"{name}/conv0/bias": (width,)}
            shapes |= {f"{name}/conv1/kernel": (3, 3, width, width), f"{name}/conv1/bias": (width,)}
            axes |= {f"{name}/conv0/kernel": (None, None, before, inner), f"{name}/conv0/bias": (inner,)}
            axes |= {f"{name}/conv1/kernel": (None, None, inner, stream), f"{name}/conv1/bias": (stream,)}
            if before != stream:
                shapes[f"{name}/shortcut/kernel"] = (1, 1, size, width)
                axes[f"{name}/shortcut/kernel"] = (None, None, before, stream)
    shapes["head/kernel"], axes["head/kernel"] = (512, 10), ("stream3", None)
    random = np.random.default_rng(0)
    flat = {
        name: np.float32(random.normal(size=shape) / np.sqrt(np.prod(shape[:-1])))
        for name, shape in shapes.items()
    }
    scales = {
        name: tuple(
            None if group is None else "+" if axis == len(groups) - 1 else "-"
            for axis, group in enumerate(groups)
        )
        for name, groups in axes.items()
    }
    params: dict = {}
    for name, value in flat.items():
        *path, last = name.split("/")
        node = params
        for part in path:
            node = node.setdefault(part, {})
        node[last] = jnp.asarray(value)
    return symmetry.from_axes(axes, params, scales=scales), params


def _reference():
    params = mlp_params(SIZES, jax.random.key(0))
    return params, mlp_spec(SIZES, params)


def _networks(key: jax.Array, num: int, sizes: tuple[int, ...] = SIZES):
    make = jax.jit(lambda all_keys: jax.lax.map(lambda one: mlp_params(sizes, one), all_keys))
    return jax.block_until_ready(make(jax.random.split(key, num)))


def _slice(samples, begin: int, length: int):
    return jax.tree.map(lambda leaf: leaf[begin : begin + length], samples)


def _on_host(params):
    return jax.tree.map(np.asarray, params)


def _timed(function: Callable):
    begin = time.perf_counter()
    result = function()
    jax.block_until_ready([leaf for leaf in jax.tree.leaves(result) if isinstance(leaf, jax.Array)])
    return result, time.perf_counter() - begin
