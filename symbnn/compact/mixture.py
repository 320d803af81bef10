"""A mixture of a few diagonal Gaussians: one per cluster of aligned samples.

Clusters are given (the chain of every sample) or found by k-means (Lloyd 1982; spread-out starts after
Arthur & Vassilvitskii 2007) with every weight in units of its standard deviation. Distances come from the
n x n Gram matrix of the samples, so a round does not cost more for more weights:

    |x - c|² = mean over y in C of |x - y|² - ½ mean over y, z in C of |y - z|²,   c the centre of C
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from symbnn import tree
from symbnn.posteriors import DiagonalGaussian, GaussianMixture
from symbnn.types import Key, Samples

ROUNDS = 50
"""Of k-means, which settles in about ten; a settled round costs two small matrix products."""


def mixture(samples: Samples, labels: Int[Array | np.ndarray, " n"]) -> GaussianMixture:
    """One Gaussian per label, weighted by its share of samples, in the order of the labels.

    Its variance counts, beside its own samples, one at the distance that is usual within clusters: so
    a cluster of one sample has a spread, and one cluster of all samples is `compact.gaussian`.
    """
    count = tree.num_samples(samples)
    if np.shape(labels) != (count,):
        raise ValueError(f"labels must be one number for each of {count} samples; got {np.shape(labels)}")
    known, clusters = np.unique(np.asarray(labels), return_inverse=True)
    if len(known) >= count:
        raise ValueError(f"no spread is known: {count} samples have {len(known)} labels, expected fewer")
    members = jax.nn.one_hot(jnp.asarray(clusters), len(known), axis=0)
    means, stds = _moments(members, samples)
    return GaussianMixture(members.mean(1), DiagonalGaussian(means, stds))


def k_means(key: Key, samples: Samples, num_clusters: int) -> Int[Array, " n"]:
    """Label of every sample, from 0 to `num_clusters` - 1; a label may stay unused."""
    count = tree.num_samples(samples)
    if not 1 <= num_clusters <= count:
        raise ValueError(
            f"num_clusters must be between 1 and {count}, the number of samples; got {num_clusters}"
        )
    return _lloyd(key, _squared_distances(samples), num_clusters)


@jax.jit
def _moments(members: Float[Array, "k n"], samples: Samples) -> tuple[Samples, Samples]:
    """Means and standard deviations of the clusters, stacked."""
    sizes = members.sum(1)

    def per_cluster(values: Array) -> Array:
        return jnp.tensordot(members, values, axes=1) / sizes.reshape(-1, *(1,) * (values.ndim - 1))

    def spread(leaf: Array, mean: Array) -> Array:
        squares = jnp.square(leaf - jnp.tensordot(members.T, mean, axes=1))
        within = squares.sum(0) / (leaf.shape[0] - sizes.size)
        return jnp.sqrt(per_cluster(squares) + within / sizes.reshape(-1, *(1,) * (leaf.ndim - 1)))

    means = jax.tree.map(per_cluster, samples)
    return means, jax.tree.map(spread, samples, means)


@jax.jit
def _squared_distances(samples: Samples) -> Float[Array, "n n"]:
    """Between all pairs; a weight that never varies does not count."""

    def gram(leaf: Array) -> Array:
        flat = leaf.reshape(leaf.shape[0], -1)
        scale = flat.std(0)
        scaled = jnp.where(scale > 0, (flat - flat.mean(0)) / jnp.where(scale > 0, scale, 1.0), 0.0)
        return jnp.matmul(scaled, scaled.T, precision=jax.lax.Precision.HIGHEST)

    products = jax.tree.reduce(jnp.add, jax.tree.map(gram, samples))
    norms = jnp.diagonal(products)
    return jnp.maximum(norms[:, None] + norms[None, :] - 2.0 * products, 0.0)


@partial(jax.jit, static_argnames="num_clusters")
def _lloyd(key: Key, squared: Float[Array, "n n"], num_clusters: int) -> Int[Array, " n"]:
    def step(_: Any, labels: Array) -> Array:
        members = jax.nn.one_hot(labels, num_clusters, axis=0)
        sizes = members.sum(1, keepdims=True)
        shares = members / jnp.maximum(sizes, 1.0)
        to_members = shares @ squared
        to_centre = to_members - 0.5 * jnp.sum(to_members * shares, axis=1, keepdims=True)
        return jnp.argmin(jnp.where(sizes > 0, to_centre, jnp.inf), axis=0)

    return jax.lax.fori_loop(
        0, ROUNDS, step, jnp.argmin(squared[_starts(key, squared, num_clusters)], axis=0)
    )


def _starts(key: Key, squared: Float[Array, "n n"], num_clusters: int) -> Int[Array, " k"]:
    """Samples far from each other: each is drawn with probability proportional to its squared distance."""

    def step(nearest: Array, step_key: Key) -> tuple[Array, Array]:
        chosen = jax.random.categorical(step_key, jnp.log(nearest))
        return jnp.minimum(nearest, squared[chosen]), chosen

    # Farther than any two samples, and equal: the first is drawn uniformly.
    far = jnp.full(len(squared), 1.0 + squared.max())
    return jax.lax.scan(step, far, jax.random.split(key, num_clusters))[1]
