"""Training many networks in one program: the loop under ensembles, variational inference, SWAG and dropout.

All members advance together, chunk of epochs by chunk (`training.epochs`). Every member has its own shuffle
of the data and its own noise, from a key that depends on its global index only; so a member is the same
network whichever members train beside it. The last, incomplete minibatch of a shuffle is left out.

Losses and recipes are hashable descriptions, static to jit: fitting the same network again compiles nothing.
"""

import contextlib
import logging
import math
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbnn import tree
from symbnn.density import Batch, Target, require_network
from symbnn.inference.base import Checkpoint, Progress, noting_compilation
from symbnn.inference.progress import ShowProgress, reporting
from symbnn.inference.training.epochs import (
    Loss,
    Training,
    TrainingState,
    advance,
    initial_state,
    steps_on_host,
)
from symbnn.inference.training.recipe import Recipe
from symbnn.inference.training.resume import open_slot
from symbnn.models import in_training
from symbnn.models.base import join_statistics, split_statistics
from symbnn.types import Key, Params, Samples

logger = logging.getLogger(__name__)


class Problem(NamedTuple):
    """The static half of a `Target`: what a compiled training step depends on besides arrays."""

    model: Any
    likelihood: Any
    prior: Any
    num_data: int
    temperature: float


class Trained(NamedTuple):
    """Weights and running statistics of the members, with the mean loss of every epoch."""

    weights: Params
    statistics: Params
    losses: Float[Array, "members epochs"]
    num_nonfinite: Array
    snapshots: tuple[Params, Params]
    """Weights and statistics after the epochs asked for; leaves have axes (member, snapshot, ...)."""

    def diagnostics(self) -> dict[str, Any]:
        """What every method that trains reports."""
        return {"loss": self.losses, "num_nonfinite": self.num_nonfinite}


class _Course(NamedTuple):
    """How far training has come: all that is needed to go on."""

    state: TrainingState
    losses: Array
    snapshots: tuple[Params, Params]


def problem_of(target: Target) -> Problem:
    """The static half of `target`; `ValueError` if it is not that of a network."""
    require_network(target)
    return Problem(target.model, target.likelihood, target.prior, target.num_data, target.temperature)


@dataclass(frozen=True)
class NetworkLoss:
    """Mean negative log-likelihood of a minibatch in training mode, minus log-prior / N if `with_prior`."""

    problem: Problem
    with_prior: bool

    def __call__(
        self, weights: Params, statistics: Params, batch: Batch, key: Key
    ) -> tuple[Float[Array, ""], Params]:
        """Loss per data point and the new running statistics."""
        model, likelihood, prior, num_data, _ = self.problem
        outputs, updated = in_training(model, join_statistics(weights, statistics), batch.inputs, key)
        loss = -jnp.mean(likelihood.log_prob(outputs, batch.targets))
        if self.with_prior:
            loss = loss - prior.log_prob(weights) / num_data
        return loss, split_statistics(updated)[1]


def train(
    loss: Loss,
    recipe: Recipe,
    member_keys: Key,
    weights: Params,
    statistics: Params,
    data: Batch,
    *,
    progress: ShowProgress = None,
    checkpoint: Checkpoint | None = None,
    slot: str | None = None,
    snapshots: tuple[int, ...] = (),
    stage: str = "training",
) -> Trained:
    """Train all members for `recipe.epochs`; leaves of `weights` and `statistics` have a member axis.

    `snapshots`: rising epochs after which the networks are kept as well. With a `checkpoint` the course is
    kept there, by default under the name of the `stage`, and a training that was stopped goes on from it.
    """
    recipe.check_data(len(data.targets))
    state = initial_state(recipe, weights, statistics)
    training = Training(loss, recipe, member_keys, data)
    kept_in = open_slot(checkpoint, slot or stage, training, state, snapshots=snapshots)
    none_yet = jax.tree.map(lambda leaf: leaf[:, None][:, :0], (state.weights, state.statistics))
    course = kept_in.restore(_Course(state, jnp.zeros((tree.num_samples(weights), 0)), none_yet))
    # Epochs on the host are slow ones, and one by one they come out the same.
    size = 1 if steps_on_host(training, state) else equal_part(recipe.epochs, *snapshots)
    if (resumed := course.losses.shape[1]) > 0:
        logger.info("%s: goes on after epoch %d of %d", stage, resumed, recipe.epochs)
    with reporting(progress) as tell:
        while (first := course.losses.shape[1]) < recipe.epochs:
            # Up to the next multiple of a chunk: the other loop may have stopped between two.
            end = first + size - first % size
            with noting_compilation(logger, stage) if first == resumed else contextlib.nullcontext():
                course = _next(training, course, end, snapshots)
            kept_in.keep(end, course)
            if tell is not None:
                tell(Progress(stage, end, recipe.epochs, _statistics(course)))
    state = course.state
    return Trained(state.weights, state.statistics, course.losses, state.num_nonfinite, course.snapshots)


def _next(training: Training, course: _Course, end: int, snapshots: tuple[int, ...]) -> _Course:
    """The course after epoch `end`."""
    first = course.losses.shape[1]
    state, chunk = advance(training, end - first, course.state, first)
    kept = course.snapshots
    if end in snapshots:
        reached = jax.tree.map(lambda leaf: leaf[:, None], (state.weights, state.statistics))
        kept = jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), kept, reached)
    return _Course(state, jnp.concatenate([course.losses, chunk], axis=1), kept)


def _statistics(course: _Course) -> dict[str, float]:
    bad = int(jnp.sum(course.state.num_nonfinite > 0))
    return {"loss": float(jnp.mean(course.losses[:, -1])), "members_with_nonfinite_loss": float(bad)}


def pretrain(
    mode_keys: Key, target: Target, starts: Samples, recipe: Recipe | None, **kept: Any
) -> tuple[Samples, dict[str, Array]]:
    """MAP training of every start, for methods that work around a mode; with its diagnostics.

    Without a recipe the starts are modes already. `kept`: `progress`, `checkpoint` and `slot` of `train`.
    """
    if recipe is None:
        return starts, {}
    loss = NetworkLoss(problem_of(target), with_prior=True)
    trained = train(
        loss, recipe, mode_keys, *split_statistics(starts), target.data, stage="pretraining", **kept
    )
    warn_nonfinite("pretraining", trained.num_nonfinite)
    return join_statistics(trained.weights, trained.statistics), trained.diagnostics()


def equal_part(total: int, *stops: int) -> int:
    """The largest chunk that gives at least twenty reports and ends at `total` and at every one of `stops`.

    Chunks of one size compile once.
    """
    common = math.gcd(total, *stops)
    return next(size for size in range(max(1, total // 20), 0, -1) if common % size == 0)


def warn_nonfinite(method: str, num_nonfinite: Array) -> None:
    """Tell the user how many members met a NaN or infinite loss; silent if none did."""
    bad = np.flatnonzero(np.asarray(num_nonfinite))
    if bad.size:
        warnings.warn(
            f"{method}: {bad.size} of {len(num_nonfinite)} members met a non-finite loss, members "
            f"{bad[:10].tolist()}; try an optimizer with a smaller learning rate",
            RuntimeWarning,
            stacklevel=3,
        )
