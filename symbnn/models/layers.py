"""Activations by name and PyTorch's default initialisation, shared by all networks."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn

from symbnn import names

Activation = Callable[[jax.Array], jax.Array]

ACTIVATIONS: dict[str, Activation] = {
    "relu": nn.relu,
    "leaky_relu": nn.leaky_relu,
    "elu": nn.elu,
    "selu": nn.selu,
    "gelu": nn.gelu,
    "silu": nn.silu,
    "swish": nn.silu,
    "softplus": nn.softplus,
    "tanh": nn.tanh,
    "sigmoid": nn.sigmoid,
    "sin": jnp.sin,
    "abs": jnp.abs,
    "identity": lambda x: x,
}


def activation(name: str) -> Activation:
    """The activation of that name."""
    return names.lookup(ACTIVATIONS, name, "activation")


def fan_in_uniform(fan_in: int) -> jax.nn.initializers.Initializer:
    """Uniform on ±1/√fan_in: PyTorch's default for the weights and the biases of a layer."""
    bound = 1.0 / math.sqrt(fan_in)

    def init(key, shape, dtype=jnp.float32, out_sharding=None):
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


def dense(features: int, fan_in: int, name: str) -> nn.Dense:
    """Dense layer that starts as PyTorch's does."""
    init = fan_in_uniform(fan_in)
    return nn.Dense(features, kernel_init=init, bias_init=init, name=name)


def scaled(channels: int, width: float) -> int:
    """`channels` times a width multiplier, at least one."""
    return max(1, round(channels * width))
