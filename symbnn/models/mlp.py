"""Multilayer perceptron with PyTorch's default initialisation, uniform on ±1/√fan_in."""

from collections.abc import Sequence

import jax
from flax import linen as nn

from symbnn.models.base import Model
from symbnn.models.layers import activation as activation_named
from symbnn.models.layers import check_dropout, dense
from symbnn.models.wrapping.wrap import from_module


class MLP(nn.Module):
    """Dense layers `hidden` (one) or `hidden0`, `hidden1`, ... (several), then `out`."""

    hidden: tuple[int, ...]
    num_outputs: int
    activation: str = "relu"
    dropout: float = 0.0

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """Outputs for inputs of any shape, flattened."""
        x = x.reshape(x.shape[0], -1)
        for index, width in enumerate(self.hidden):
            name = "hidden" if len(self.hidden) == 1 else f"hidden{index}"
            x = activation_named(self.activation)(dense(width, x.shape[-1], name)(x))
            x = nn.Dropout(self.dropout, deterministic=not train, name=f"dropout{index}")(x)
        return dense(self.num_outputs, x.shape[-1], "out")(x)


def mlp(
    input_shape: tuple[int, ...],
    num_outputs: int,
    *,
    hidden: Sequence[int] = (32,),
    activation: str = "relu",
    dropout: float = 0.0,
) -> Model:
    """Perceptron.

    Args:
        input_shape: Without the batch axis; more than one axis is flattened.
        num_outputs: Width of the last layer.
        hidden: Widths of the hidden layers.
        activation: One of `ACTIVATIONS`.
        dropout: Probability of dropping a hidden unit, in training mode only.
    """
    activation_named(activation)
    check_dropout(dropout)
    if any(width < 1 for width in hidden):
        raise ValueError(f"hidden widths must be positive; got {tuple(hidden)}")
    return from_module(MLP(tuple(hidden), num_outputs, activation, float(dropout)), tuple(input_shape))
