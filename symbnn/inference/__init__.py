"""Making samples: factory(**settings) -> (key, target) -> Fit.

A new MCMC sampler is a `kernels.Kernel` (how a chain starts and makes one transition), an
`adaptation.Tuner` (how the burn-in sets step size, mass and length; `fixed`, `windows` and, for unadjusted
MCLMC, `energy_variance` exist) and a factory that gives both to `driver.run`, which knows about chains,
devices, chunks and stopped runs. Every setting that changes a draw must be in the name the factory gives to
`driver.run`, or in the tuner's: the name is part of the fingerprint by which a stopped run is recognised.
"""

from symbnn.inference.base import Chunk, Fit, Method, Progress, Sink
from symbnn.inference.chains import Placement
from symbnn.inference.dropout import dropout
from symbnn.inference.ensemble import ensemble
from symbnn.inference.hmc import hmc
from symbnn.inference.laplace import laplace
from symbnn.inference.mclmc import mclmc
from symbnn.inference.multimode import multimode
from symbnn.inference.nuts import nuts
from symbnn.inference.report import SamplingError
from symbnn.inference.sgmcmc import sgmcmc
from symbnn.inference.storage import Storage, Stored
from symbnn.inference.swag import swag
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
    "dropout",
    "ensemble",
    "hmc",
    "laplace",
    "mclmc",
    "multimode",
    "nuts",
    "sgmcmc",
    "swag",
    "variational",
]
