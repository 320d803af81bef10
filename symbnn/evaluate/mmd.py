"""Maximum mean discrepancy between two sets of networks (Gretton et al. 2012), over kernels and bandwidths.

    MMD^2 = mean_(i!=j) k(x_i, x_j) + mean_(i!=j) k(y_i, y_j) - 2 mean_ij k(x_i, y_j)

This U-statistic is unbiased and may be negative. Kernels: Laplace exp(-|x - y|_1 / b) and Gaussian
exp(-|x - y|_2^2 / b^2), each at a geometric grid of bandwidths (Schrab et al. 2021) from d_min/2 to 2 d_max,
found from the distances between the first 500 networks of either set: d_min is the smallest if that is at
least 0.1, else the 5th percentile but at least 0.1; d_max is the largest but at least 0.3.

All kernels' values are aggregated to one number by `max` (the largest over a family of unit balls) or `mean`.
Permuting who belongs to which set gives a p-value. It takes the networks of each set to be independent draws;
draws of a Markov chain must be thinned first, or p is too small. The permutations reuse the bandwidths of
the given arrangement, which depend on who belongs to which set through the ends of the grid alone: but for
that, p is exact. Resampling each set with replacement gives an interval; a network paired with its own copy
is left out, since a kernel value of one there would bias it upwards.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbnn import chains, keys, tree
from symbnn.evaluate.distances import Distances, layer_distances
from symbnn.names import lookup
from symbnn.types import Key, Samples

NUM_FOR_BANDWIDTHS = 500
# Of estimates, which are differences of means of numbers up to one.
ROUNDING = 4e-6


class Discrepancy(NamedTuple):
    """MMD^2 over some weights: one number, and its parts by kernel; None for what was not asked for."""

    value: jax.Array
    estimates: dict[str, jax.Array]
    bandwidths: dict[str, jax.Array]
    p_value: jax.Array | None
    interval: jax.Array | None


class MMD(NamedTuple):
    """The discrepancy over all weights together, of each layer alone, and how many networks were compared."""

    total: Discrepancy
    layers: dict[str, Discrepancy]
    num_samples: tuple[int, int]


class _Weights(NamedTuple):
    """How often each pooled network counts in either set, one row per replicate."""

    first: jax.Array
    second: jax.Array


class _Replicates(NamedTuple):
    """One thing (weights, then estimates) for each kind of replicate; None for kinds that are not wanted."""

    given: Any
    permuted: Any
    resampled: Any


def mmd(
    samples_a: Any,
    samples_b: Any,
    *,
    key: Key | None = None,
    kernels: Sequence[str] = ("laplace", "gaussian"),
    num_bandwidths: int = 10,
    aggregate: str = "max",
    equal_sizes: bool = True,
    num_permutations: int = 0,
    num_bootstrap: int = 0,
    confidence: float = 0.95,
    block: int = 4096,
) -> MMD:
    """MMD^2 per layer and in total.

    Args:
        samples_a: At least two networks, stacked or kept by an `Empirical`; its chains count as one set.
        samples_b: At least two networks of the same shapes.
        key: Needed for whatever is random: thinning, permutations, the bootstrap.
        kernels: `"laplace"`, `"gaussian"` or both.
        num_bandwidths: Of every kernel.
        aggregate: `"max"` or `"mean"` over kernels and bandwidths.
        equal_sizes: Thin the larger set to the size of the smaller.
        num_permutations: For the p-value; 0 for none.
        num_bootstrap: Resamplings for the interval; 0 for none.
        confidence: Of the interval.
        block: Weights that are compared at a time.
    """
    kernels = tuple(kernels)
    for kernel in kernels:
        lookup(_KERNELS, kernel, "kernel")
    lookup(_AGGREGATES, aggregate, "aggregate")
    samples_a, samples_b = (chains.unpack(samples).samples for samples in (samples_a, samples_b))
    sizes = _check(samples_a, samples_b)
    is_thinned = equal_sizes and sizes[0] != sizes[1]
    if key is None and (num_permutations or num_bootstrap or is_thinned):
        raise ValueError(f"key: needed to permute, resample or thin {sizes[0]} and {sizes[1]} networks")
    key = jax.random.key(0) if key is None else key
    counts = (min(sizes), min(sizes)) if is_thinned else sizes
    rows = _choose_rows(keys.named(key, "thin"), sizes, counts)
    replicates = _replicates(keys.named(key, "replicates"), *counts, num_permutations, num_bootstrap)
    compare = partial(_discrepancy, kernels, num_bandwidths, aggregate, confidence, counts[0], replicates)
    layers: dict[str, Discrepancy] = {}
    total: Distances | None = None
    for layer, distances in layer_distances(samples_a, samples_b, *rows, block=block):
        _check_finite(layer, distances)
        layers[layer] = compare(distances)
        total = distances if total is None else jax.tree.map(jnp.add, total, distances)
    assert total is not None
    return MMD(compare(total), layers, counts)


def bandwidth_grid(cross: Float[Array, "m n"], num: int) -> Float[Array, " num"]:
    """The geometric grid of bandwidths from the distances between the two sets."""
    ordered = jnp.sort(cross[:NUM_FOR_BANDWIDTHS, :NUM_FOR_BANDWIDTHS], axis=None)
    fifth_percentile = ordered[int(0.05 * ordered.size)]
    smallest = jnp.where(ordered[0] >= 0.1, ordered[0], jnp.maximum(fifth_percentile, 0.1))
    largest = jnp.maximum(ordered[-1], 0.3)
    return jnp.geomspace(smallest / 2.0, 2.0 * largest, num)


# distances -> (distance, power): each kernel is exp(-(distance / bandwidth)^power).
_KERNELS: dict[str, Callable[[Distances], tuple[jax.Array, int]]] = {
    "laplace": lambda distances: (distances.absolute, 1),
    "gaussian": lambda distances: (jnp.sqrt(distances.squared), 2),
}
_AGGREGATES: dict[str, Callable[..., jax.Array]] = {"max": jnp.max, "mean": jnp.mean}


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _discrepancy(
    kernels: tuple[str, ...],
    num_bandwidths: int,
    aggregate: str,
    confidence: float,
    size_a: int,
    replicates: _Replicates,
    distances: Distances,
) -> Discrepancy:
    bandwidths, values = {}, {}
    for kernel in kernels:
        distance, power = _KERNELS[kernel](distances)
        bandwidths[kernel] = bandwidth_grid(distance[:size_a, size_a:], num_bandwidths)
        values[kernel] = _over_bandwidths(distance, power, bandwidths[kernel], replicates)
    stacked = jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=-1), *values.values())
    one = jax.tree.map(partial(_AGGREGATES[aggregate], axis=-1), stacked)
    p_value = None
    if one.permuted is not None:
        # Share at least as large, the given arrangement counted: under equal laws it is as likely as any.
        # An arrangement that is the given one, or that with the sets exchanged, is summed in another order.
        p_value = (1 + jnp.sum(one.permuted >= one.given[0] - ROUNDING)) / (1 + one.permuted.size)
    tails = jnp.asarray([0.5 - 0.5 * confidence, 0.5 + 0.5 * confidence])
    return Discrepancy(
        value=one.given[0],
        estimates={kernel: value.given[0] for kernel, value in values.items()},
        bandwidths=bandwidths,
        p_value=p_value,
        interval=None if one.resampled is None else jnp.quantile(one.resampled, tails),
    )


def _over_bandwidths(
    distance: jax.Array, power: int, bandwidths: jax.Array, replicates: _Replicates
) -> _Replicates:
    """Estimates `(replicates, bandwidths)`; one kernel matrix at a time."""
    off_diagonal = 1.0 - jnp.eye(distance.shape[0])

    def at(bandwidth: jax.Array) -> _Replicates:
        kernel = jnp.exp(-((distance / bandwidth) ** power)) * off_diagonal
        return _Replicates(*(None if w is None else _estimates(kernel, w) for w in replicates))

    return jax.tree.map(jnp.transpose, jax.lax.map(at, bandwidths))


def _estimates(kernel: Float[Array, "n n"], weights: _Weights) -> Float[Array, " replicates"]:
    """The U-statistic of weighted sets; the kernel's diagonal is zero."""
    product = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
    seen = product(weights.first, kernel)

    def pairs(a: jax.Array) -> jax.Array:
        return jnp.square(jnp.sum(a, axis=1)) - jnp.sum(jnp.square(a), axis=1)

    first = jnp.sum(seen * weights.first, axis=1) / pairs(weights.first)
    second = jnp.sum(product(weights.second, kernel) * weights.second, axis=1) / pairs(weights.second)
    cross_pairs = jnp.sum(weights.first, axis=1) * jnp.sum(weights.second, axis=1)
    return first + second - 2.0 * jnp.sum(seen * weights.second, axis=1) / cross_pairs


