"""SWAG: a Gaussian through the weights that stochastic gradient descent visits around a mode.

From a trained network, SGD goes on with a constant learning rate and after every epoch t the weights w_t are
collected (Maddox et al. 2019, algorithm 1):

    mean        w̄ = average of w_t
    diagonal    Σ_diag = average of (w_t - w̄)²
    low rank    D = the last K deviations w_t - w̄_t, w̄_t the average so far

    w = w̄ + Σ_diag^(1/2) ε / √2 + D z / √(2 (K - 1))

For a net with batch normalisation the running statistics are recomputed at the mean and then known; those
of a frozen one (`models.frozen`) stay as they are.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from symbnn import keys, tree
from symbnn.density import Batch, Target
from symbnn.inference.base import Checkpoint, Progress, check_count
from symbnn.inference.known import with_statistics
from symbnn.inference.multimode import ModeMethod
from symbnn.inference.progress import ShowProgress, reporting
from symbnn.inference.training.epochs import (
    Training,
    TrainingState,
    advance,
    fetch,
    initial_state,
    is_streamed,
)
from symbnn.inference.training.recipe import Recipe, pretraining, refuse_temperature, trainer
from symbnn.inference.training.resume import open_slot
from symbnn.inference.training.train import (
    NetworkLoss,
    pretrain,
    problem_of,
    warn_nonfinite,
)
from symbnn.models.base import is_frozen, split_statistics
from symbnn.posteriors import LowRankGaussian
from symbnn.types import Key, Params, Samples


class Moments(NamedTuple):
    """Mean and summed squared deviations of the collected weights; leaves have a mode axis."""

    mean: Params
    scatter: Params


MOMENTUM = optax.sgd(1e-2, momentum=0.9)
"""The default optimiser of the collecting phase: its learning rate is large enough to move about the mode."""

STATISTICS_STEPS = 100
"""Minibatches after which running statistics are new: at momentum 0.9 nothing is left of the old ones."""


@trainer
def swag(
    *,
    rank: int = 20,
    epochs: int = 40,
    steps_per_epoch: int | None = None,
    optimizer: optax.GradientTransformation | None = None,
    pretrain_epochs: int = 50,
    pretrain_optimizer: optax.GradientTransformation | None = None,
    batch_size: int = 100,
    initial: Params | None = None,
    progress: ShowProgress = "auto",
    checkpoint: Checkpoint | None = None,
) -> ModeMethod:
    """A `LowRankGaussian` with diagonal, from the networks after every epoch of a collecting phase.

    Args:
        rank: Deviations that are kept, at most `epochs`.
        epochs: Passes over the data in the collecting phase, one network each.
        steps_per_epoch: Minibatches from one network to the next, if fewer than a pass over the data.
        pretrain_epochs: Passes over the data before it; with 0 the start is taken for a trained network.
        pretrain_optimizer: Of the phase before it; None is `optax.adam(1e-3)`.
        (settings of all trainings)

    Diagnostics: `loss` (epochs,) of the collecting phase, `pretraining_loss`, `num_nonfinite`: steps with a
    NaN or infinite loss.
    """
    recipe = Recipe(epochs, batch_size, MOMENTUM if optimizer is None else optimizer, steps_per_epoch)
    warmup = pretraining(pretrain_epochs, batch_size, pretrain_optimizer)
    check_count("rank", rank, least=2)
    if rank > epochs:
        raise ValueError(
            f"rank must be at most epochs, as one network is collected per epoch; got {rank} > {epochs}"
        )

    def fit_modes(mode_keys: Key, target: Target, starts: Samples) -> tuple[Any, dict[str, Any]]:
        recipe.check_data(problem_of(target).num_data)
        refuse_temperature("swag", target.temperature)
        kept = {"progress": progress, "checkpoint": checkpoint, "slot": "swag-pretraining"}
        modes, before = pretrain(mode_keys, target, starts, warmup, **kept)
        diagnostics = {"pretraining_loss": before["loss"]} if before else {}
        posterior, after = _collect(mode_keys, target, modes, recipe, rank, progress, checkpoint)
        warn_nonfinite("swag", after["num_nonfinite"])
        return posterior, diagnostics | after

    return ModeMethod(fit_modes, initial)


class _Course(NamedTuple):
    """How far the collecting phase has come; deviations and losses have axes (mode, epoch, ...)."""

    state: TrainingState
    moments: Moments
    deviations: Params
    losses: Array


def _collect(
    mode_keys: Key,
    target: Target,
    modes: Samples,
    recipe: Recipe,
    rank: int,
    progress: ShowProgress,
    checkpoint: Checkpoint | None,
) -> tuple[Any, dict[str, Any]]:
    """Go on with constant learning rate and fit the Gaussian to what is visited."""
    loss = NetworkLoss(problem_of(target), with_prior=True)
    key_collect = jax.vmap(lambda key: keys.named(key, "swag"))(mode_keys)
    weights, statistics = split_statistics(modes)
    state = initial_state(recipe, weights, statistics)
    training = Training(loss, recipe, key_collect, target.data)
    slot = open_slot(checkpoint, "swag", training, state, rank=rank)
    moments = Moments(*(jax.tree.map(jnp.zeros_like, weights) for _ in range(2)))
    none_yet = jax.tree.map(lambda leaf: leaf[:, None][:, :0], weights)
    course = slot.restore(_Course(state, moments, none_yet, jnp.zeros((tree.num_samples(weights), 0))))
    with reporting(progress) as tell:
        for epoch in range(course.losses.shape[1], recipe.epochs):
            course = _next(training, course, epoch, rank)
            slot.keep(epoch + 1, course)
            if tell is not None:
                loss_now = float(jnp.mean(course.losses[:, -1]))
                tell(Progress("swag", epoch + 1, recipe.epochs, {"loss": loss_now}))
    if statistics and not is_frozen(target.model):
        statistics_at = _streamed_statistics_at if is_streamed(target.data) else _statistics_at
        statistics = statistics_at(
            loss, recipe.batch_size, key_collect, course.moments.mean, course.state.statistics, target.data
        )
    gaussians = _gaussians(course.moments, course.deviations, recipe.epochs)
    found = {"loss": course.losses, "num_nonfinite": course.state.num_nonfinite}
    return with_statistics(gaussians, statistics), found


def _next(training: Training, course: _Course, epoch: int, rank: int) -> _Course:
    """One more epoch of the collecting phase."""
    state, value = advance(training, 1, course.state, epoch)
    moments, deviation = _update(course.moments, state.weights, epoch)
    deviations = jax.tree.map(
        lambda kept, new: jnp.concatenate([kept, new[:, None]], axis=1)[:, -rank:],
        course.deviations,
        deviation,
    )
    return _Course(state, moments, deviations, jnp.concatenate([course.losses, value], axis=1))


@jax.jit
def _update(moments: Moments, weights: Params, count: Any) -> tuple[Moments, Params]:
    """Moments of `count + 1` collections by Welford's recursion, and the newest deviation from the mean."""
    mean = jax.tree.map(lambda old, new: old + (new - old) / (count + 1), moments.mean, weights)
    scatter = jax.tree.map(
        lambda total, old, new, now: total + (new - old) * (new - now),
        moments.scatter,
        moments.mean,
        weights,
        mean,
    )
    return Moments(mean, scatter), jax.tree.map(jnp.subtract, weights, mean)


