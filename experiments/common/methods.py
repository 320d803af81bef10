"""The one place that turns parts of a config into methods of `inference`, and runs them with their progress.

First the stages that several studies share, then one function for each method.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from configs.parts import Descent, Hamiltonian, Laplace, Microcanonical, NoUTurn, Trajectories, Variational
from configs.posterior_quality import PosteriorQuality, Swag
from experiments.common import optimizers
from experiments.common.problem import Problem
from experiments.harness.progress import SHOWN
from experiments.harness.rundir import Run
from symbnn import inference, keys, tree
from symbnn.density import Target
from symbnn.inference import Fit, Recipe
from symbnn.inference.multimode import ModeMethod
from symbnn.types import Key, Params, Samples


def sample(problem: Problem, run: Run) -> Fit:
    """HMC; a stopped run goes on from its chunks."""
    settings, key = problem.config.inference, keys.named(problem.key, "hmc")
    starts = None
    if settings.start == "initialisation":
        starts = jax.vmap(problem.model.init)(keys.indexed(keys.named(key, "start"), 0, settings.num_chains))
    return hmc(
        key,
        problem.target,
        settings,
        num_chains=settings.num_chains,
        num_samples=settings.num_samples,
        initial=starts,
        sink=run.chunks("hmc"),
    )


def train_ensemble(problem: Problem, run: Run, *, name: str = "ensemble") -> Fit:
    """MAP networks from independent starts; a stopped run goes on from its last epochs, kept by `name`."""
    return ensemble(
        keys.named(problem.key, "ensemble"),
        problem.target,
        problem.config.ensemble,
        num_members=problem.config.ensemble.num_members,
        checkpoint=run.training(name),
    )


def fit_variational(problem: Problem, run: Run, *, reparametrisation: str = "local") -> Fit:
    """Mean-field Gaussian; a stopped run goes on from its last epochs."""
    key, kept = keys.named(problem.key, "variational"), run.training("variational")
    method = variational(problem.config.variational, reparametrisation=reparametrisation, checkpoint=kept)
    return method(key, problem.target)


def hmc(
    key: Key,
    target: Target,
    settings: Trajectories,
    *,
    num_chains: int,
    num_samples: int,
    thinning: int = 1,
    initial: Samples | None = None,
    sink: Any = None,
    placement: inference.Placement | None = None,
) -> Fit:
    """Hamiltonian Monte Carlo, `num_samples` draws of every chain."""
    method = inference.hmc(
        num_chains=num_chains,
        num_samples=num_samples,
        num_burnin=settings.num_burnin,
        thinning=thinning,
        step_size=settings.step_size,
        num_steps=settings.num_steps,
        integrator=settings.integrator,
        target_acceptance=settings.target_acceptance,
        initial=initial,
        progress=SHOWN,
        sink=sink,
        placement=placement or inference.Placement(),
    )
    return method(key, target)


def adapted_hmc(key: Key, target: Target, settings: Hamiltonian, *, initial: Samples, sink: Any) -> Fit:
    """Hamiltonian Monte Carlo that finds its step size in the burn-in."""
    chains = _chains(settings, initial, sink)
    return inference.hmc(max_num_steps=settings.max_num_steps, **chains)(key, target)


def nuts(key: Key, target: Target, settings: NoUTurn, *, initial: Samples, sink: Any) -> Fit:
    """The No-U-Turn Sampler."""
    chains = _chains(settings, initial, sink)
    return inference.nuts(max_doublings=settings.max_doublings, **chains)(key, target)


def mclmc(key: Key, target: Target, settings: Microcanonical, *, initial: Samples, sink: Any) -> Fit:
    """Microcanonical Langevin Monte Carlo without adjustment."""
    chains = _chains(settings, initial, sink)
    method = inference.mclmc(thinning=settings.thinning, energy_variance=settings.energy_variance, **chains)
    return method(key, target)


def _chains(settings: Any, initial: Samples, sink: Any) -> dict[str, Any]:
    """What samplers share; chains start from the first of `initial`."""
    return {
        "num_chains": settings.num_chains,
        "num_samples": settings.num_samples,
        "num_burnin": settings.num_burnin,
        "initial": tree.take(initial, slice(0, settings.num_chains)),
        "progress": SHOWN,
        "sink": sink,
    }


def ensemble(
    key: Key,
    target: Target,
    settings: Descent,
    *,
    num_members: int,
    optimizer: str = "adam",
    momentum: float = 0.9,
    schedule: str = "constant",
    milestones: tuple[int, ...] = (),
    factor: float = optimizers.STEP_DECAY,
    objective: str = "map",
    initial: Samples | None = None,
    members_per_block: int | None = None,
    snapshots: tuple[int, ...] = (),
    checkpoint: Any = None,
) -> Fit:
    """Networks trained side by side; `milestones` are epochs, at which `factor` multiplies the rate."""
    course = _course(target, settings, schedule, milestones, factor)
    method = inference.ensemble(
        num_members=num_members,
        epochs=settings.num_epochs,
        batch_size=settings.batch_size,
        optimizer=optimizers.create(
            optimizer, momentum=momentum, learning_rate=settings.learning_rate, **course
        ),
        objective=objective,
        initial=initial,
        members_per_block=members_per_block,
        snapshots=snapshots,
        progress=SHOWN,
        checkpoint=checkpoint,
    )
    return method(key, target)


def stepped(settings: Any, *, otherwise: str = "constant") -> dict[str, Any]:
    """Keywords of `ensemble` for a config with `Milestones`; `otherwise` is the schedule if it has none."""
    epochs = settings.milestones
    if not epochs:
        return {"schedule": otherwise}
    if list(epochs) != sorted(set(epochs)) or epochs[0] < 1 or epochs[-1] >= settings.num_epochs:
        raise ValueError(
            f"the milestones of a training of {settings.num_epochs} epochs must be rising epochs before its "
            f"last, got {' '.join(map(str, epochs))}"
        )
    return {"schedule": "step", "milestones": epochs, "factor": settings.rate_factor}


def sum_of_rates(target: Target, settings: Any) -> float:
    """Σ_t η_t over all steps of a training by `stepped`, in float64: they are many."""
    course = _course(target, settings, **stepped(settings))
    rates = optimizers.rate_schedule(learning_rate=settings.learning_rate, **course)
    return float(np.sum(np.asarray(jax.vmap(rates)(np.arange(course["num_steps"]))), dtype=np.float64))


def _course(
    target: Target,
    settings: Descent,
    schedule: str,
    milestones: tuple[int, ...] = (),
    factor: float = optimizers.STEP_DECAY,
) -> dict[str, Any]:
    """Keywords of `optimizers.rate_schedule`, which counts steps, from epochs."""
    steps = steps_per_epoch(target, settings.batch_size)
    return {
        "schedule": schedule,
        "num_steps": settings.num_epochs * steps,
        "milestones": tuple(epoch * steps for epoch in milestones),
        "factor": factor,
    }


def variational(settings: Variational, *, reparametrisation: str = "local", checkpoint: Any = None) -> Any:
    """Mean-field variational inference."""
    return inference.variational(
        epochs=settings.num_epochs,
        batch_size=settings.batch_size,
        optimizer=optimizers.create("adam", settings.learning_rate),
        initial_std=settings.initial_std,
        reparametrisation=reparametrisation,
        progress=SHOWN,
        checkpoint=checkpoint,
    )


def laplace(settings: Laplace, *, initial: Params | None = None) -> ModeMethod:
    """Laplace's approximation around networks that are trained already."""
    return inference.laplace(
        structure=settings.structure,
        leaves=None if settings.leaves == "all" else settings.leaves,
        rank=settings.rank,
        tune=settings.tune,
        pretrain_epochs=0,
        initial=initial,
        progress=SHOWN,
    )