def _replicates(key: Key, size_a: int, size_b: int, num_permutations: int, num_bootstrap: int) -> _Replicates:
    size = size_a + size_b
    given = (jnp.arange(size) < size_a).astype(jnp.float32)

    def permute(one: Key) -> _Weights:
        first = jax.random.permutation(one, given)
        return _Weights(first, 1.0 - first)

    def resample(one: Key) -> _Weights:
        key_a, key_b = jax.random.split(one)
        drawn_a = jax.random.randint(key_a, (size_a,), 0, size_a)
        drawn_b = jax.random.randint(key_b, (size_b,), size_a, size)
        none = jnp.zeros(size)
        return _Weights(none.at[drawn_a].add(1.0), none.at[drawn_b].add(1.0))

    def many(function: Callable[[Key], _Weights], name: str, num: int) -> _Weights | None:
        return jax.vmap(function)(keys.indexed(keys.named(key, name), 0, num)) if num else None

    return _Replicates(
        _Weights(given[None], 1.0 - given[None]),
        many(permute, "permute", num_permutations),
        many(resample, "resample", num_bootstrap),
    )


def _choose_rows(key: Key, sizes: tuple[int, int], counts: tuple[int, int]) -> list[np.ndarray]:
    """As many rows of either set, drawn without replacement and kept in order."""
    return [
        np.sort(np.asarray(jax.random.choice(key, size, (count,), replace=False)))
        for size, count in zip(sizes, counts, strict=True)
    ]


def _check_finite(layer: str, distances: Distances) -> None:
    """Here, not in the weights, of which only a block at a time is in memory."""
    if not bool(jnp.all(jnp.isfinite(distances.squared))):
        raise ValueError(
            f"layer {layer!r}: the squared distances between networks are not finite in float32; "
            "expected finite weights, below about 1e16"
        )


def _check(samples_a: Samples, samples_b: Samples) -> tuple[int, int]:
    for samples in (samples_a, samples_b):
        chains.check_numbers(samples, "networks have no distance in it")
    sizes = tree.num_samples(samples_a), tree.num_samples(samples_b)
    if min(sizes) < 2:
        raise ValueError(
            f"samples: expected at least two networks in each set, got {sizes[0]} and {sizes[1]}"
        )
    tree.check_same_shapes("samples_b", samples_b, tree.take(samples_a, 0), num_leading=1)
    return sizes
