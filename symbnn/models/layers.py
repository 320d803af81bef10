"""Activations, initialisations and layers that several networks share, and checks of their settings."""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn

from symbnn import names

Activation = Callable[[jax.Array], jax.Array]
Layer = Callable[[jax.Array], jax.Array]

ACTIVATIONS: dict[str, Activation] = {
    "relu": nn.relu,
    "leaky_relu": nn.leaky_relu,
    "elu": nn.elu,
    "selu": nn.selu,
    "gelu": functools.partial(nn.gelu, approximate=False),
    "silu": nn.silu,
    "swish": nn.silu,
    "softplus": nn.softplus,
    "tanh": jnp.tanh,
    "sigmoid": nn.sigmoid,
    "sin": jnp.sin,
    "abs": jnp.abs,
    "identity": lambda x: x,
}


def activation(name: str) -> Activation:
    """The activation of that name. "gelu" is the exact one (with erf), as in PyTorch."""
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


def convolution(channels: int, kernel: int, stride: int = 1, *, name: str) -> Layer:
    """Convolution without bias, padded symmetrically, He-initialised by fan-out: the residual nets' own."""
    half = kernel // 2
    convolve = nn.Conv(
        channels,
        (kernel, kernel),
        strides=stride,
        padding=((half, half), (half, half)),
        use_bias=False,
        kernel_init=nn.initializers.variance_scaling(2.0, "fan_out", "normal"),
        name=name,
    )
    if jax.default_backend() != "cpu":
        return convolve
    # A kernel's gradient turns the inputs round. On CPUs that is slow where normalisation and activation are
    # computed anew on the way; with a barrier the inputs are kept (see `KEPT_BARRIERS`): a fifth of a step.
    return lambda x: convolve(jax.lax.optimization_barrier(x))


def batch_norm(train: bool, *, name: str) -> nn.BatchNorm:
    """BatchNorm with PyTorch's constants."""
    return nn.BatchNorm(use_running_average=not train, momentum=0.9, epsilon=1e-5, name=name)


def scaled(channels: int, width: float) -> int:
    """`channels` times a width multiplier, at least one."""
    return max(1, round(channels * width))


def check_image(name: str, input_shape: tuple[int, ...], *, smallest: int) -> None:
    """`ValueError` unless `input_shape` is (height, width, channels) with sides of at least `smallest`."""
    if len(input_shape) != 3 or min(input_shape[:2]) < smallest:
        raise ValueError(
            f"{name} takes images of shape (height, width, channels) with at least {smallest} pixels a side; "
            f"got {tuple(input_shape)}"
        )


def check_dropout(dropout: float) -> None:
    """`ValueError` unless `dropout` is a probability below one."""
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout must be a probability in [0, 1); got {dropout}")
