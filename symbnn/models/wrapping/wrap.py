"""`wrap`: a network of any JAX library as a `Model`.

What the library must know of a network: which arrays are weights and which are running statistics, how it is
called in training and in evaluation, and how fresh weights are drawn. The modules beside this one answer that
for one library each (`Parts`); here the answers are checked by tracing, and become a `Model`.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.typing import ArrayLike

from symbnn import frameworks, symmetry, tree
from symbnn.models.base import Model, has_batch_statistics, join_statistics, split_statistics
from symbnn.models.wrapping import checks, equinox, function, haiku, linen, nnx
from symbnn.models.wrapping.parts import Call, Parts
from symbnn.models.wrapping.redraw import redrawing
from symbnn.types import Key, Params


def wrap(network: Any, example: Any, *, init: Any = None, batched: bool | None = None) -> Model:
    """The `Model` of a network: pure functions on a tree of arrays, and the symmetries found in its program.

    Its weights are called as in the network's library (`layers/0/weight`); with running statistics, as of
    BatchNorm, they are one half of `{"params": ..., "batch_stats": ...}`. `model.params(network)` gives the
    parameters of a network that is already trained, `model.network(params)` a network with other parameters.

    `model.init(key)` draws fresh weights: by the module itself for linen and Haiku, by `init` where that is a
    function. An nnx or Equinox module does not remember how it was initialised: without `init`, every leaf is
    drawn from a normal distribution with the mean and standard deviation of its own numbers, and a leaf of
    equal numbers stays as it is. To start from the network's own weights, hand `model.params(network)` to a
    method as `initial`.

    Args:
        network: A linen module; an nnx module; an Equinox module, or `(module, state)` from
            `eqx.nn.make_with_state`; what `hk.transform` or `hk.transform_with_state` gives; or a function
            `apply(params, inputs)`, which needs `init`. It is told whether it trains by an argument `train`,
            `training`, `is_training`, `deterministic`, `inference` or `use_running_average`, and is given a
            random key as `key` or `rng`, if it has such arguments.
        example: A batch of inputs, `(batch, ...)`: an array or a `jax.ShapeDtypeStruct`. Values do not
            matter.
        init: How weights are drawn: a function `init(key)` of a network like this one, in its library's own
            form (`lambda key: MyModule(..., key=key)`, or parameters for a function). Or such a network,
            whose leaves give the mean and standard deviation of those that are drawn.
        batched: Whether the network takes a batch rather than one example. None: yes, but Equinox modules
            are tried, one example first.
    """
    shape = checks.example_shape(example)
    parts = _parts(network, shape)
    draw = _drawing(parts, init)
    with checks.explaining(parts.name, "be initialised"):
        shapes = jax.eval_shape(draw, jax.random.key(0))
    checks.refuse_other_weights(parts, shapes)
    is_batched = parts.is_batched if batched is None else batched
    call, needs_key = checks.find_call(parts, is_batched, shapes, shape, draw)
    return _model(parts, call, draw, shapes, shape, needs_key)


def from_module(module: nn.Module, input_shape: tuple[int, ...], *, dtype: Any = jnp.float32) -> Model:
    """`wrap` of a linen module for inputs of a `dtype`; equal modules give the same `Model` object, so
    functions jitted over `model.apply` compile once."""
    return _from_module(module, tuple(input_shape), jnp.dtype(dtype))


@functools.lru_cache(maxsize=256)
def _from_module(module: nn.Module, input_shape: tuple[int, ...], dtype: np.dtype) -> Model:
    shape = jax.ShapeDtypeStruct((2, *input_shape), dtype)
    parts = linen.parts(module, shape)
    draw = _drawing(parts, None)
    return _model(parts, parts.call, draw, jax.eval_shape(draw, jax.random.key(0)), shape, False)


def _parts(network: Any, example: jax.ShapeDtypeStruct) -> Parts:
    """What the network's library says of it; `ValueError` for what is no network."""
    if isinstance(network, type):
        raise ValueError(
            f"network is the class {network.__name__}; give an instance, as {network.__name__}(...)"
        )
    kind = "equinox" if equinox.is_stateful(network) else frameworks.library(network)
    if kind in ("linen", "nnx", "equinox"):
        checks.refuse_uncallable(network[0] if isinstance(network, tuple) else network)
    if kind in ("linen", "haiku"):
        return {"linen": linen.parts, "haiku": haiku.parts}[kind](network, example)
    if kind == "nnx":
        return nnx.parts(network)
    if kind == "equinox":
        return equinox.parts(network)
    if isinstance(network, Model) or not callable(network):
        raise ValueError(
            "network must be a linen, nnx or Equinox module, a Haiku transform or a function of parameters "
            f"and inputs; got {frameworks.described(network)}"
        )
    return function.parts(network)


def _drawing(parts: Parts, init: Any) -> Callable[[Key], Params]:
    """`init(key)` of the model."""
    is_function = callable(init) and (isinstance(init, type) or frameworks.library(init) is None)
    drawn = init if is_function else parts.draw if init is None else None
    if drawn is not None:
        return lambda key: jax.tree.map(jnp.asarray, join_statistics(*parts.read(drawn(key))))
    given = parts.given if init is None else init
    if given is None:
        raise ValueError(
            f"{parts.name} needs init: a function init(key) that gives its parameters, or parameters"
        )
    weights, statistics = jax.tree.map(checks.concrete, parts.read(given))
    checks.refuse_empty(parts, weights)
    fresh = redrawing(weights)
    return lambda key: join_statistics(fresh(key), statistics)


def _model(
    parts: Parts,
    call: Call,
    init: Callable[[Key], Params],
    shapes: Params,
    example: jax.ShapeDtypeStruct,
    needs_key: bool,
) -> Model:
    input_shape = example.shape[1:]
    is_integer = jnp.issubdtype(example.dtype, jnp.integer)

    def checked(inputs: ArrayLike) -> jax.Array:
        if jnp.shape(inputs)[1:] != input_shape:
            raise ValueError(f"inputs have shape {jnp.shape(inputs)}; expected (batch, *{input_shape})")
        # Whole numbers (tokens) may come as floating-point ones, as a target casts its data.
        return jnp.asarray(inputs, example.dtype) if is_integer else jnp.asarray(inputs)

    def apply(params: Params, inputs: ArrayLike) -> Any:
        key = jax.random.key(0) if needs_key else None
        return call(*split_statistics(params), checked(inputs), key, False)[0]

    def train(params: Params, inputs: ArrayLike, key: Key) -> tuple[Any, Params]:
        weights, statistics = split_statistics(params)
        outputs, updated = call(weights, statistics, checked(inputs), key, True)
        return outputs, join_statistics(weights, updated) if has_batch_statistics(params) else params

    def params(network: Any) -> Params:
        own = join_statistics(*parts.read(network))
        tree.check_same_shapes("network", own, shapes)
        return own

    def network(params: Params) -> Any:
        tree.check_same_shapes("params", params, shapes)
        return parts.build(*split_statistics(params))

    spec = symmetry.discover(apply, shapes, jax.ShapeDtypeStruct((2, *input_shape), example.dtype))
    return Model(init, apply, spec, train, input_shape, params, network)
