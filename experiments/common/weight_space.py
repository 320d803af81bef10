"""Networks trained side by side and judged along the line between them; distances of their weights."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from configs.parts import Training
from experiments.common import methods
from experiments.common.problem import Problem
from symbnn import density, evaluate, tree
from symbnn.types import Key, Params, Samples

# Pairs judged at once: enough to fill a device, little enough for its memory.
PAIRS_TOGETHER = 8


def describe(problem: Problem, training: Training) -> str:
    """A sentence about data, network and training."""
    return (
        f"{problem.data.name}: {problem.target.num_data} training examples; losses and errors are measured "
        f"on {len(problem.labels)} test examples. Network {problem.sizes}, {training.num_epochs} epochs of "
        f"{training.optimizer} with learning rate {training.learning_rate:g} and minibatches of "
        f"{training.batch_size}, no prior; every network has its own shuffle of the data."
    )


def train(
    problem: Problem, training: Training, key: Key, starts: Samples, *, epochs: tuple[int, ...] = ()
) -> tuple[Samples, Samples | None]:
    """All networks trained from their starts in one program: at the end, and after `epochs` if there are any.

    Leaves of the second have axes (network, epoch, ...).
    """
    fit = methods.ensemble(
        key,
        problem.target,
        training,
        num_members=tree.num_samples(starts),
        optimizer=training.optimizer,
        momentum=training.momentum,
        objective="mle",
        initial=starts,
        members_per_block=training.members_per_block,
        snapshots=epochs,
    )
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
