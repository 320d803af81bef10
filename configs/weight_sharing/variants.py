"""Variants of weight sharing for ablations: what each changes of the settings."""

import math
from typing import Any

NO_OUTLIERS = {"magnitude": math.inf, "gradient_share": 0.0, "smallest_cluster": 1}
ORDERS = ("merging first", "ellipses first")
COUNTED = (
    *ORDERS,
    "no merging",
    "K = 2000",
    "outliers above 0.2",
    "outliers above 0.2, K = 2000",
    "tau_d = 1.5e-7",
    "outliers above 0.2, K = 2000, tau_d = 1.5e-7",
)
"""What the paper leaves open, or says, about how many of each there are."""
CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "no ellipses": {"refining": {"ellipses": False}},
    "no outliers": {"clustering": NO_OUTLIERS},
    "neither": {"clustering": NO_OUTLIERS, "refining": {"ellipses": False}},
    "merging first": {"refining": {"order": "merge first"}},
    "ellipses first": {"refining": {"order": "ellipses first"}},
    "K = 2000": {"clustering": {"num_components": 2000}},
    "outliers above 0.2, K = 2000": {"clustering": {"num_components": 2000, "magnitude": 0.2}},
    "tau_d = 1.5e-7": {"refining": {"distance": 1.5e-7}},
    "outliers above 0.2, K = 2000, tau_d = 1.5e-7": {
        "clustering": {"num_components": 2000, "magnitude": 0.2},
        "refining": {"distance": 1.5e-7},
    },
    "outliers above 0.2": {"clustering": {"magnitude": 0.2}},
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
