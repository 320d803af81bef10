"""The compact posterior: a Gaussian fitted to samples, per weight or with their covariance.

Xiao, Liu, Bamler (2023). Fitted to raw samples it is q_d, which mixes symmetric copies and means nothing;
fitted to aligned samples it is q_r. The low-rank law keeps the exact sample covariance: with centred samples
X = U S Vᵀ of n networks, weights = mean + Bz with B = V S / √(n-1), from the smaller of X Xᵀ and Xᵀ X.

Samples are stacked networks, or what keeps some: an `Empirical`, what `symmetry.align` made of it, a `Fit`.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from symbnn import chains, tree
from symbnn.posteriors import DiagonalGaussian, LowRankGaussian
from symbnn.types import Samples


def gaussian(samples: Samples) -> DiagonalGaussian:
    """Mean and standard deviation of every weight.

    Args:
        samples: At least one network. A tree of `(chains, draws, ...)` comes in by
            `posteriors.Empirical.from_chains`.
    """
    samples, count = weights_of(samples, minimum=1)
    return DiagonalGaussian(
        mean=jax.tree.map(lambda leaf: leaf.mean(0), samples),
        # One sample has no spread: its law is the network itself.
        std=jax.tree.map(lambda leaf: leaf.std(0, ddof=min(1, count - 1)), samples),
    )


def low_rank(samples: Samples, rank: int | None = None, *, diagonal: bool = False) -> LowRankGaussian:
    """Mean and `rank` leading principal directions (all by default: the exact covariance).

    Args:
        samples: At least two networks, as for `gaussian`.
        rank: Directions to keep, from 1 to the number of networks less one, or of weights if that is smaller.
        diagonal: Also keep what is left of the variance of every weight, as independent noise: then the
            variances are those of `gaussian`.
    """
    samples, count = weights_of(samples, minimum=2)
    num_weights = tree.num_weights(tree.take(samples, 0))
    most = min(count - 1, num_weights)
    rank = most if rank is None else rank
    if not 1 <= rank <= most:
        raise ValueError(
            f"rank must be between 1 and {most} for {count} samples of {num_weights} weights, got {rank}"
        )
    mean = jax.tree.map(lambda leaf: leaf.mean(0), samples)
    centred = jax.tree.map(lambda leaf, centre: leaf - centre, samples, mean)
    factors = (_by_weights if num_weights < count else _by_samples)(centred, rank)
    return LowRankGaussian(mean, factors, jax.tree.map(_rest, centred, factors) if diagonal else None)


def _by_samples(centred: Samples, rank: int) -> Samples:
    """S Vᵀ = Uᵀ X, with U from the n x n matrix X Xᵀ: the weights are never laid out as one long vector."""
    count = tree.num_samples(centred)
    gram = sum(_products(leaf.reshape(count, -1).T) for leaf in jax.tree.leaves(centred))
    _, vectors = jnp.linalg.eigh(gram)
    leading = _with_signs(vectors[:, ::-1][:, :rank]) / jnp.sqrt(count - 1.0)
    return jax.tree.map(lambda leaf: jnp.einsum("nr,n...->r...", leading, leaf).astype(leaf.dtype), centred)


def _by_weights(centred: Samples, rank: int) -> Samples:
    """The same with V and S from the smaller Xᵀ X, where there are more samples than weights."""
    count = tree.num_samples(centred)
    _, unravel = ravel_pytree(tree.take(centred, 0))
    flat = jnp.concatenate([leaf.reshape(count, -1) for leaf in jax.tree.leaves(centred)], axis=1)
    values, vectors = jnp.linalg.eigh(_products(flat))
    spreads = jnp.sqrt(jnp.maximum(values[::-1][:rank], 0.0) / (count - 1.0))
    return jax.vmap(unravel)((_with_signs(vectors[:, ::-1][:, :rank]) * spreads).T.astype(flat.dtype))


def _products(columns: Float[Array, "m k"]) -> Float[Array, "k k"]:
    """Inner products of the columns, of float16 in single precision."""
    dtype = jnp.promote_types(columns.dtype, jnp.float32)
    return jnp.einsum("ma,mb->ab", columns, columns, preferred_element_type=dtype)


def _rest(centred: Float[Array, "n ..."], factors: Float[Array, "r ..."]) -> Float[Array, "..."]:
    """The standard deviation that the factors leave; rounding may take them above the variance."""
    variance = jnp.sum(centred**2, axis=0) / (len(centred) - 1)
    return jnp.sqrt(jnp.maximum(variance - jnp.sum(factors**2, axis=0), 0.0))


def _with_signs(vectors: Float[Array, "n rank"]) -> Float[Array, "n rank"]:
    """Directions whose entry of largest magnitude is positive: `eigh` gives other signs on other machines."""
    largest = jnp.argmax(jnp.abs(vectors), axis=0, keepdims=True)
    return vectors * jnp.sign(jnp.take_along_axis(vectors, largest, axis=0))


def weights_of(given: Any, *, minimum: int) -> tuple[Samples, int]:
    """The stacked networks in what was given as samples, and their number, at least `minimum`."""
    samples = chains.unpack(given).samples
    chains.check_numbers(samples, "no law of weights is fitted to it")
    count = tree.num_samples(samples)
    if count < minimum:
        raise ValueError(f"a Gaussian needs at least {minimum} samples, got {count}")
    return samples, count
