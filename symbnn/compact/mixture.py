"""A mixture of a few diagonal Gaussians: one per cluster of aligned samples.

Clusters are given (by default the chain of every sample) or found by scikit-learn's k-means with every weight
in units of its standard deviation. Where there are more weights than samples it sees the n coordinates that
their n x n Gram matrix gives, in which distances are the same: a round does not cost more for more weights.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from symbnn import chains, tree
from symbnn.compact.gaussian import weights_of
from symbnn.posteriors import DiagonalGaussian, GaussianMixture
from symbnn.types import Key, Samples

STARTS = 10
"""Of k-means; the clusters of least inertia count. One start ends in a poor optimum every now and then."""


def mixture(samples: Samples, labels: Int[Array | np.ndarray, " n"] | None = None) -> GaussianMixture:
    """One Gaussian per label, weighted by its share of samples, in the order of the labels.

    Its variance counts, beside its own samples, one at the distance that is usual within clusters: so
    a cluster of one sample has a spread, and one cluster of all samples is `compact.gaussian`.

    Args:
        samples: Aligned networks, as for `gaussian`.
        labels: The cluster of every sample; by default its chain, which an `Empirical` knows.
    """
    labels = _chain_of_each(samples) if labels is None else labels
    samples, count = weights_of(samples, minimum=1)
    if np.shape(labels) != (count,):
        raise ValueError(f"labels must be one number for each of {count} samples; got {np.shape(labels)}")
    known, clusters = np.unique(np.asarray(labels), return_inverse=True)
    if len(known) >= count:
        raise ValueError(f"labels: expected fewer than {count}, the number of samples; got {len(known)}")
    members = jax.nn.one_hot(jnp.asarray(clusters), len(known), axis=0)
    means, stds = _moments(members, samples)
    return GaussianMixture(members.mean(1), DiagonalGaussian(means, stds))


def k_means(key: Key, samples: Samples, num_clusters: int) -> Int[np.ndarray, " n"]:
    """Label of every sample, from 0 to `num_clusters` - 1.

    Args:
        key: Seeds the starts.
        samples: Aligned networks, as for `gaussian`; a weight that never varies does not count.
        num_clusters: From 1 to the number of samples.
    """
    from sklearn.cluster import KMeans

    samples, count = weights_of(samples, minimum=1)
    if not 1 <= num_clusters <= count:
        raise ValueError(
            f"num_clusters must be between 1 and {count}, the number of samples; got {num_clusters}"
        )
    seed = int(jax.random.bits(key, dtype=jnp.uint32))
    scaled = _standardised(samples)
    if tree.num_weights(tree.take(samples, 0)) < count:
        coordinates = np.concatenate([np.asarray(leaf) for leaf in scaled], axis=1)
    else:
        values, vectors = np.linalg.eigh(np.asarray(_gram(scaled), np.float64))
        coordinates = vectors * np.sqrt(np.maximum(values, 0.0))
    return KMeans(num_clusters, n_init=STARTS, random_state=seed).fit_predict(coordinates)


def _chain_of_each(given: Any) -> Int[np.ndarray, " n"]:
    """The chain that every sample comes from; `ValueError` if nothing tells."""
    samples, num_chains = chains.unpack(given)
    if num_chains is None:
        raise ValueError(
            "labels are needed: one for every sample, or a posteriors.Empirical, whose chains are then the "
            "clusters"
        )
    return np.repeat(np.arange(num_chains), tree.num_samples(samples) // num_chains)


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
def _standardised(samples: Samples) -> list[Float[Array, "n _"]]:
    """Every leaf in rows, its weights in units of their standard deviations; zero where that is zero."""

    def rows(leaf: Array) -> Array:
        # scikit-learn takes no shorter numbers.
        flat = leaf.reshape(leaf.shape[0], -1).astype(jnp.promote_types(leaf.dtype, jnp.float32))
        scale = flat.std(0)
        return jnp.where(scale > 0, (flat - flat.mean(0)) / jnp.where(scale > 0, scale, 1.0), 0.0)

    return [rows(leaf) for leaf in jax.tree.leaves(samples)]


@jax.jit
def _gram(rows: list[Float[Array, "n _"]]) -> Float[Array, "n n"]:
    """Inner products of the samples."""
    products = [jnp.matmul(leaf, leaf.T, precision=jax.lax.Precision.HIGHEST) for leaf in rows]
    return jax.tree.reduce(jnp.add, products)
