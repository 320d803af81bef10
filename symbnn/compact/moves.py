"""What a refinement moves: Gaussians with factors or without, or single networks, as one stack of components.

A component N(μ, diag σ² + Σ_r f_r f_rᵀ) is moved by m, s and g to

    N(μ + τ∘m, diag (σ∘eˢ)² + Σ_r (f_r + τ∘g_r/√R) (f_r + τ∘g_r/√R)ᵀ),    τ² = σ² + Σ_r f_r²,  r = 1 … R

in units of the standard deviations τ of its weights, so that moves do not depend on the scale of the weights,
nor those of all factors together on their number.
Without factors τ is σ. Single networks have neither; their τ is the standard deviation over all of them.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn import tree
from symbnn.posteriors import DiagonalGaussian, Empirical, GaussianMixture, LowRankGaussian
from symbnn.types import Key, Params


class Displacement(NamedTuple):
    """How far a diagonal Gaussian went from another one, over the weights that vary there."""

    divergence: Float[Array, ""]
    """KL to the other, in nats per weight."""
    std_ratio: Float[Array, ""]
    """Geometric mean of the ratio of standard deviations: 0 is one network, 1 as broad as the other."""
    shift: Float[Array, ""]
    """Root mean square shift of the means, in standard deviations of the other."""


class Components(NamedTuple):
    """Gaussians, stacked; leaves of `factors` have the rank as their second axis, None without factors."""

    mean: Params
    std: Params
    factors: Params | None
    unit: Params
    """τ."""


def components_of(posterior: Any) -> tuple[Float[Array, " k"], Components]:
    """Weights and components of a mixture; one Gaussian is a mixture of one."""
    if isinstance(posterior, Empirical):
        networks = posterior.samples
        if tree.num_samples(networks) < 2:
            raise ValueError("moves of networks count in their spread, and one has none; keep at least two")
        known = jax.tree.map(jnp.zeros_like, networks)
        spread = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf.std(0), leaf.shape), networks)
        count = tree.num_samples(networks)
        return jnp.full(count, 1.0 / count), Components(networks, known, None, spread)
    shares, stacked = jnp.ones(1), posterior
    if isinstance(posterior, GaussianMixture):
        shares, stacked = posterior.weights, posterior.components
    elif isinstance(posterior, DiagonalGaussian | LowRankGaussian):
        stacked = tree.stack([posterior])
    if isinstance(stacked, DiagonalGaussian):
        return shares, Components(stacked.mean, stacked.std, None, stacked.std)
    if isinstance(stacked, LowRankGaussian):
        std = jax.tree.map(jnp.zeros_like, stacked.mean) if stacked.std is None else stacked.std
        unit = jax.tree.map(lambda s, f: jnp.sqrt(s**2 + jnp.sum(f**2, axis=1)), std, stacked.factors)
        return shares, Components(stacked.mean, std, stacked.factors, unit)
    raise ValueError(
        "refine starts from a DiagonalGaussian, a LowRankGaussian, a mixture of such or an Empirical, not "
        f"from {type(posterior).__name__}; fit one to aligned samples with compact.gaussian, low_rank or "
        "mixture, or keep some networks as posteriors.Empirical(samples)"
    )


def marginals(posterior: Any) -> DiagonalGaussian:
    """Mean and standard deviation of every weight: of a law, of each component of a mixture, of networks."""
    if isinstance(posterior, Empirical):
        networks = posterior.samples
        return DiagonalGaussian(
            *(jax.tree.map(lambda x, f=f: f(x, 0), networks) for f in (jnp.mean, jnp.std))
        )
    _, components = components_of(posterior)
    return DiagonalGaussian(components.mean, components.unit)


def law_like(posterior: Any, shares: Float[Array, " k"], components: Components) -> Any:
    """The components as a law of the kind that `posterior` is."""
    if isinstance(posterior, Empirical):
        return dataclasses.replace(posterior, samples=components.mean)
    laws = [_law(posterior, tree.take(components, index)) for index in range(len(shares))]
    return GaussianMixture(shares, tree.stack(laws)) if isinstance(posterior, GaussianMixture) else laws[0]


def _law(posterior: Any, one: Components) -> Any:
    if one.factors is None:
        return DiagonalGaussian(one.mean, one.std)
    kind: Any = posterior.components if isinstance(posterior, GaussianMixture) else posterior
    return LowRankGaussian(one.mean, one.factors, None if kind.std is None else one.std)


def no_move(start: Components, shrink: float = 1.0) -> dict[str, Params]:
    """m = 0, s = log shrink, and g = (shrink - 1) √R f/τ, which shrinks the factors likewise."""
    moves = {
        "shift": jax.tree.map(jnp.zeros_like, start.mean),
        "log_ratio": jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.log(shrink)), start.mean),
    }
    if start.factors is not None:
        moves["turn"] = jax.tree.map(
            lambda f, u: (shrink - 1.0) * f / jnp.where(u > 0, u, 1.0), start.factors, _turn_units(start)
        )
    return moves


def moved(start: Components, moves: dict[str, Params]) -> Components:
    """N(μ + τ∘m, ...), see above."""
    factors = None
    if start.factors is not None:
        factors = jax.tree.map(lambda f, u, g: f + u * g, start.factors, _turn_units(start), moves["turn"])
    return Components(
        jax.tree.map(lambda c, u, m: c + u * m, start.mean, start.unit, moves["shift"]),
        jax.tree.map(lambda s, r: s * jnp.exp(r), start.std, moves["log_ratio"]),
        factors,
        start.unit,
    )


def centre(key: Key, mean: Params, factors: Params | None) -> Params:
    """A draw of μ + Σ_r z_r f_r, of one component; μ itself without factors."""
    if factors is None:
        return mean
    coordinates = jax.random.normal(key, (tree.num_samples(factors),))
    return jax.tree.map(lambda m, f: m + jnp.tensordot(coordinates, f, axes=1), mean, factors)


def divergence(shift: Array, log_ratio: Array) -> Array:
    """KL of one weight of a diagonal law; expm1, because near the start the terms cancel to second order."""
    return 0.5 * jnp.square(shift) + 0.5 * jnp.expm1(2.0 * log_ratio) - log_ratio


def displacement(posterior: DiagonalGaussian, start: DiagonalGaussian) -> Displacement:
    """How far `posterior` is from `start`; weights that `start` knows exactly are left out."""
    varies, log_ratio, shift = (
        jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(part)])
        for part in (
            jax.tree.map(lambda s: s > 0, start.std),
            jax.tree.map(_log_ratio, posterior.std, start.std),
            jax.tree.map(
                lambda m, c, s: (m - c) / jnp.where(s > 0, s, 1.0), posterior.mean, start.mean, start.std
            ),
        )
    )
    count = jnp.maximum(varies.sum(), 1)
    each = jnp.where(varies, divergence(shift, log_ratio), 0.0)
    return Displacement(
        each.sum() / count,
        jnp.exp(jnp.where(varies, log_ratio, 0.0).sum() / count),
        jnp.sqrt(jnp.where(varies, shift**2, 0.0).sum() / count),
    )


def _turn_units(start: Components) -> Params:
    """τ/√R, with an axis for the factors."""
    return jax.tree.map(lambda u, f: u[:, None] / jnp.sqrt(f.shape[1]), start.unit, start.factors)


def _mean(leaf: Array) -> Array:
    return leaf.mean(0)


def _std(leaf: Array) -> Array:
    return leaf.std(0)


def _log_ratio(std: Array, start: Array) -> Array:
    varies = start > 0
    return jnp.log(jnp.where(varies, std, 1.0)) - jnp.log(jnp.where(varies, start, 1.0))
