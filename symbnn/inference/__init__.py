"""Making samples: factory(**settings) -> (key, target) -> Fit.

A new MCMC sampler is a `Kernel` (how a chain starts and makes one transition) and an `adaptation.Tuner` (how
the burn-in sets step size, mass and length; `fixed`, `windows` and, for unadjusted MCLMC, `energy_variance`
exist), given to `driver.run`, which knows about chains, devices, chunks and stopped runs:

    def init(key, position, log_density):
        return PositionState(position)

    def step(key, state, tuning, log_density):
        ...
        return PositionState(position), Info(acceptance, log_density(position))

    fit = driver.run(key, target, Kernel(init, step), adaptation.fixed(step_size=0.1), Run(num_samples=500))

A stopped run is recognised by what target, kernel and tuner compute; its `name` is what messages call it.

A method need not use any of this: whatever takes `(key, target)` and returns a `Fit` is one, and `multimode`
takes it too.

    def method(key, target):
        ...                                                  # a loop over any sampler's kernel
        return Fit(Empirical.from_chains(positions), {})     # or interop.from_blackjax(states, infos)
"""

from symbnn.inference.base import Checkpoint, Chunk, Fit, Method, Progress, ProgressCallback, Sink
from symbnn.inference.chains import adaptation, distributed, driver
from symbnn.inference.chains.kernels import Info, Kernel, PositionState, Tuning
from symbnn.inference.chains.report import SamplingError
from symbnn.inference.chains.settings import Run
from symbnn.inference.dropout import dropout
from symbnn.inference.ensemble import ensemble
from symbnn.inference.fastest import fastest_placement
from symbnn.inference.hmc import hmc
from symbnn.inference.laplace import laplace
from symbnn.inference.mclmc import mclmc
from symbnn.inference.multimode import multimode
from symbnn.inference.nuts import nuts
from symbnn.inference.placement import Placement
from symbnn.inference.progress import ShowProgress, json_lines, progress_bar, scalars
from symbnn.inference.sgmcmc import sgmcmc
from symbnn.inference.storage import Storage, Stored
from symbnn.inference.swag import swag
from symbnn.inference.training.recipe import Recipe
from symbnn.inference.variational import variational

__all__ = [
    "Checkpoint",
    "Chunk",
    "Fit",
    "Info",
    "Kernel",
    "Method",
    "Placement",
    "PositionState",
    "Progress",
    "ProgressCallback",
    "Recipe",
    "Run",
    "SamplingError",
    "ShowProgress",
    "Sink",
    "Storage",
    "Stored",
    "Tuning",
    "adaptation",
    "distributed",
    "driver",
    "dropout",
    "ensemble",
    "fastest_placement",
    "hmc",
    "json_lines",
    "laplace",
    "mclmc",
    "multimode",
    "nuts",
    "progress_bar",
    "scalars",
    "sgmcmc",
    "swag",
    "variational",
]
