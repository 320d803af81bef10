"""Gaussians over weights whose size grows with the number of weights, never with its square.

| class              | law                                                  | stored per weight |
|--------------------|------------------------------------------------------|-------------------|
| `DiagonalGaussian` | N(μ, diag σ²)                                        | 2                 |
| `LowRankGaussian`  | covariance Σ_r f_r f_rᵀ + diag σ²; draw μ + Σ_r z_r f_r + σ∘ε | 1 + rank (+ 1) |
| `LowRankPrecision` | precision Σ_r f_r f_rᵀ + diag 1/σ²                   | 2 + rank          |

A covariance of low rank is what samples give (SWAG, an SVD of aligned draws); a precision of low rank is what
curvature gives (Laplace: few directions that the data pin down, the prior everywhere else).
"""

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn import tree
from symbnn.posteriors.base import check_num, register
from symbnn.types import Key, Params, Samples

LOG_TWO_PI = math.log(2.0 * math.pi)
LEAST_REST = 0.01
"""Of a spread by factors: it widens that by 5e-5. With less a log-density in float32 is a difference of
numbers so large that their rounding shows."""


@register()
@dataclasses.dataclass(frozen=True)
class DiagonalGaussian:
    """Independent N(mean, std²) for every weight; a std of zero is a weight that is known."""

    mean: Params
    std: Params

    def __post_init__(self) -> None:
        tree.check_same_shapes("std", self.std, self.mean)

    def sample(self, key: Key, num: int) -> Samples:
        """`num` draws mean + std∘ε."""
        check_num(num)

        def draw(draw_key: Key) -> Params:
            noise = tree.draw_like(draw_key, self.mean)
            return jax.tree.map(lambda m, s, e: m + s * e, self.mean, self.std, noise)

        return jax.vmap(draw)(jax.random.split(key, num))

    def log_prob(self, params: Params) -> Float[Array, ""]:
        """Log-density."""
        tree.check_same_shapes("params", params, self.mean)
        return _diagonal_log_prob(_difference(params, self.mean), self.std)

    def loadings(self, direction: Params) -> Params:
        """std∘direction (see `posteriors.Gaussian`)."""
        return jax.tree.map(jnp.multiply, self.std, direction)


@register()
@dataclasses.dataclass(frozen=True)
class LowRankGaussian:
    """mean + Σ_r z_r factors_r (+ std∘ε). Leaves of `factors` have a leading rank axis."""

    mean: Params
    factors: Params
    std: Params | None = None

    def __post_init__(self) -> None:
        tree.check_same_shapes("factors", self.factors, self.mean, num_leading=1)
        tree.num_samples(self.factors)
        if self.std is not None:
            tree.check_same_shapes("std", self.std, self.mean)

    @property
    def rank(self) -> int:
        """Number of factors."""
        return tree.num_samples(self.factors)

    def sample(self, key: Key, num: int) -> Samples:
        """`num` draws."""
        check_num(num)
        key_factors, key_diagonal = jax.random.split(key)
        dtype = jnp.result_type(*jax.tree.leaves(self.mean))
        # Flat and then shaped: a shaped generator takes five times as long to compile.
        coordinates = jax.random.normal(key_factors, (num * self.rank,), dtype).reshape(num, self.rank)
        draws = jax.tree.map(lambda m, f: m + jnp.tensordot(coordinates, f, axes=1), self.mean, self.factors)
        if self.std is None:
            return draws
        noise = jax.vmap(lambda k: tree.draw_like(k, self.mean))(jax.random.split(key_diagonal, num))
        return jax.tree.map(lambda d, s, e: d + s * e, draws, self.std, noise)

    def log_prob(self, params: Params) -> Float[Array, ""]:
        """Log-density by the matrix inversion and determinant lemmas, O(weights · rank²).

        Without `std` and with fewer factors than weights the law lives on an affine subspace and has no
        density: a `ValueError`. A weight with factors whose `std` is zero is given `LEAST_REST` of its
        spread; one without either is known.
        """
        tree.check_same_shapes("params", params, self.mean)
        if self.std is None:
            return self._log_prob_of_factors(params)
        difference, std = _difference(params, self.mean), jax.tree.map(_with_rest, self.factors, self.std)
        whitened = jax.tree.map(_whitened, self.factors, std)
        gram = jnp.eye(self.rank) + _gram(whitened)
        projected = _project(whitened, jax.tree.map(_whitened, difference, std))
        cholesky = jnp.linalg.cholesky(gram)
        half = jax.scipy.linalg.solve_triangular(cholesky, projected, lower=True)
        log_determinant = jnp.sum(jnp.log(jnp.diagonal(cholesky)))
        return _diagonal_log_prob(difference, std) + 0.5 * jnp.sum(half**2) - log_determinant

    def loadings(self, direction: Params) -> tuple[Array, Params | None]:
        """Products with the factors, and std∘direction (see `posteriors.Gaussian`)."""
        on_diagonal = None if self.std is None else jax.tree.map(jnp.multiply, self.std, direction)
        return _project(self.factors, direction), on_diagonal

    def _log_prob_of_factors(self, params: Params) -> Float[Array, ""]:
        """Log-density from the covariance of the factors alone, which must have full rank."""
        num_weights = tree.num_weights(self.mean)
        if self.rank < num_weights:
            raise ValueError(
                f"LowRankGaussian of rank {self.rank} over {num_weights} weights has a density only with std"
            )
        flat = tree.matrix(self.factors)
        difference = jnp.concatenate(jax.tree.leaves(jax.tree.map(jnp.ravel, _difference(params, self.mean))))
        cholesky = jnp.linalg.cholesky(flat.T @ flat)
        half = jax.scipy.linalg.solve_triangular(cholesky, difference, lower=True)
        log_determinant = jnp.sum(jnp.log(jnp.diagonal(cholesky)))
        return -0.5 * (jnp.sum(half**2) + num_weights * LOG_TWO_PI) - log_determinant


