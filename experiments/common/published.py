"""Networks that others trained and published: files of PyTorch's weights in `pretrained` beside the data."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from symbnn import data, io, tree
from symbnn.models import Model
from symbnn.types import Params, Samples

# What the authors of the CIFAR-10 ResNet-20s, and of torchvision's networks, scaled their inputs by.
SCALE = data.Statistics(
    np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)
)


def folder(directory: str | None) -> Path:
    """Where data lie: the folder of the config, else SYMBNN_DATA_DIR."""
    return Path(directory or os.environ.get("SYMBNN_DATA_DIR", "."))


def check(names: Sequence[str], config: Any, *, network: tuple[str, str], number: tuple[str, int]) -> None:
    """`ValueError` where names are given, but not the settings of as many CIFAR-10 ResNet-20s.

    `network` and `number` are an option of the study and its value.
    """
    if names and (
        len(names) != number[1]
        or network[1] != "resnet20"
        or config.model.factory is not None
        or config.data.npz is not None
    ):
        raise ValueError(
            f"--published names {len(names)} ResNet-20s of CIFAR-10: they need {number[0]} {len(names)}, "
            f"{network[0]} resnet20, and no network or data of your own"
        )


def read_all(model: Model, directory: str | None, names: Sequence[str]) -> Samples:
    """CIFAR-10 ResNet-20s in these files, stacked."""
    return tree.stack([read(model, directory, name, "resnet20") for name in names])


def read(model: Model, directory: str | None, name: str, layers: str) -> Params:
    """The network in the file `name`; `layers` names the kind of model, as `io.from_torch` knows it."""
    path = folder(directory) / "pretrained" / name
    if not path.is_file():
        raise ValueError(
            f"{path} is not there: a published network is read from the folder `pretrained` beside the data; "
            "set SYMBNN_DATA_DIR or --data.directory to the folder that holds it"
        )
    return io.from_torch(model, path, layers)
