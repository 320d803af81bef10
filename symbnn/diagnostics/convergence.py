"""R-hat and effective sample size of scalar quantities, one column each.

Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021), "Rank-normalization, folding, and localization": chains
are split in half, draws replaced by normal scores of their pooled ranks (bulk) or by indicators of the 5 %
and 95 % quantiles (tail), and the number of effective draws is found from the autocorrelation summed over
Geyer's initial monotone sequence of pairs.

BlackJAX's versions are twice as slow (20 s against 9 s for 4 chains of 400 draws of 4,096 quantities), and
their ESS is not ArviZ's: 1 % off for chains that stay apart, 18 % in the tail of draws with ties.

A quantity that never moves has no variance to compare. If all chains sit at the same value it has converged,
R-hat = 1 and every draw counts; if they sit at different values R-hat = infinity and no draw counts. A
quantity with a draw that is not finite has no statistics: they are NaN.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Draws = Float[Array, "chains draws quantities"]
PerQuantity = Float[Array, " quantities"]


@jax.jit
def split_rhat(draws: Draws) -> PerQuantity:
    """√(pooled variance / within-chain variance) of the half chains."""
    return _where_finite(draws, _rhat(_split(draws)))


@jax.jit
def rank_rhat(draws: Draws) -> PerQuantity:
    """The larger of the R-hats of normal scores and of folded normal scores: sees location and spread."""
    halves = _split(draws)
    folded = jnp.abs(halves - jnp.median(halves, axis=(0, 1)))
    score = jnp.maximum(_rhat(_normal_scores(halves)), _rhat(_normal_scores(folded)))
    # Ranks hide a constant chain behind its ties: what never moves is judged on the values themselves.
    return _where_finite(draws, jnp.where(_is_constant(halves), _rhat(halves), score))


@jax.jit
def bulk_ess(draws: Draws) -> PerQuantity:
    """Effective number of draws for the centre of the distribution."""
    halves = _split(draws)
    return _where_finite(draws, _defined(halves, _ess(_normal_scores(halves))))


@jax.jit
def tail_ess(draws: Draws) -> PerQuantity:
    """Effective number of draws for the 5 % and 95 % quantiles, the smaller of the two."""
    halves = _split(draws)
    low, high = jnp.quantile(draws, jnp.array([0.05, 0.95]), axis=(0, 1))
    ess = [_ess((halves <= quantile).astype(halves.dtype)) for quantile in (low, high)]
    return _where_finite(draws, _defined(halves, jnp.minimum(*ess)))


def _where_finite(draws: Draws, statistic: PerQuantity) -> PerQuantity:
    return jnp.where(jnp.isfinite(draws).all((0, 1)), statistic, jnp.nan)


def _split(draws: Draws) -> Float[Array, "halves half quantities"]:
    if getattr(draws, "ndim", None) != 3:
        found = getattr(draws, "shape", type(draws).__name__)
        raise ValueError(
            f"draws must be one array (chains, draws, quantities); got {found}: for networks use "
            "diagnostics.weight_space or diagnostics.function_space"
        )
    length = draws.shape[1]
    if length < 4:
        raise ValueError(f"R-hat and ESS need at least 4 draws a chain, got {length}")
    half = length // 2
    return jnp.concatenate([draws[:, :half], draws[:, length - half :]])


def _rhat(halves: Draws) -> PerQuantity:
    length = halves.shape[1]
    within = jnp.var(halves, axis=1, ddof=1).mean(0)
    between = length * jnp.var(halves.mean(1), axis=0, ddof=1)
    # Seen in the draws themselves: a mean that is rounded leaves a variance.
    moves = (within > 0) & ~_is_constant(halves)
    moving = jnp.sqrt(((length - 1) / length * within + between / length) / jnp.where(moves, within, 1))
    return jnp.where(moves, moving, jnp.where(_spread_of_chains(halves) > 0, jnp.inf, 1.0))


def _defined(halves: Draws, ess: PerQuantity) -> PerQuantity:
    total = halves.shape[0] * halves.shape[1]
    still = jnp.where(_spread_of_chains(halves) > 0, 0.0, float(total))
    return jnp.where(_is_constant(halves), still, ess)


def _is_constant(halves: Draws) -> Array:
    return (halves.max(1) == halves.min(1)).all(0)


def _spread_of_chains(halves: Draws) -> PerQuantity:
    first = halves[:, 0]
    return first.max(0) - first.min(0)


def _normal_scores(halves: Draws) -> Draws:
    shape, total = halves.shape, halves.shape[0] * halves.shape[1]
    ranks = jax.vmap(_average_rank, in_axes=1, out_axes=1)(halves.reshape(total, -1))
    # (r - 3/8) / (n + 1/4): Blom's offsets, which make the scores' quantiles nearly those of a normal.
    return jax.scipy.stats.norm.ppf((ranks - 0.375) / (total + 0.25)).reshape(shape)


def _average_rank(values: Float[Array, " n"]) -> Float[Array, " n"]:
    ordered = jnp.sort(values)
    low = jnp.searchsorted(ordered, values, side="left")
    high = jnp.searchsorted(ordered, values, side="right")
    return (low + high + 1) / 2


def _ess(halves: Draws) -> PerQuantity:
    chains, length, _ = halves.shape
    total = chains * length
    covariance = _autocovariance(halves).mean(0)
    within = covariance[0] * length / (length - 1)
    pooled = covariance[0] + jnp.var(halves.mean(1), axis=0, ddof=1)
    correlation = 1 - (within - covariance) / jnp.where(pooled > 0, pooled, 1)
    correlation = correlation.at[0].set(1.0)
    pairs = correlation[0 : length - 1 : 2] + correlation[1:length:2]
    # Geyer: sums of neighbouring pairs are positive and decreasing; after the first that is not comes noise.
    # The last lags rest on a handful of products and are left out even if positive.
    usable = jnp.arange(pairs.shape[0]) < (length - 3) // 2
    positive = jnp.cumprod((pairs > 0) & usable[:, None], axis=0)
    monotone = jax.lax.cummin(jnp.where(positive, pairs, 0.0), axis=0)
    # The first even lag after the cut still helps (Vehtari et al., the antithetic case).
    count = positive.sum(0).astype(int)
    next_lag = jnp.minimum(2 * count, length - 1)
    extra = jnp.maximum(jnp.take_along_axis(correlation, next_lag[None], axis=0)[0], 0.0)
    time = -1 + 2 * monotone.sum(0) + jnp.where(2 * count < length, extra, 0.0)
    time = jnp.maximum(time, 1 / jnp.log10(total))
    # Constant, as the indicator of a quantile that many draws share: nothing to estimate, every draw counts.
    # Seen in the draws themselves: a mean that is rounded leaves a variance.
    return jnp.where(halves.max((0, 1)) > halves.min((0, 1)), total / time, float(total))


def _autocovariance(halves: Draws) -> Float[Array, "chains lags quantities"]:
    length = halves.shape[1]
    centred = halves - halves.mean(1, keepdims=True)
    spectrum = jnp.fft.rfft(centred, n=2 * length, axis=1)
    return jnp.fft.irfft(jnp.abs(spectrum) ** 2, n=2 * length, axis=1)[:, :length] / length
