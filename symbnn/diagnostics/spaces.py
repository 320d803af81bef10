"""Convergence in function space, in weight space, and under random relabelling.

Function space is the test: centred logits do not know about symmetry. Weight space before alignment mixes
symmetric copies; after alignment it comes close to function space. But relabelling every draw *at random*
makes any chain look perfect, converged or not, so a low aligned R-hat certifies nothing by itself: the
control is computed beside it, always, and the verdict rests on function space alone.

Samples are networks in chain-major order with `num_chains`, or an `Empirical`, which knows its chains.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn import chains, symmetry, tree
from symbnn.diagnostics.convergence import bulk_ess, rank_rhat, split_rhat, tail_ess
from symbnn.evaluate.given import refuse_chains
from symbnn.symmetry import SymmetrySpec
from symbnn.symmetry.spec import check_params
from symbnn.types import Key, Params, Samples

RHAT_LIMIT = 1.01
"""Of rank-normalised R-hat, Vehtari et al. (2021): larger values show chains that do not yet agree."""

ESS_PER_CHAIN = 100
"""Effective draws per chain that R-hat itself needs to be trusted (same paper)."""

QUANTITIES_PER_BLOCK = 4096


class Summary(NamedTuple):
    """Convergence of many quantities at once."""

    median_rhat: float
    """Rank-normalised and folded, as the next three."""
    rhat_95: float
    max_rhat: float
    share_above: float
    """Share of quantities with R-hat over `RHAT_LIMIT`."""
    median_split_rhat: float
    """The classical one, blind to chains of different spread."""
    median_bulk_ess: float
    median_tail_ess: float
    low_ess: float
    """The smaller of bulk and tail ESS, at the worst 5 % of quantities."""
    num_constant: int
    """Quantities that move in no chain (R-hat 1 if the chains agree on the value, else infinite)."""
    num_nonfinite: int = 0
    """Quantities with draws that are NaN or infinite: if there are any, the statistics above are NaN."""


def centred_logits(outputs: Float[Array, "inputs classes"]) -> Float[Array, "inputs classes"]:
    """Logits up to the constant that a softmax does not see: they fix the probabilities."""
    return outputs - outputs.mean(-1, keepdims=True)


def function_space(
    apply: Callable[[Params, Array], Array],
    samples: Any,
    inputs: Array,
    *,
    num_chains: int | None = None,
    quantity: Callable[[Array], Array] = centred_logits,
) -> Summary:
    """Of what the network computes on some inputs, which is blind to symmetry.

    Args:
        apply: `(params, inputs) -> outputs` of one network.
        samples: Networks in chain-major order, or an `Empirical`.
        inputs: Where the outputs are compared.
        num_chains: Chains that the samples come from; an `Empirical` knows.
        quantity: Takes of the outputs what the likelihood sees: centred logits for classes; for regression,
            all of them (`lambda outputs: outputs`).
    """
    samples, num_chains = chains.require(
        samples, num_chains, lambda networks: refuse_chains(apply, networks, inputs)
    )

    @jax.jit
    def seen(params: Params) -> Array:
        return quantity(apply(params, inputs)).ravel()

    return summarise(tree.by_chain(jax.lax.map(seen, samples, batch_size=64), num_chains))


def weight_space(samples: Any, *, num_chains: int | None = None) -> Summary:
    """Of every single weight of `samples`, networks in chain-major order or an `Empirical`."""
    return _of_weights(*chains.require(samples, num_chains))


def relabelling_control(
    spec: SymmetrySpec, samples: Any, key: Key, *, num_chains: int | None = None
) -> Summary:
    """Of every weight after each draw's units were relabelled at random: looks perfect by construction.

    Where the network is odd in a unit, the unit is also turned at random, as `align` might turn it.
    """
    samples, num_chains = chains.require(samples, num_chains, partial(check_params, spec, num_leading=1))
    moved, _ = relabelled(spec, samples, key)
    return _of_weights(moved, num_chains)


def relabelled(spec: SymmetrySpec, samples: Any, key: Key) -> tuple[Samples, dict[str, Array]]:
    """Every draw with its units relabelled, and turned where it is odd in them, at random; permutations."""
    samples, _ = chains.unpack(samples, check=partial(check_params, spec, num_leading=1))

    def one(key: Key, params: Params) -> tuple[Params, dict[str, Array]]:
        element = symmetry.random_element(spec, key)
        # `align` leaves the scales as they are, too.
        unscaled = element._replace(scales=jax.tree.map(jnp.ones_like, element.scales), matrices={})
        return symmetry.act(spec, unscaled, params), element.permutations

    return jax.jit(jax.vmap(one))(jax.random.split(key, tree.num_samples(samples)), samples)


def summarise(draws: Float[Array, "chains draws quantities"]) -> Summary:
    """R-hat and ESS of all quantities, block by block."""
    starts = range(0, draws.shape[2], QUANTITIES_PER_BLOCK)
    parts = [_statistics(draws[:, :, start : start + QUANTITIES_PER_BLOCK]) for start in starts]
    split, rank, bulk, tail = (jnp.concatenate(part) for part in zip(*parts, strict=True))
    constant = (draws.max(1) == draws.min(1)).all(0).sum()
    return Summary(
        median_rhat=_quantile(rank, 0.5),
        rhat_95=_quantile(rank, 0.95),
        max_rhat=float(rank.max()),
        share_above=float(jnp.where(jnp.isnan(rank), jnp.nan, rank > RHAT_LIMIT).mean()),
        median_split_rhat=_quantile(split, 0.5),
        median_bulk_ess=float(jnp.median(bulk)),
        median_tail_ess=float(jnp.median(tail)),
        low_ess=float(jnp.quantile(jnp.minimum(bulk, tail), 0.05)),
        num_constant=int(constant),
        num_nonfinite=int((~jnp.isfinite(draws)).any((0, 1)).sum()),
    )


def verdict(function: Summary, *, num_chains: int) -> str:
    """What function space says, in plain words."""
    if function.num_nonfinite:
        return (
            f"Not converged in function space: {function.num_nonfinite} quantities have draws that are NaN "
            "or infinite. Look for chains that diverged, and for overflow in the network."
        )
    if num_chains < 2:
        return "One chain only: R-hat compares its two halves and cannot see modes that it never visited."
    needed = ESS_PER_CHAIN * num_chains
    numbers = (
        f"rank R-hat {function.median_rhat:.3f} in the median, {function.rhat_95:.3f} at 95 %, and above the "
        f"limit of {RHAT_LIMIT} for {function.share_above:.1%} of quantities; {function.low_ess:.0f} "
        f"effective draws at the worst 5 % (wanted: {needed})"
    )
    if function.rhat_95 <= RHAT_LIMIT:
        if function.low_ess >= needed:
            return f"Converged in function space: {numbers}."
        return f"Mostly converged in function space: {numbers}. More draws would settle the rest."
    return (
        f"Not converged in function space: {numbers}. Draw longer, or take longer trajectories; "
        "alignment cannot repair this."
    )


def _of_weights(samples: Samples, num_chains: int) -> Summary:
    chains.check_numbers(samples, "it has no variance")
    return summarise(tree.by_chain(tree.matrix(samples), num_chains))


def _quantile(values: Float[Array, " quantities"], share: float) -> float:
    """Linear between neighbours; the upper one where that is infinite, as nothing lies between."""
    linear = jnp.quantile(values, share)
    return float(jnp.where(jnp.isfinite(linear), linear, jnp.quantile(values, share, method="higher")))


@jax.jit
def _statistics(draws: Array) -> tuple[Array, ...]:
    """In one program, so that the ranks, which cost most, are found once."""
    return tuple(statistic(draws) for statistic in (split_rhat, rank_rhat, bulk_ess, tail_ess))