def around_modes(key: Key, target: Target, name: str, config: PosteriorQuality, modes: Samples) -> Any:
    """The posterior of one of `MODE_METHODS`: an equal mixture over the modes."""
    num_draws = config.num_samples // tree.num_samples(modes)
    method = MODE_METHODS[name](config, num_draws)
    return inference.multimode(method, members=modes)(key, target).posterior


def recipe(problem: Problem, epochs: int, learning_rate: float, name: str = "adam") -> Recipe:
    """How a stage of weight sharing trains: with the batch size and schedule of its `pretraining`."""
    settings = problem.config.pretraining
    batch_size = min(settings.batch_size, problem.target.num_data)
    steps = epochs * steps_per_epoch(problem.target, batch_size)
    rule = optimizers.create(name, learning_rate, schedule=settings.schedule, num_steps=steps)
    return Recipe(epochs, batch_size, rule)


def steps_per_epoch(target: Target, batch_size: int) -> int:
    """Whole minibatches in the data, at least one."""
    return max(1, target.num_data // batch_size)


def _dropout(config: PosteriorQuality, num_draws: int) -> ModeMethod:
    return inference.dropout(
        rate=config.dropout.rate,
        masks_per_batch=config.dropout.masks_per_batch,
        epochs=config.dropout.num_epochs,
        steps_per_epoch=config.dropout.steps_per_epoch,
        batch_size=config.training.batch_size,
        optimizer=optimizers.create("adam", config.dropout.learning_rate),
        progress=SHOWN,
    )


def swag(settings: Swag, *, batch_size: int, initial: Params | None = None) -> ModeMethod:
    """SWAG around networks that are trained already."""
    return inference.swag(
        rank=settings.rank,
        epochs=settings.num_epochs,
        steps_per_epoch=settings.steps_per_epoch,
        optimizer=optimizers.create("momentum", settings.learning_rate),
        pretrain_epochs=0,
        batch_size=batch_size,
        initial=initial,
        progress=SHOWN,
    )


def _sghmc(config: PosteriorQuality, num_draws: int) -> ModeMethod:
    return inference.sgmcmc(
        num_samples=num_draws,
        batch_size=config.training.batch_size,
        progress=SHOWN,
        **dataclasses.asdict(config.sghmc),
    )


MODE_METHODS: dict[str, Callable[[PosteriorQuality, int], ModeMethod]] = {
    "dropout": _dropout,
    "variational": lambda config, num_draws: variational(config.variational),
    "swag": lambda config, num_draws: swag(config.swag, batch_size=config.training.batch_size),
    "laplace": lambda config, num_draws: laplace(config.laplace),
    "sghmc": _sghmc,
}
"""(config, draws for each mode) -> method."""
