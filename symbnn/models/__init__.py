"""Networks. Flax lives only here."""

from collections.abc import Callable
from typing import Any

from symbnn import names
from symbnn.models.base import Model, from_module
from symbnn.models.mlp import mlp

CONSTRUCTORS: dict[str, Callable[..., Model]] = {
    "mlp": mlp,
}


def create(name: str, input_shape: tuple[int, ...], num_outputs: int, **settings: Any) -> Model:
    """The network called `name`, for configs: `create("mlp", (784,), 10, hidden=(512,))`."""
    return names.lookup(CONSTRUCTORS, name, "model")(tuple(input_shape), num_outputs, **settings)


__all__ = ["CONSTRUCTORS", "Model", "create", "from_module", "mlp"]
