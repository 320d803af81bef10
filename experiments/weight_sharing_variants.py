"""Ablations of weight sharing: one change of settings each, from the same stochastic network."""

import dataclasses
import math
from typing import Any

from configs.weight_sharing import VARIANTS as NAMES
from configs.weight_sharing import WeightSharing
from symbnn.names import lookup

NO_OUTLIERS = {"magnitude": math.inf, "gradient_share": 0.0, "smallest_cluster": 1}
CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "no ellipses": {"refining": {"ellipses": False}},
    "no outliers": {"clustering": NO_OUTLIERS},
    "neither": {"clustering": NO_OUTLIERS, "refining": {"ellipses": False}},
    "no merging": {"refining": {"merging": False}},
    "outliers above 0.1": {"clustering": {"magnitude": 0.1}},
    "outliers above 0.4": {"clustering": {"magnitude": 0.4}},
    "outliers above 0.6": {"clustering": {"magnitude": 0.6}},
    "merge: paper": {"refining": {"formula": "paper"}},
    "merge: code": {"refining": {"formula": "code"}},
    "merge: barycenter": {"refining": {"formula": "barycenter"}},
    "first_coord": {"training": {"sampling": "first_coord"}},
    "noise: sign": {"training": {"noise": "sign"}},
    "noise: layer": {"training": {"noise": "layer"}},
    "noise: weight": {"training": {"noise": "weight"}},
    "blend: centers": {"training": {"blending": "centers"}},
    "blend: mixture": {"training": {"blending": "mixture"}},
    "KL: per component": {"training": {"multiplicity": "per_component"}},
    "KL: per weight": {"training": {"multiplicity": "per_weight"}},
    "KL: none": {"training": {"kl_weight": 0.0}},
    "KL: full": {"training": {"kl_weight": 1.0}},
    "prior: pretrained": {"training": {"prior": "pretrained"}},
    "prior: anchored": {"training": {"prior": "anchored"}},
}
assert tuple(CHANGES) == NAMES


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
