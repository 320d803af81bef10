"""The one place that turns parts of a config into methods of `inference`, and runs them with their progress.

First the stages that several studies share, then one function for each method.
"""

from collections.abc import Callable
from typing import Any

import jax
import optax

from configs.parts import Descent, Trajectories, Variational
from configs.posterior_quality import PosteriorQuality
from experiments.common.problem import Problem
from experiments.harness import progress
from experiments.harness.rundir import Run
from symbnn import inference, keys, tree
from symbnn.density import Target
from symbnn.inference import Fit
from symbnn.inference.multimode import ModeMethod
from symbnn.inference.recipe import OPTIMIZERS, Recipe
from symbnn.types import Key, Samples


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


def train_ensemble(problem: Problem) -> Fit:
    """MAP networks from independent starts."""
    settings = problem.config.ensemble
    key = keys.named(problem.key, "ensemble")
    return ensemble(key, problem.target, settings, num_members=settings.num_members)


def fit_variational(problem: Problem, *, reparametrisation: str = "local") -> Fit:
    """Mean-field Gaussian."""
    key, settings = keys.named(problem.key, "variational"), problem.config.variational
    with progress.show() as show:
        return variational(settings, show, reparametrisation=reparametrisation)(key, problem.target)


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
) -> Fit:
    """Hamiltonian Monte Carlo, `num_samples` draws of every chain."""
    with progress.show() as show:
        method = inference.hmc(
            num_chains=num_chains,
            num_samples=num_samples,
            num_burnin=settings.num_burnin,
            thinning=thinning,
            step_size=settings.step_size,
            num_steps=settings.num_steps,
            initial=initial,
            progress=show,
            sink=sink,
        )
        return method(key, target)


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
    objective: str = "map",
    initial: Samples | None = None,
    members_per_block: int | None = None,
    snapshots: tuple[int, ...] = (),
    sink: Any = None,
) -> Fit:
    """Networks trained side by side."""
    with progress.show() as show:
        method = inference.ensemble(
            num_members=num_members,
            epochs=settings.num_epochs,
            batch_size=settings.batch_size,
            optimizer=optimizer,
            learning_rate=settings.learning_rate,
            momentum=momentum,
            schedule=schedule,
            milestones=milestones,
            objective=objective,
            initial=initial,
            members_per_block=members_per_block,
            snapshots=snapshots,
            progress=show,
            sink=sink,
        )
        return method(key, target)


def variational(settings: Variational, show: Any, *, reparametrisation: str = "local") -> Any:
    """Mean-field variational inference."""
    return inference.variational(
        epochs=settings.num_epochs,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        initial_std=settings.initial_std,
        reparametrisation=reparametrisation,
        progress=show,
    )


def around_modes(key: Key, target: Target, name: str, config: PosteriorQuality, modes: Samples) -> Any:
    """The posterior of one of `MODE_METHODS`: an equal mixture over the modes."""
    num_draws = config.num_samples // tree.num_samples(modes)
    with progress.show() as show:
        method = MODE_METHODS[name](config, num_draws, show)
        return inference.multimode(method, members=modes)(key, target).posterior


def recipe(problem: Problem, epochs: int, learning_rate: float, optimizer: str = "adam") -> Recipe:
    """How a stage of weight sharing trains: with the batch size and schedule of its `pretraining`."""
    settings = problem.config.pretraining
    batch_size = min(settings.batch_size, problem.target.num_data)
    return Recipe(epochs, batch_size, optimizer, learning_rate, schedule=settings.schedule)


def descent(optimizer: str, rate: Any, momentum: float) -> optax.GradientTransformation:
    """The optimiser of that name at a constant rate, which may be traced."""
    return OPTIMIZERS[optimizer](rate, Recipe(1, 1, optimizer, momentum=momentum))


def _dropout(config: PosteriorQuality, num_draws: int, show: Any) -> ModeMethod:
    return inference.dropout(
        rate=config.dropout.rate,
        masks_per_batch=config.dropout.masks_per_batch,
        epochs=config.dropout.num_epochs,
        batch_size=config.training.batch_size,
        learning_rate=config.dropout.learning_rate,
        progress=show,
    )


def _swag(config: PosteriorQuality, num_draws: int, show: Any) -> ModeMethod:
    return inference.swag(
        rank=config.swag.rank,
        epochs=config.swag.num_epochs,
        learning_rate=config.swag.learning_rate,
        pretrain_epochs=0,
        batch_size=config.training.batch_size,
        progress=show,
    )


def _laplace(config: PosteriorQuality, num_draws: int, show: Any) -> ModeMethod:
    return inference.laplace(
        structure=config.laplace.structure,
        leaves=None if config.laplace.leaves == "all" else config.laplace.leaves,
        pretrain_epochs=0,
        progress=show,
    )


def _sghmc(config: PosteriorQuality, num_draws: int, show: Any) -> ModeMethod:
    return inference.sgmcmc(
        num_samples=num_draws,
        step_size=config.sghmc.step_size,
        friction=config.sghmc.friction,
        num_burnin=config.sghmc.num_burnin,
        thinning=config.sghmc.thinning,
        batch_size=config.training.batch_size,
        progress=show,
    )


MODE_METHODS: dict[str, Callable[[PosteriorQuality, int, Any], ModeMethod]] = {
    "dropout": _dropout,
    "variational": lambda config, num_draws, show: variational(config.variational, show),
    "swag": _swag,
    "laplace": _laplace,
    "sghmc": _sghmc,
}
"""(config, draws for each mode, progress) -> method."""
