"""Weights that a user brings instead of training them."""

import numpy as np

from symbnn import tree
from symbnn.command.networks import read_weights
from symbnn.models import Model
from symbnn.types import Params


def import_weights(model: Model, layers: str | None, path: str) -> Params:
    """Weights from a file of ours or of PyTorch; `layers` is the name of our model, None for another."""
    try:
        found = read_weights(path, model, layers)
    except ValueError as error:
        raise ValueError(f"pretraining.weights: {error}") from error
    if len(found.networks) > 1:
        raise ValueError(f"pretraining.weights: {path} holds {found.words}; one is needed to start from")
    for name, leaf in tree.named_leaves(found.networks[0]).items():
        if not np.isfinite(leaf).all():
            raise ValueError(f"pretraining.weights: leaf {name!r} of {path} has non-finite numbers")
    return found.networks[0]
