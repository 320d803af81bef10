"""A training in a process of its own, which tests may kill: `python -m <this module> A B`.

Its network has convolutions, batch statistics and dropout, so on a CPU the host steps, and every part of the
state counts: weights, statistics, momenta, schedule, keys, losses, snapshots.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from symbnn import density, inference, io, models

EPOCHS = 8
KEY = jax.random.key(4)


class Convolved(nn.Module):
    """A convolution, batch statistics and dropout."""

    @nn.compact
    def __call__(self, x, train=False):
        x = nn.Conv(2, (3, 3), use_bias=False, name="conv")(x)
        x = nn.relu(nn.BatchNorm(use_running_average=not train, name="norm")(x))
        x = nn.Dropout(0.3, deterministic=not train)(x.reshape(len(x), -1))
        return nn.Dense(3, name="out")(x)


def problem() -> density.Target:
    inputs = jax.random.normal(KEY, (24, 5, 5, 1))
    return density.target(
        models.from_module(Convolved(), (5, 5, 1)), density.Batch(inputs, jnp.arange(24) % 3)
    )


def run(checkpoint, progress=None) -> inference.Fit:
    """Two members, with a schedule and snapshots."""
    rate = optax.cosine_decay_schedule(0.05, EPOCHS * 3)
    method = inference.ensemble(
        num_members=2,
        epochs=EPOCHS,
        batch_size=8,
        optimizer=optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(rate, momentum=0.9)),
        snapshots=(3, 8),
        progress=progress,
        checkpoint=checkpoint,
    )
    return method(KEY, problem())


if __name__ == "__main__":

    def tell(report):
        print(report.done, flush=True)
        time.sleep(0.2)

    fit = run(io.TrainingStore(sys.argv[1]), tell)
    np.savez(sys.argv[2], *jax.tree.leaves(tuple(fit)))