@register()
@dataclasses.dataclass(frozen=True)
class LowRankPrecision:
    """Gaussian of precision diag(1/std²) + Σ_r factors_r factors_rᵀ.

    With B = factors∘std, B Bᵀ = V Λ Vᵀ and the orthonormal directions U = Λ^(-1/2) Vᵀ B, a draw is
    mean + std∘(ε + Uᵀ ((1 + Λ)^(-1/2) - 1) U ε): the prior noise, shrunk in the directions the data know.
    """

    mean: Params
    std: Params
    factors: Params

    def __post_init__(self) -> None:
        tree.check_same_shapes("std", self.std, self.mean)
        tree.check_same_shapes("factors", self.factors, self.mean, num_leading=1)
        tree.num_samples(self.factors)

    @property
    def rank(self) -> int:
        """Number of factors."""
        return tree.num_samples(self.factors)

    def sample(self, key: Key, num: int) -> Samples:
        """`num` draws."""
        check_num(num)
        shrink = self._shrinkage()

        def draw(draw_key: Key) -> Params:
            noise = shrink(tree.draw_like(draw_key, self.mean))
            return jax.tree.map(lambda m, s, e: m + s * e, self.mean, self.std, noise)

        return jax.vmap(draw)(jax.random.split(key, num))

    def loadings(self, direction: Params) -> Params:
        """std∘direction, shrunk in the directions the data know (see `posteriors.Gaussian`)."""
        return self._shrinkage()(jax.tree.map(jnp.multiply, self.std, direction))

    def _shrinkage(self) -> Callable[[Params], Params]:
        """v -> v + Uᵀ ((1 + Λ)^(-1/2) - 1) U v, which is symmetric."""
        whitened = jax.tree.map(lambda f, s: f * s, self.factors, self.std)
        values, vectors = _eigen(_gram(whitened))
        # (1/√(1+λ) - 1)/λ tends to -1/2: no division by an eigenvalue that is zero.
        shrinkage = -1.0 / (jnp.sqrt(1.0 + values) * (1.0 + jnp.sqrt(1.0 + values)))

        def shrink(vector: Params) -> Params:
            coordinates = vectors @ (shrinkage * (vectors.T @ _project(whitened, vector)))
            return jax.tree.map(lambda v, f: v + jnp.tensordot(coordinates, f, axes=1), vector, whitened)

        return shrink

    def log_prob(self, params: Params) -> Float[Array, ""]:
        """Log-density."""
        tree.check_same_shapes("params", params, self.mean)
        difference = _difference(params, self.mean)
        whitened = jax.tree.map(lambda f, s: f * s, self.factors, self.std)
        values, _ = _eigen(_gram(whitened))
        data_term = jnp.sum(_project(self.factors, difference) ** 2)
        return _diagonal_log_prob(difference, self.std) - 0.5 * data_term + 0.5 * jnp.sum(jnp.log1p(values))


def _difference(params: Params, mean: Params) -> Params:
    return jax.tree.map(lambda leaf, m: leaf - m, params, mean)


def _with_rest(factors: Array, std: Array) -> Array:
    """`std`, and `LEAST_REST` of the factors' spread where it is zero."""
    return jnp.where(std == 0, LEAST_REST * jnp.sqrt(jnp.sum(jnp.square(factors), axis=0)), std)


def _whitened(values: Array, std: Array) -> Array:
    """Values in standard deviations; zero where a weight is known, which `_diagonal_log_prob` judges."""
    return jnp.where(std == 0, 0.0, values / jnp.where(std == 0, 1.0, std))


def _diagonal_log_prob(difference: Params, std: Params) -> Float[Array, ""]:
    def leaf(difference: Array, std: Array) -> Array:
        # A weight of standard deviation zero is known: it has no density, and no other value is possible.
        is_known = std == 0
        spread = jnp.where(is_known, 1.0, std)
        law = -0.5 * jnp.square(difference / spread) - jnp.log(spread) - 0.5 * LOG_TWO_PI
        return jnp.sum(jnp.where(is_known, jnp.where(difference == 0, 0.0, -jnp.inf), law))

    return jnp.sum(jnp.stack(jax.tree.leaves(jax.tree.map(leaf, difference, std))))


def _gram(factors: Params) -> Float[Array, "r r"]:
    """Inner products of the factors over all leaves."""
    flat = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(factors)]
    return jnp.sum(jnp.stack([leaf @ leaf.T for leaf in flat]), axis=0)


def _project(factors: Params, params: Params) -> Float[Array, " r"]:
    """Inner product of every factor with `params`."""
    products = jax.tree.map(lambda f, p: f.reshape(f.shape[0], -1) @ p.reshape(-1), factors, params)
    return jnp.sum(jnp.stack(jax.tree.leaves(products)), axis=0)


def _eigen(gram: Float[Array, "r r"]) -> tuple[Float[Array, " r"], Float[Array, "r r"]]:
    """Eigenvalues, none below zero by rounding, and eigenvectors."""
    values, vectors = jnp.linalg.eigh(gram)
    return jnp.maximum(values, 0.0), vectors
