"""Networks trained side by side, matched to one another, and judged along the line between them.

What the studies of loss barriers and of transpositions share.
"""

from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from configs.parts import Data, Network
from configs.training import Training
from experiments.common import problem as problems
from experiments.common.methods import optimizer
from experiments.harness import progress
from symbnn import data, density, evaluate, inference, models
from symbnn.types import Key, Params, Samples

# Pairs judged at once: enough to fill a device, little enough for its memory.
PAIRS_TOGETHER = 8


class Settings(Protocol):
    """What a study's config must hold."""

    data: Data
    model: Network
    training: Training
    seed: int


class Problem(NamedTuple):
    """Data, network and the key that everything random derives from."""

    key: Key
    data: data.Dataset
    model: models.Model
    test: density.Batch
    """What losses and errors are measured on."""


def load(config: Any) -> Problem:
    """The problem of a config."""
    settings: Settings = config
    loaded, num_classes = problems.labelled(settings.data, seed=settings.seed, flatten=True)
    model = models.mlp(
        loaded.input_shape,
        num_classes,
        hidden=settings.model.hidden,
        activation=settings.model.activation,
    )
    test = density.Batch(jnp.asarray(loaded.test.inputs), jnp.asarray(loaded.test.targets))
    return Problem(jax.random.key(settings.seed), loaded, model, test)


def describe(problem: Problem, training: Training) -> str:
    """A sentence about data, network and training."""
    hidden = [group.size for group in problem.model.spec.groups]
    sizes = "-".join(map(str, (*problem.data.input_shape, *hidden, problem.data.num_classes)))
    return (
        f"{problem.data.name}: {len(problem.data.train.targets)} training images; losses and errors on the "
        f"{len(problem.test.targets)} test images. Network {sizes}, {training.num_epochs} epochs of "
        f"{training.optimizer} with learning rate {training.learning_rate:g} and minibatches of "
        f"{training.batch_size}, no prior; every network has its own shuffle of the data."
    )


def train(
    problem: Problem, training: Training, key: Key, starts: Samples, *, epochs: tuple[int, ...] = ()
) -> tuple[Samples, Samples | None]:
    """All networks trained from their starts in one program: at the end, and after `epochs` if there are any.

    Leaves of the second have axes (network, epoch, ...).
    """
    with progress.show() as show:
        method = inference.ensemble(
            num_members=len(jax.tree.leaves(starts)[0]),
            epochs=training.num_epochs,
            batch_size=training.batch_size,
            optimizer=optimizer(training, 1),
            objective="mle",
            initial=starts,
            members_per_block=training.members_per_block,
            snapshots=epochs,
            progress=show,
        )
        fit = method(key, density.target(problem.model, problem.data.train))
    return fit.posterior.samples, fit.diagnostics.get("snapshots")


def barriers(problem: Problem, first: Samples, second: Samples, *, points: int) -> evaluate.Barrier:
    """Loss and error between each network of `first` and that of `second` at the same place."""
    return _barriers(problem.model.apply, points, first, second, problem.test)


@partial(jax.jit, static_argnums=(0, 1))
def _barriers(
    apply: Any, points: int, first: Samples, second: Samples, batch: density.Batch
) -> evaluate.Barrier:
    return jax.lax.map(
        lambda pair: evaluate.barrier(apply, pair[0], pair[1], batch, points=points),
        (first, second),
        batch_size=PAIRS_TOGETHER,
    )


@jax.jit
def squared_distances(first: Params, second: Samples) -> jax.Array:
    """‖a − b‖² over all weights between the network `first` and each of `second`."""
    parts = jax.tree.map(lambda a, b: jnp.sum(jnp.square(a - b), axis=tuple(range(1, b.ndim))), first, second)
    return jnp.sum(jnp.stack(jax.tree.leaves(parts)), axis=0)
