"""The stages that studies share: data and target, optimisers, HMC, ensemble, VI, alignment."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import optax

from configs.parts import Compact, Data, Ensemble, Network, Sampler, Variational
from experiments.common import problem as problems
from experiments.harness import progress
from symbnn import density, inference, io, keys, models, symmetry
from symbnn.types import Samples

OPTIMIZERS: dict[str, Callable[[Any, float], optax.GradientTransformation]] = {
    "sgd": lambda rate, momentum: optax.sgd(rate),
    "momentum": lambda rate, momentum: optax.sgd(rate, momentum=momentum),
    "nesterov": lambda rate, momentum: optax.sgd(rate, momentum=momentum, nesterov=True),
    "adam": lambda rate, momentum: optax.adam(rate),
}
"""(learning rate or schedule, momentum) -> optimiser."""


def optimizer(settings: Any, steps_per_epoch: int, **changes: Any) -> optax.GradientTransformation:
    """The optimiser that a config's `settings` describe, with `changes` to them: equal settings, one object.

    Read are `optimizer` (default `adam`), `learning_rate`, `momentum` (0.9), `schedule` (`constant`, `cosine`
    over `num_epochs`, or `step` with a tenth of the rate after each of `milestones`, in epochs).
    """

    def setting(name: str, default: Any = None) -> Any:
        return changes.get(name, getattr(settings, name, default))

    milestones = tuple(epoch * steps_per_epoch for epoch in setting("milestones", ()))
    return _optimizer(
        setting("optimizer", "adam"),
        setting("learning_rate"),
        setting("momentum", 0.9),
        setting("schedule", "constant"),
        setting("num_epochs") * steps_per_epoch,
        milestones,
    )


# Cached, because compiled training steps are known by the object.
@functools.cache
def _optimizer(
    name: str, rate: float, momentum: float, schedule: str, num_steps: int, milestones: tuple[int, ...]
) -> optax.GradientTransformation:
    schedules = {
        "constant": lambda: optax.constant_schedule(rate),
        "cosine": lambda: optax.cosine_decay_schedule(rate, num_steps),
        "step": lambda: optax.piecewise_constant_schedule(rate, dict.fromkeys(milestones, 0.1)),
    }
    return OPTIMIZERS[name](schedules[schedule](), momentum)


def steps_per_epoch(target: density.Target, batch_size: int) -> int:
    """Whole minibatches in the data, at least one."""
    return max(1, (target.num_data or 0) // batch_size)


class Settings(Protocol):
    """What a study's config must hold to use these stages."""

    data: Data
    model: Network
    inference: Sampler
    ensemble: Ensemble
    variational: Variational
    compact: Compact
    seed: int


class Problem:
    """What all stages share: data, network, target and the one key that everything random derives from."""

    def __init__(self, config: Any) -> None:
        self.config: Settings = config
        self.key = jax.random.key(config.seed)
        self.data, num_classes = problems.labelled(config.data, seed=config.seed, flatten=True)
        self.model = models.mlp(
            self.data.input_shape,
            num_classes,
            hidden=config.model.hidden,
            activation=config.model.activation,
        )
        self.target = density.target(
            self.model, self.data.train, prior=density.gaussian_prior(config.inference.prior_scale)
        )
        self.inputs = jnp.asarray(self.data.test.inputs)
        self.labels = jnp.asarray(self.data.test.targets)


def sample(problem: Problem, chunks: Path) -> dict[str, Any]:
    """HMC; a stopped run goes on from its chunks."""
    settings = problem.config.inference
    key = keys.named(problem.key, "hmc")
    starts = None
    if settings.start == "initialisation":
        starts = jax.vmap(problem.model.init)(keys.indexed(keys.named(key, "start"), 0, settings.num_chains))
    with progress.show() as show:
        method = inference.hmc(
            num_chains=settings.num_chains,
            num_samples=settings.num_samples,
            num_burnin=settings.num_burnin,
            step_size=settings.step_size,
            num_steps=settings.num_steps,
            initial=starts,
            progress=show,
            sink=io.ChunkStore(chunks),
        )
        fit = method(key, problem.target)
    return {"samples": fit.posterior.samples, "diagnostics": fit.diagnostics}


def train_ensemble(problem: Problem) -> dict[str, Any]:
    """MAP networks from independent starts."""
    settings = problem.config.ensemble
    with progress.show() as show:
        method = inference.ensemble(
            num_members=settings.num_members,
            epochs=settings.num_epochs,
            batch_size=settings.batch_size,
            optimizer=optimizer(settings, steps_per_epoch(problem.target, settings.batch_size)),
            progress=show,
        )
        fit = method(keys.named(problem.key, "ensemble"), problem.target)
    return {"samples": fit.posterior.samples}


def fit_variational(problem: Problem, *, reparametrisation: str = "local") -> dict[str, Any]:
    """Mean-field Gaussian."""
    settings = problem.config.variational
    with progress.show() as show:
        method = inference.variational(
            epochs=settings.num_epochs,
            batch_size=settings.batch_size,
            optimizer=optimizer(settings, steps_per_epoch(problem.target, settings.batch_size)),
            initial_std=settings.initial_std,
            reparametrisation=reparametrisation,
            progress=show,
        )
        fit = method(keys.named(problem.key, "variational"), problem.target)
    return {"mean": fit.posterior.mean, "std": fit.posterior.std}


def align(problem: Problem, samples: Samples) -> symmetry.Aligned:
    """Aligned to the first of the samples, as the config says."""
    return problems.align(problem, samples, reference=0, method=problem.config.compact.matching)
