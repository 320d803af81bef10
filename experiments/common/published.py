"""Networks that others trained and published: files of PyTorch's weights in `pretrained` beside the data."""

import os
from pathlib import Path

import numpy as np

from symbnn import data, io
from symbnn.models import Model
from symbnn.types import Params

# What the authors of the CIFAR-10 ResNet-20s, and of torchvision's networks, scaled their inputs by.
SCALE = data.Statistics(
    np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)
)


def folder(directory: str | None) -> Path:
    """Where data lie: the folder of the config, else SYMBNN_DATA_DIR."""
    return Path(directory or os.environ.get("SYMBNN_DATA_DIR", "."))


def read(model: Model, directory: str | None, name: str, layers: str) -> Params:
    """The network in the file `name`; `layers` names the kind of model, as `io.from_torch` knows it."""
    path = folder(directory) / "pretrained" / name
    if not path.is_file():
        raise ValueError(
            f"{path} is not there: a published network is read from the folder `pretrained` beside the data; "
            "set SYMBNN_DATA_DIR or --data.directory to the folder that holds it"
        )
    return io.from_torch(model, path, layers)
