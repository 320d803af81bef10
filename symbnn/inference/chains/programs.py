"""The compiled parts of a run, each mapped over chains: where they start, and a chunk of transitions."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from symbnn import keys, tree
from symbnn.density import LogDensity, Target
from symbnn.density.parts import total
from symbnn.inference import placement
from symbnn.inference.chains.adaptation import Tuner, choose
from symbnn.inference.chains.kernels import Info, Kernel, Tuning
from symbnn.inference.chains.packing import pack
from symbnn.inference.chains.settings import Run
from symbnn.inference.storage import Storage, program_checksum
from symbnn.types import Key, Params


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
    advance: Callable[..., Any]
    """(Chain, shard, key, `Window`, inputs) -> (Chain, totals per draw, draws or the sum of predictions)."""


class Window(NamedTuple):
    """The transitions of one chunk: traced, so that burn-in, draws and the last chunk are one program."""

    first: Any
    number: Any
    is_burnin: Any


def build(
    target: Target,
    kernel: Kernel,
    tuner: Tuner,
    plan: placement.Layout,
    settings: Run,
    *,
    key_impl: Any,
) -> Programs:
    """The programs of a run whose chunks have at most `settings.chunk_size` draws."""
    thinning, storage = settings.thinning, settings.storage

    def chain_key(key_data: Array, index: Array) -> Array:
        key = jax.random.wrap_key_data(key_data, impl=key_impl)
        return jax.random.fold_in(keys.named(key, "chains"), index)

    def start(begin: dict[str, Any], shard: placement.Shard, key_data: Array) -> tuple[Chain, Array]:
        key, density = chain_key(key_data, begin["index"]), _density(target, plan, shard)
        params = begin.get("params")
        params = target.init(keys.named(key, "start")) if params is None else params
        is_finite = tree.is_finite(density.likelihood_and_gradient(params))
        sampler = kernel.init(keys.named(key, "sampler"), params, density)
        return Chain(begin["index"], sampler, *tuner.init(params)), is_finite

    def transition(
        chain: Chain, density: LogDensity, key: Array, index: Array, is_burnin: Array
    ) -> tuple[Chain, Info]:
        sampler, info = kernel.step(jax.random.fold_in(key, index), chain.sampler, chain.tuning, density)
        info = _numbers(info)
        old = (chain.tuning, chain.adaptation)
        found, adaptation = tuner.update(index, chain.adaptation, chain.tuning, sampler.position, info)
        # The spread of a chain that stood still is zero; as its length it would hold the chain there for
        # good. Here and not in the tuner, by whose program runs that were kept before are recognised.
        length = jnp.where(found.length > 0, found.length, chain.tuning.length)
        new = (found._replace(length=length), adaptation)
        tuning, adaptation = choose(is_burnin, new, old)
        return Chain(chain.number, sampler, tuning, adaptation), info

    def advance(
        chain: Chain, shard: placement.Shard, key_data: Array, window: Window, inputs: Any
    ) -> tuple[Chain, Totals, Any]:
        density = _density(target, plan, shard)
        key = keys.named(chain_key(key_data, chain.number), "transitions")

        packed = pack(kernel, chain, density)

        def body(offset: Array, carry: tuple[Chain, Totals]) -> tuple[Chain, Totals]:
            chain, info = transition(carry[0], packed.density, key, window.first + offset, window.is_burnin)
            return chain, _add(carry[1], info)

        def one_draw(draw: Array, carry: tuple[Chain, Any]) -> tuple[tuple[Chain, Any], Any]:
            begin = draw * thinning
            end = jnp.minimum(begin + thinning, window.number)
            chain, totals = jax.lax.fori_loop(begin, end, body, (packed.pack(carry[0]), _no_transitions()))
            chain = packed.unpack(chain)
            carried, kept = keep(chain.sampler.position, carry[1])
            return (chain, carried), (totals, kept)

        keep, nothing = _keeper(target, storage, inputs, chain.sampler.position)
        number = (window.number + thinning - 1) // thinning
        size = settings.chunk_size or 1
        (chain, carried), (totals, draws) = placement.collect(one_draw, (chain, nothing), number, size=size)
        return chain, totals, carried if storage.collect == "predictions" else draws

    return Programs(*(placement.map_chains(function, plan) for function in (start, advance)))


def sampler_checksum(key: Key, target: Target, kernel: Kernel, tuner: Tuner) -> str:
    """What kernel and tuner compute for weights of these shapes, on a log-density that is quickly traced."""
    density = dataclasses.replace(_parts(target), log_likelihood=total, temperature=1.0)

    def first(key: Key, params: Params, index: Array) -> Any:
        tuning, adaptation = tuner.init(params)
        state = kernel.init(key, params, density)
        new, info = kernel.step(key, state, tuning, density)
        return state, new, info, tuner.update(index, adaptation, tuning, new.position, _numbers(info))

    return program_checksum(first, key, jax.eval_shape(target.init, key), np.int32(0))


def _density(target: Target, plan: placement.Layout, shard: placement.Shard) -> LogDensity:
    """The target's log-density, with the sum over data where that lies."""
    parts = _parts(target)
    if not has_data_parts(target):
        return parts
    over_shards = placement.sum_over_shards(parts.log_likelihood, plan, shard)
    return dataclasses.replace(parts, log_likelihood=over_shards)


def _parts(target: Target) -> LogDensity:
    log_density = target.log_density
    # One that does not know its parts is all likelihood.
    return log_density if isinstance(log_density, LogDensity) else LogDensity(log_density)


def has_data_parts(target: Target) -> bool:
    """Whether the log-density is a sum over the target's data, which may then lie on several devices."""
    return isinstance(target.log_density, LogDensity) and target.data is not None


def _keeper(target: Target, storage: Storage, inputs: Any, params: Any) -> tuple[Callable[..., Any], Any]:
    """((position, carried) -> (carried, what is kept of the draw), what is carried at first)."""

    def cast(params: Any, carried: None) -> tuple[None, Any]:
        return None, jax.tree.map(lambda leaf: leaf.astype(storage.dtype or leaf.dtype), params)

    def predicted(params: Any) -> Array:
        return target.likelihood.predictive(target.model.apply(params, inputs))

    def add_prediction(params: Any, carried: Array) -> tuple[Array, None]:
        return carried + predicted(params), None

    if storage.collect != "predictions":
        return cast, None
    shape = jax.eval_shape(predicted, params)
    return add_prediction, jnp.zeros(shape.shape, shape.dtype)


def _no_transitions() -> Totals:
    zero, none = jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32)
    return Totals(none, zero, none, zero, none, zero)


def _numbers(info: Info) -> Info:
    """A transition whose acceptance or energy error is NaN, which would stay in every average, diverged."""
    is_nan = jnp.isnan(info.acceptance)
    return info._replace(
        acceptance=jnp.where(is_nan, 0.0, info.acceptance),
        is_divergent=is_nan | jnp.isnan(info.energy_error) | info.is_divergent,
    )


def _add(totals: Totals, info: Info) -> Totals:
    error = jnp.where(info.is_divergent, 0.0, info.energy_error)
    return Totals(
        totals.transitions + 1,
        totals.acceptance + jnp.asarray(info.acceptance, jnp.float32),
        totals.divergences + jnp.asarray(info.is_divergent, jnp.int32),
        totals.squared_energy_error + jnp.square(error).astype(jnp.float32),
        totals.gradients + jnp.asarray(info.num_gradients, jnp.int32),
        jnp.asarray(info.log_density, jnp.float32),
    )
