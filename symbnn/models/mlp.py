"""Multilayer perceptron with PyTorch's default initialisation, uniform on ±1/√fan_in."""

from collections.abc import Sequence

import jax
from flax import linen as nn
from jax.lax import optimization_barrier

from symbnn.models.base import Model
from symbnn.models.layers import activation as activation_named
from symbnn.models.layers import check_dropout, dense, fan_in_uniform
from symbnn.models.wrapping.wrap import from_module


class MLP(nn.Module):
    """Dense layers `hidden` (one) or `hidden0`, `hidden1`, ... (several), then `out`."""

    hidden: tuple[int, ...]
    num_outputs: int
    activation: str = "relu"
    dropout: float = 0.0
    rows: str = "first"

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """Outputs for inputs of any shape, flattened."""
        x = x.reshape(x.shape[0], -1)
        # The barrier keeps the transposition out of the product: it is then done once, before all steps.
        layer, x = (dense, x) if self.rows == "first" else (_dense_of_columns, optimization_barrier(x.T))
        features = -1 if self.rows == "first" else 0
        for index, width in enumerate(self.hidden):
            name = "hidden" if len(self.hidden) == 1 else f"hidden{index}"
            x = activation_named(self.activation)(layer(width, x.shape[features], name)(x))
            x = nn.Dropout(self.dropout, deterministic=not train, name=f"dropout{index}")(x)
        x = layer(self.num_outputs, x.shape[features], "out")(x)
        return x if self.rows == "first" else x.T


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
    rows: str = "first",
) -> Model:
    """Perceptron.

    Args:
        input_shape: Without the batch axis; more than one axis is flattened.
        num_outputs: Width of the last layer.
        hidden: Widths of the hidden layers.
        activation: One of `ACTIVATIONS`.
        dropout: Probability of dropping a hidden unit, in training mode only.
        rows: Which axis of the hidden values holds the examples. "last" is the same network, whose gradient
            on CPUs may take two thirds of the time where layers are a few dozen units wide, as a product of
            thin matrices is fast along its long axis; with `Placement(lanes=1, vmaps_one=False)`: measure.
    """
    if rows not in ("first", "last"):
        raise ValueError(f"rows must be 'first' or 'last'; got {rows!r}")
    activation_named(activation)
    check_dropout(dropout)
    if any(width < 1 for width in hidden):
        raise ValueError(f"hidden widths must be positive; got {tuple(hidden)}")
    return from_module(MLP(tuple(hidden), num_outputs, activation, float(dropout), rows), tuple(input_shape))
