"""ArviZ data as a `Fit`: draws of PyMC, Stan, NumPyro and others, or what `io.to_arviz` made of our own.

fit = interop.from_arviz(arviz.from_netcdf("draws.nc"))
fit = interop.from_arviz(io.to_arviz(fit))                    # the same again
"""

import json
from typing import Any

import numpy as np

from symbnn.inference import Fit
from symbnn.interop.names import nested
from symbnn.interop.statistics import diagnostics
from symbnn.io import arviz_note
from symbnn.posteriors import Empirical

DIMENSIONS = ("chain", "draw")


def from_arviz(data: Any) -> Fit:
    """The posterior of ArviZ data as an `Empirical` that knows its chains, and its sample statistics.

    Names with slashes become nested dicts (`hidden/kernel`; after a slash dots separate too, as in NumPyro's
    `nn/Dense_0.kernel`). Data of `io.to_arviz` comes back as it was: same tree, same bits, same diagnostics
    but for long ones that are not of single draws. Arrays stay on the host.

    Args:
        data: An `InferenceData`, or a data tree of ArviZ 1, with a group `posterior`.

    Diagnostics, as far as the group `sample_stats` has them: `log_density` (its `lp`), `acceptance_rate`,
    `is_divergent` (its `diverging`), `num_steps` (its `n_steps`) and others by their names (chains, draws);
    `acceptance`, `divergences` and `num_gradients` (chains,).
    """
    posterior = _arrays(data, "posterior")
    if not posterior:
        raise ValueError(
            "from_arviz takes InferenceData or a data tree with draws in its group 'posterior'; got a "
            f"{type(data).__name__} without them (read a file with arviz.from_netcdf first)"
        )
    statistics = _arrays(data, "sample_stats")
    note = json.loads(data["posterior"].attrs.get(arviz_note.ATTRIBUTE, "null"))
    if note is None:
        law = Empirical.from_chains(nested(posterior))
        return Fit(law, diagnostics(statistics, law.num_chains))
    law = Empirical.from_chains(arviz_note.samples_of(note, posterior))
    shape = next(iter(posterior.values())).shape[:2]
    known, others = arviz_note.diagnostics_of(note, statistics, shape)
    return Fit(law, (diagnostics(others, law.num_chains) if others else {}) | known)


def _arrays(data: Any, group: str) -> dict[str, np.ndarray]:
    """Arrays (chains, draws, ...) of a group by variable; none if there is no such group."""
    if not hasattr(data, "groups") or group not in data:
        return {}
    variables = {str(name): variable for name, variable in data[group].data_vars.items()}
    stacked = [name for name, variable in variables.items() if not {*DIMENSIONS} <= {*variable.dims}]
    if stacked and group == "posterior":
        raise ValueError(
            f"variable {stacked[0]!r} of the posterior has the dimensions {variables[stacked[0]].dims}; "
            "expected chain and draw: give the data as the sampler returned it, not stacked"
        )
    return {
        name: np.asarray(variable.transpose(*DIMENSIONS, ...).values)
        for name, variable in variables.items()
        if name not in stacked
    }
