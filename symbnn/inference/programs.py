"""The compiled parts of a run: where chains start, the burn-in, and a chunk of draws, each mapped over
chains."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from symbnn import keys
from symbnn.density import Target
from symbnn.inference import chains
from symbnn.inference.adaptation import Tuner
from symbnn.inference.kernels import ChainDensity, Info, Kernel, Tuning, chain_density
from symbnn.inference.storage import Storage


class Chain(NamedTuple):
    """One chain between two chunks."""

    number: Array
    """Global index of the chain."""
    sampler: Any
    tuning: Tuning
    adaptation: Any


class Totals(NamedTuple):
    """Sums over transitions."""

    transitions: Array
    acceptance: Array
    divergences: Array
    squared_energy_error: Array
    """Over the transitions that did not diverge."""
    gradients: Array
    log_density: Array
    """Of the last transition."""


class Programs(NamedTuple):
    """Functions of (chains, shard, key data, ...), compiled once each."""

    start: Callable[..., Any]
    """({index[, params]}, shard, key) -> (Chain, whether log-density and gradient are finite)."""
    burnin: Callable[..., Any]
    """(Chain, shard, key, first transition, number) -> (Chain, Totals)."""
    sampling: Callable[..., Any]
    """(Chain, shard, key, first transition, inputs) -> (Chain, Totals per draw, draws or summed
    predictions)."""


def build(
    target: Target,
    kernel: Kernel,
    tuner: Tuner,
    plan: chains.Layout,
    *,
    num_draws: int,
    thinning: int,
    storage: Storage,
    key_impl: Any,
) -> Programs:
    """The programs of a run whose chunks have `num_draws` draws."""

    def density_of(shard: chains.Shard) -> ChainDensity:
        return chain_density(target, chains.sum_over_shards(target.log_likelihood, plan, shard))

    def chain_key(key_data: Array, index: Array) -> Array:
        key = jax.random.wrap_key_data(key_data, impl=key_impl)
        return jax.random.fold_in(keys.named(key, "chains"), index)

    def start(begin: dict[str, Any], shard: chains.Shard, key_data: Array) -> tuple[Chain, Array]:
        key, density = chain_key(key_data, begin["index"]), density_of(shard)
        params = begin.get("params")
        params = target.init(keys.named(key, "start")) if params is None else params
        value, gradient = density.likelihood_and_gradient(params)
        finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves((value, gradient))]
        sampler = kernel.init(keys.named(key, "sampler"), params, density)
        return Chain(begin["index"], sampler, *tuner.init(params)), jnp.all(jnp.stack(finite))

    def transition(chain: Chain, density: ChainDensity, key: Array, index: Array) -> tuple[Chain, Info]:
        key = jax.random.fold_in(key, index)
        sampler, info = kernel.step(key, chain.sampler, chain.tuning, density)
        return chain._replace(sampler=sampler), info

    def burnin(
        chain: Chain, shard: chains.Shard, key_data: Array, first: Array, number: Array
    ) -> tuple[Chain, Totals]:
        density, key = density_of(shard), keys.named(chain_key(key_data, chain.number), "transitions")

        def body(offset: Array, carry: tuple[Chain, Totals]) -> tuple[Chain, Totals]:
            chain, info = transition(carry[0], density, key, first + offset)
            tuning, state = tuner.update(
                first + offset, chain.adaptation, chain.tuning, chain.sampler.position, info
            )
            return chain._replace(tuning=tuning, adaptation=state), _add(carry[1], info)

        return jax.lax.fori_loop(0, number, body, (chain, _no_transitions()))

    def draw(chain: Chain, density: ChainDensity, key: Array, first: Array) -> tuple[Chain, Totals]:
        def body(offset: Array, carry: tuple[Chain, Totals]) -> tuple[Chain, Totals]:
            chain, info = transition(carry[0], density, key, first + offset)
            return chain, _add(carry[1], info)

        return jax.lax.fori_loop(0, thinning, body, (chain, _no_transitions()))

    def sampling(
        chain: Chain, shard: chains.Shard, key_data: Array, first: Array, inputs: Any
    ) -> tuple[Chain, Totals, Any]:
        density, key = density_of(shard), keys.named(chain_key(key_data, chain.number), "transitions")

        def stored(params: Any) -> Any:
            cast = (lambda leaf: leaf) if storage.dtype is None else (lambda leaf: leaf.astype(storage.dtype))
            return jax.tree.map(cast, params)

        def predicted(params: Any) -> Array:
            return target.likelihood.predictive(target.model.apply(params, inputs))

        def body(carry: tuple[Chain, Any], offset: Array) -> tuple[tuple[Chain, Any], Any]:
            chain, totals = draw(carry[0], density, key, first + offset * thinning)
            if storage.collect == "predictions":
                return (chain, carry[1] + predicted(chain.sampler.position)), (totals, None)
            return (chain, None), (totals, stored(chain.sampler.position))

        predictions = None
        if storage.collect == "predictions":
            shape = jax.eval_shape(predicted, chain.sampler.position)
            predictions = jnp.zeros(shape.shape, shape.dtype)
        (chain, predictions), (totals, draws) = jax.lax.scan(
            body, (chain, predictions), jnp.arange(num_draws)
        )
        return chain, totals, predictions if storage.collect == "predictions" else draws

    return Programs(*(chains.map_chains(function, plan) for function in (start, burnin, sampling)))


def _no_transitions() -> Totals:
    zero, none = jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32)
    return Totals(none, zero, none, zero, none, zero)


def _add(totals: Totals, info: Info) -> Totals:
    error = jnp.where(info.is_divergent, 0.0, info.energy_error)
    return Totals(
        totals.transitions + 1,
        totals.acceptance + info.acceptance.astype(jnp.float32),
        totals.divergences + info.is_divergent.astype(jnp.int32),
        totals.squared_energy_error + jnp.square(error).astype(jnp.float32),
        totals.gradients + info.num_gradients.astype(jnp.int32),
        info.log_density.astype(jnp.float32),
    )
