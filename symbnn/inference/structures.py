"""What is kept of the curvature around a mode, and the Gaussian that it makes with a prior.

    precision = ( c G + diag P ) / T,   G the generalised Gauss-Newton matrix, P the prior's precisions

| structure   | of G is kept                  | posterior           |
|-------------|-------------------------------|---------------------|
| `diagonal`  | the diagonal                  | `DiagonalGaussian`  |
| `kronecker` | A ⊗ B for every leaf          | `KroneckerGaussian` |
| `low_rank`  | the `rank` largest eigenpairs | `LowRankPrecision`  |
| `full`      | everything                    | `LowRankGaussian`   |
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn import tree
from symbnn.density import Batch
from symbnn.inference import curvature
from symbnn.inference.kronecker import kronecker
from symbnn.inference.layers import readings
from symbnn.posteriors import (
    Block,
    DiagonalGaussian,
    Gaussian,
    KroneckerGaussian,
    LowRankGaussian,
    LowRankPrecision,
)
from symbnn.types import Key, Params

ALL = ""
"""The one group of weights of a structure that does not keep leaves apart."""


class Mode(NamedTuple):
    """The weights around which the Gaussian lies."""

    params: Params
    """Those that vary."""
    apply: Callable[[Params, Any], Any]
    """(params, inputs) -> outputs."""
    network: curvature.Fitted
    """The same by a flat vector."""
    prior_precision: dict[str, float]
    """P, by leaf name."""
    temperature: float
    unravel: Callable[[Array], Params]


class Curvature(NamedTuple):
    """The curvature at a mode, factored once."""

    spectra: dict[str, Float[Array, " k"]]
    """Eigenvalues of P^(-1/2) G P^(-1/2), by leaf name, or of all weights together under `ALL`."""
    gaussian: Callable[[Any, dict[str, Any]], Gaussian]
    """(c, precisions by leaf name) -> the posterior."""


class Structure(NamedTuple):
    """A way to keep curvature."""

    factor: Callable[[Key, Mode, Batch, int, int], Curvature]
    """(key, mode, data, rank, chunk_size) -> curvature."""
    by_leaf: bool
    """Whether leaves are kept apart, so that each may have a prior of its own."""
    check: Callable[[Callable[..., Any], Params, Any], Any] = lambda apply, params, x: None
    """(apply, params, one input): `ValueError` for a network that it cannot take, before training."""


def spread(by_leaf: dict[str, Any], params: Params) -> Float[Array, " p"]:
    """One number for every leaf as one for every weight, flat."""
    leaves = tree.named_leaves(params).items()
    return jnp.concatenate([jnp.full(leaf.size, by_leaf[name], leaf.dtype) for name, leaf in leaves])


def _diagonal(key: Key, mode: Mode, data: Batch, rank: int, chunk_size: int) -> Curvature:
    diagonal = curvature.diagonal(mode.network, data, chunk_size=chunk_size)

    def gaussian(factor: Any, precision: dict[str, Any]) -> DiagonalGaussian:
        std = jnp.sqrt(mode.temperature / (factor * diagonal + spread(precision, mode.params)))
        return DiagonalGaussian(mode.params, mode.unravel(std))

    leaves = tree.named_leaves(mode.unravel(diagonal)).items()
    return Curvature({name: leaf.ravel() / mode.prior_precision[name] for name, leaf in leaves}, gaussian)


def _kronecker(key: Key, mode: Mode, data: Batch, rank: int, chunk_size: int) -> Curvature:
    factors = kronecker(mode.apply, mode.network.likelihood, mode.params, data, chunk_size=chunk_size)

    def gaussian(factor: Any, precision: dict[str, Any]) -> KroneckerGaussian:
        blocks = {
            name: Block(
                leaf.left,
                leaf.right,
                jnp.sqrt(mode.temperature / (factor * leaf.values + precision[name])),
                leaf.inputs,
            )
            for name, leaf in factors.items()
        }
        return KroneckerGaussian(mode.params, blocks)

    spectra = {name: leaf.values.ravel() / mode.prior_precision[name] for name, leaf in factors.items()}
    return Curvature(spectra, gaussian)


def _low_rank(key: Key, mode: Mode, data: Batch, rank: int, chunk_size: int) -> Curvature:
    factors = curvature.low_rank(key, mode.network, data, rank=rank, chunk_size=chunk_size)

    def gaussian(factor: Any, precision: dict[str, Any]) -> LowRankPrecision:
        std = jnp.sqrt(mode.temperature / spread(precision, mode.params))
        scaled = factors * jnp.sqrt(factor) / math.sqrt(mode.temperature)
        return LowRankPrecision(mode.params, mode.unravel(std), jax.vmap(mode.unravel)(scaled))

    whitened = factors / jnp.sqrt(spread(mode.prior_precision, mode.params))
    return Curvature({ALL: _eigenvalues(whitened @ whitened.T)}, gaussian)


def _full(key: Key, mode: Mode, data: Batch, rank: int, chunk_size: int) -> Curvature:
    """precision = L Lᵀ, so the rows of L⁻¹ are factors of the covariance."""
    matrix = curvature.full(mode.network, data, chunk_size=chunk_size)

    def gaussian(factor: Any, precision: dict[str, Any]) -> LowRankGaussian:
        whole = (factor * matrix + jnp.diag(spread(precision, mode.params))) / mode.temperature
        identity = jnp.eye(len(matrix), dtype=matrix.dtype)
        factors = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(whole), identity, lower=True)
        return LowRankGaussian(mode.params, jax.vmap(mode.unravel)(factors))

    scale = jnp.sqrt(spread(mode.prior_precision, mode.params))
    return Curvature({ALL: _eigenvalues(matrix / scale / scale[:, None])}, gaussian)


def _eigenvalues(matrix: Float[Array, "k k"]) -> Float[Array, " k"]:
    """None below zero by rounding."""
    return jnp.maximum(jnp.linalg.eigvalsh(matrix), 0.0)


STRUCTURES = {
    "diagonal": Structure(_diagonal, by_leaf=True),
    "kronecker": Structure(_kronecker, by_leaf=True, check=readings),
    "low_rank": Structure(_low_rank, by_leaf=False),
    "full": Structure(_full, by_leaf=False),
}
