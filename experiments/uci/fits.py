"""Every method on one table, with what it cost: the ensemble first, as the others start from its members.

Seconds are of the whole call, compiling included; `with_start` adds those of the networks that it starts
from. Of a sampler that went on from parts of a stopped run they are not known.
"""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from experiments.common import methods
from experiments.common.problem import Problem
from experiments.harness.rundir import Run
from symbnn import keys, tree
from symbnn.inference import Fit
from symbnn.types import Key, Samples

SAMPLERS: dict[str, Any] = {"hmc": methods.adapted_hmc, "nuts": methods.nuts, "mclmc": methods.mclmc}


def fit_all(run: Run, problem: Problem, name: str) -> dict[str, dict[str, Any]]:
    """By method: its `fit`, and seconds: `processor`, `with_start`, `wall`. Stages: `<table>-<method>`."""
    ensemble = run.stage(f"{name}-ensemble", partial(_timed, partial(_ensemble, problem)))
    members = ensemble["fit"].posterior.samples
    found = {"ensemble": ensemble}
    for method in problem.config.methods:
        stage = f"{name}-{method}"
        if method in SAMPLERS:
            found[method] = run.stage(stage, partial(_sample, run, problem, members, method, stage))
        elif method != "ensemble":
            found[method] = run.stage(stage, partial(_timed, partial(ONE_MODE[method], problem, members)))
    return {
        method: each | {"with_start": _with_start(problem, found, method)} for method, each in found.items()
    }


def _with_start(problem: Problem, found: dict[str, dict[str, Any]], method: str) -> float:
    """Samplers start from the ensemble, SWAG and Laplace from one of its members."""
    start = found["ensemble"]["processor"]
    shares = {"swag": 1 / problem.config.ensemble.num_members} | dict.fromkeys(SAMPLERS, 1.0)
    shares["laplace"] = shares["swag"]
    return found[method]["processor"] + shares.get(method, 0.0) * start


def _timed(compute: Callable[[], Fit]) -> dict[str, Any]:
    wall, processor = time.perf_counter(), time.process_time()
    fit = jax.block_until_ready(compute())
    return {"fit": fit, "processor": time.process_time() - processor, "wall": time.perf_counter() - wall}


def _sample(run: Run, problem: Problem, members: Samples, method: str, stage: str) -> dict[str, Any]:
    goes_on = run.has_parts(stage)
    settings, key = getattr(problem.config, method), _key(problem, method)
    sampler = partial(SAMPLERS[method], key, problem.target, settings, initial=members)
    found = _timed(partial(sampler, sink=run.chunks(stage)))
    return found | ({"processor": math.nan, "wall": math.nan} if goes_on else {})


def _ensemble(problem: Problem) -> Fit:
    settings = problem.config.ensemble
    return methods.ensemble(
        _key(problem, "ensemble"),
        problem.target,
        settings,
        num_members=settings.num_members,
        schedule="cosine",
    )


def _variational(problem: Problem, members: Samples) -> Fit:
    return methods.variational(problem.config.variational)(_key(problem, "variational"), problem.target)


def _swag(problem: Problem, members: Samples) -> Fit:
    batch_size = problem.config.ensemble.batch_size
    method = methods.swag(problem.config.swag, batch_size=batch_size, initial=tree.take(members, 0))
    return method(_key(problem, "swag"), problem.target)


def _laplace(problem: Problem, members: Samples) -> Fit:
    method = methods.laplace(problem.config.laplace, initial=tree.take(members, 0))
    return method(_key(problem, "laplace"), problem.target)


ONE_MODE: dict[str, Callable[[Problem, Samples], Fit]] = {
    "variational": _variational,
    "swag": _swag,
    "laplace": _laplace,
}
"""Methods around one network: VI from a fresh one, the others from the first member of the ensemble."""


def _key(problem: Problem, method: str) -> Key:
    return keys.named(problem.key, method)
