"""One network of every library, 3 inputs, 4 units, 2 outputs: plain, and with BatchNorm and dropout."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import nnx

KEY = jax.random.key(0)
INPUTS = jax.random.normal(jax.random.key(1), (5, 3))


class Case(NamedTuple):
    network: Any
    init: Any
    own: Callable[[], Any]
    """The network in its library's own form, with weights."""
    apply: Callable[[Any, Any], Any]
    """What the library itself computes from that form, in evaluation mode."""
    weight: str
    """Name of the first layer's matrix."""


class LinenMLP(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2, name="out")(nn.relu(nn.Dense(4, name="hidden")(x)))


class NnxMLP(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(3, 4, rngs=rngs), nnx.Linear(4, 2, rngs=rngs)])

    def __call__(self, x):
        return self.layers[1](nnx.relu(self.layers[0](x)))


def haiku_mlp(x):
    return hk.nets.MLP([4, 2])(x)


def function_mlp(params, x):
    (first, shift), (second, out_shift) = params
    return jax.nn.relu(x @ first + shift) @ second + out_shift


def list_of_tuples(key):
    first, second = jax.random.split(key)
    return [
        (jax.random.normal(first, (3, 4)), jnp.zeros(4)),
        (jax.random.normal(second, (4, 2)), jnp.zeros(2)),
    ]


def plain_cases() -> dict[str, Case]:
    linen, haiku = LinenMLP(), hk.transform(haiku_mlp)
    equinox = eqx.nn.MLP(3, 2, 4, 1, key=KEY)
    return {
        "linen": Case(
            linen, None, lambda: linen.init(KEY, INPUTS), lambda own, x: linen.apply(own, x), "hidden/kernel"
        ),
        "nnx": Case(
            NnxMLP(nnx.Rngs(0)),
            lambda key: NnxMLP(nnx.Rngs(key)),
            lambda: NnxMLP(nnx.Rngs(3)),
            lambda own, x: own(x),
            "layers/0/kernel",
        ),
        "equinox": Case(
            equinox,
            lambda key: eqx.nn.MLP(3, 2, 4, 1, key=key),
            lambda: eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(3)),
            lambda own, x: jax.vmap(own)(x),
            "layers/0/weight",
        ),
        "haiku": Case(
            haiku,
            None,
            lambda: haiku.init(KEY, INPUTS),
            lambda own, x: haiku.apply(own, None, x),
            "mlp/~/linear_0/w",
        ),
        "function": Case(
            function_mlp, list_of_tuples, lambda: list_of_tuples(jax.random.key(3)), function_mlp, "0/0"
        ),
    }


class LinenNormed(nn.Module):
    @nn.compact
    def __call__(self, x, deterministic):
        x = nn.BatchNorm(use_running_average=deterministic, momentum=0.9)(nn.Dense(4, name="hidden")(x))
        return nn.Dense(2, name="out")(nn.Dropout(0.5, deterministic=deterministic)(nn.relu(x)))


class NnxNormed(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.out = nnx.Linear(3, 4, rngs=rngs), nnx.Linear(4, 2, rngs=rngs)
        self.norm, self.dropout = nnx.BatchNorm(4, momentum=0.9, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.out(self.dropout(nnx.relu(self.norm(self.hidden(x)))))


class EquinoxNormed(eqx.Module):
    hidden: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout
    out: eqx.nn.Linear

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.hidden = eqx.nn.Linear(3, 4, key=first)
        self.out = eqx.nn.Linear(4, 2, use_bias=False, key=second)
        # An axis of any name: it is found in the module.
        self.norm, self.dropout = eqx.nn.BatchNorm(4, "rows", momentum=0.9, mode="batch"), eqx.nn.Dropout(0.5)

    def __call__(self, x, state, key=None):
        x, state = self.norm(self.hidden(x), state)
        return self.out(self.dropout(jax.nn.relu(x), key=key)), state


def haiku_normed(x, is_training):
    x = hk.BatchNorm(True, True, 0.9)(hk.Linear(4)(x), is_training)
    if is_training:
        x = hk.dropout(hk.next_rng_key(), 0.5, x)
    return hk.Linear(2)(jax.nn.relu(x))


def normed_cases() -> dict[str, tuple[Any, Any]]:
    """(network, init) with BatchNorm and dropout."""
    make = eqx.nn.make_with_state(EquinoxNormed)
    return {
        "linen": (LinenNormed(), None),
        "nnx": (NnxNormed(nnx.Rngs(0)), lambda key: NnxNormed(nnx.Rngs(key))),
        "equinox": (make(KEY), make),
        "haiku": (hk.transform_with_state(haiku_normed), None),
    }
