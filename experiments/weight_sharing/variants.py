"""Ablations of weight sharing: one change of settings each, from the same stochastic network."""

import dataclasses
from typing import Any

from configs.weight_sharing import WeightSharing
from configs.weight_sharing.variants import CHANGES
from symbnn.names import lookup


def changed(config: WeightSharing, name: str) -> WeightSharing:
    """The config with the settings of the variant `name`."""
    changes: dict[str, Any] = {
        part: dataclasses.replace(getattr(config, part), **settings)
        for part, settings in lookup(CHANGES, name, "variant").items()
    }
    return dataclasses.replace(config, **changes)


def file_name(name: str) -> str:
    """The name of the variant as part of a file name."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)
