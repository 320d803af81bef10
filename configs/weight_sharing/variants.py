"""Variants of weight sharing for ablations: what each changes of the settings."""

import math
from typing import Any

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
