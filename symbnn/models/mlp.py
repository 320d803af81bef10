"""Multilayer perceptron with PyTorch's default initialisation, uniform on ±1/√fan_in."""

import itertools
from collections.abc import Sequence

import jax
from flax import linen as nn
from jax.lax import optimization_barrier

from symbnn.models.base import Model
from symbnn.models.layers import activation as activation_named
from symbnn.models.layers import check_dropout, dense, fan_in_uniform
from symbnn.models.wrapping.wrap import from_module

MANY_EXAMPLES, NARROW = 256, 256
"""Where examples go last, by the shorter side of every kernel: of 784-512-10 a gradient is no faster so and
outputs take a seventh longer; of 64-2048-10 and 64-32-10 a gradient takes two thirds of the time, of
64-256-10 four fifths, of 2-8-2 half."""


class MLP(nn.Module):
    """Dense layers `hidden` (one) or `hidden0`, `hidden1`, ... (several), then `out`."""

    hidden: tuple[int, ...]
    num_outputs: int
    activation: str = "relu"
    dropout: float = 0.0
    rows: str = "auto"

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """Outputs for inputs of any shape, flattened."""
        x = x.reshape(x.shape[0], -1)
        is_last = self.rows == "last" or (self.rows == "auto" and self._is_faster_last(*x.shape))
        # The barrier keeps the transposition out of the product: it is then done once, before all steps.
        layer, x = (_dense_of_columns, optimization_barrier(x.T)) if is_last else (dense, x)
        features = 0 if is_last else -1
        for index, width in enumerate(self.hidden):
            name = "hidden" if len(self.hidden) == 1 else f"hidden{index}"
            x = activation_named(self.activation)(layer(width, x.shape[features], name)(x))
            x = nn.Dropout(self.dropout, deterministic=not train, name=f"dropout{index}")(x)
        x = layer(self.num_outputs, x.shape[features], "out")(x)
        return x.T if is_last else x

    def _is_faster_last(self, num_examples: int, num_inputs: int) -> bool:
        sides = itertools.pairwise((num_inputs, *self.hidden, self.num_outputs))
        is_narrow = all(min(pair) <= NARROW for pair in sides)
        return jax.default_backend() == "cpu" and is_narrow and num_examples >= MANY_EXAMPLES


class DenseOfColumns(nn.Module):
    """A dense layer with the weights of `nn.Dense` for inputs (features, examples): Wᵀ x + b."""

    features: int
    fan_in: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Outputs (features, examples)."""
        init = fan_in_uniform(self.fan_in)
        kernel = self.param("kernel", init, (self.fan_in, self.features), x.dtype)
        bias = self.param("bias", init, (self.features,), x.dtype)
        return kernel.T @ x + bias[:, None]


def _dense_of_columns(features: int, fan_in: int, name: str) -> DenseOfColumns:
    return DenseOfColumns(features, fan_in, name=name)


def mlp(
    input_shape: tuple[int, ...],
    num_outputs: int,
    *,
    hidden: Sequence[int] = (32,),
    activation: str = "relu",
    dropout: float = 0.0,
    rows: str = "auto",
) -> Model:
    """Perceptron.

    Args:
        input_shape: Without the batch axis; more than one axis is flattened.
        num_outputs: Width of the last layer.
        hidden: Widths of the hidden layers.
        activation: One of `ACTIVATIONS`.
        dropout: Probability of dropping a hidden unit, in training mode only.
        rows: Which axis of the hidden values holds the examples, "first" or "last": the same network up to
            rounding. On CPUs the gradient of many examples takes half to four fifths of the time with "last"
            where layers are narrow, as a product of thin matrices is fast along its long axis; minibatches
            and wide layers are as fast or faster with "first". "auto" is "last" on CPUs for at least
            `MANY_EXAMPLES` examples and kernels whose shorter side is at most `NARROW`.
    """
    if rows not in ("auto", "first", "last"):
        raise ValueError(f"rows must be 'auto', 'first' or 'last'; got {rows!r}")
    activation_named(activation)
    check_dropout(dropout)
    if any(width < 1 for width in hidden):
        raise ValueError(f"hidden widths must be positive; got {tuple(hidden)}")
    return from_module(MLP(tuple(hidden), num_outputs, activation, float(dropout), rows), tuple(input_shape))