def _gaussians(moments: Moments, deviations: Params, num_collected: int) -> LowRankGaussian:
    """One Gaussian per mode, stacked."""
    scale = (2.0 * (jax.tree.leaves(deviations)[0].shape[1] - 1)) ** -0.5
    factors = jax.tree.map(lambda leaf: scale * leaf, deviations)
    std = jax.tree.map(lambda scatter: jnp.sqrt(0.5 * scatter / num_collected), moments.scatter)
    return jax.vmap(LowRankGaussian)(moments.mean, factors, std)


@functools.partial(jax.jit, static_argnames=("loss", "batch_size"))
def _statistics_at(
    loss: NetworkLoss, batch_size: int, mode_keys: Key, weights: Params, statistics: Params, data: Batch
) -> Params:
    """Running statistics after enough training-mode passes with these weights to forget those before."""
    num_data = data.inputs.shape[0]

    def mode(key: Key, weights: Params, statistics: Params) -> Params:
        def step(statistics: Params, step_key: Key) -> tuple[Params, None]:
            indices = jax.random.randint(step_key, (batch_size,), 0, num_data)
            return loss(weights, statistics, fetch(data, indices), step_key)[1], None

        step_keys = jax.random.split(keys.named(key, "statistics"), STATISTICS_STEPS)
        return jax.lax.scan(step, statistics, step_keys)[0]

    return jax.vmap(mode)(mode_keys, weights, statistics)


def _streamed_statistics_at(
    loss: NetworkLoss, batch_size: int, mode_keys: Key, weights: Params, statistics: Params, data: Batch
) -> Params:
    """The same for inputs on disk, from which the host fetches every batch."""
    split = functools.partial(jax.random.split, num=STATISTICS_STEPS)
    step_keys = jax.vmap(lambda key: split(keys.named(key, "statistics")))(mode_keys)
    draw = jax.vmap(lambda key: jax.random.randint(key, (batch_size,), 0, data.inputs.shape[0]))
    for step in range(STATISTICS_STEPS):
        batch = fetch(data, np.asarray(draw(step_keys[:, step])))
        statistics = _pass(loss, weights, statistics, batch, step_keys[:, step])
    return statistics


@functools.partial(jax.jit, static_argnames="loss")
def _pass(loss: NetworkLoss, weights: Params, statistics: Params, batch: Batch, step_keys: Key) -> Params:
    return jax.vmap(loss)(weights, statistics, batch, step_keys)[1]
