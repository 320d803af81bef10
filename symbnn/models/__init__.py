"""Networks: ours, and with `wrap` those of any JAX library. Flax lives only here."""

from collections.abc import Callable
from typing import Any

from symbnn import names
from symbnn.models.base import Model, frozen, in_training
from symbnn.models.convnets import lenet, optunet
from symbnn.models.filter_response import resnet20_frn
from symbnn.models.language import gpt
from symbnn.models.layers import ACTIVATIONS
from symbnn.models.mlp import mlp
from symbnn.models.residual import resnet18, resnet20, resnet50
from symbnn.models.transformer import vit, vit_b16
from symbnn.models.wide import wrn28_10
from symbnn.models.wrapping.wrap import from_module, wrap

CONSTRUCTORS: dict[str, Callable[..., Model]] = {
    constructor.__name__: constructor
    for constructor in (
        mlp,
        optunet,
        lenet,
        resnet20,
        resnet20_frn,
        resnet18,
        resnet50,
        wrn28_10,
        vit,
        vit_b16,
        gpt,
    )
}


def create(name: str, input_shape: tuple[int, ...], num_outputs: int, **settings: Any) -> Model:
    """The network called `name`, for configs: `create("mlp", (784,), 10, hidden=(512,))`."""
    return names.lookup(CONSTRUCTORS, name, "model")(tuple(input_shape), num_outputs, **settings)


__all__ = [
    "ACTIVATIONS",
    "CONSTRUCTORS",
    "Model",
    "create",
    "from_module",
    "frozen",
    "gpt",
    "in_training",
    "lenet",
    "mlp",
    "optunet",
    "resnet18",
    "resnet20",
    "resnet20_frn",
    "resnet50",
    "vit",
    "vit_b16",
    "wrap",
    "wrn28_10",
]
