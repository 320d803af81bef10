"""Making samples: factory(**settings) -> (key, target) -> Fit."""

from symbnn.inference.base import Chunk, Fit, Method, Progress, Sink
from symbnn.inference.chains import Placement
from symbnn.inference.ensemble import ensemble
from symbnn.inference.hmc import hmc
from symbnn.inference.multimode import multimode
from symbnn.inference.report import SamplingError
from symbnn.inference.storage import Storage, Stored
from symbnn.inference.variational import variational

__all__ = [
    "Chunk",
    "Fit",
    "Method",
    "Placement",
    "Progress",
    "SamplingError",
    "Sink",
    "Storage",
    "Stored",
    "ensemble",
    "hmc",
    "multimode",
    "variational",
]
