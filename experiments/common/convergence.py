"""Which trained networks converged: those that are right on enough of their training examples.

A network of a few units may lose one for good in its first steps, or never leave the mean of all labels. Such
runs are no samples of what a study asks about: they are counted, and left out of its numbers.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs.parts import Convergence
from experiments.common.problem import Problem
from symbnn import tree
from symbnn.types import Samples

# Of so many examples a share is known to half a percent.
MOST_EXAMPLES = 10_000
# At a time, which bounds memory.
BLOCK = 500


def converged(problem: Problem, samples: Samples, settings: Convergence) -> np.ndarray:
    """Whether every one of the networks did; nothing is computed where all are kept."""
    num = tree.num_samples(samples)
    if settings.least_accuracy == 0:
        return np.ones(num, bool)
    inputs, labels = (jnp.asarray(part[:MOST_EXAMPLES]) for part in problem.target.data)
    return np.asarray(accuracies(problem.model.apply, samples, inputs, labels)) >= settings.least_accuracy


@partial(jax.jit, static_argnums=0)
def accuracies(apply: Any, samples: Samples, inputs: jax.Array, labels: jax.Array) -> jax.Array:
    """Share of the inputs that every network is right on, one network and one block of inputs at a time."""

    def one(params: Any) -> jax.Array:
        outputs = jax.lax.map(lambda x: apply(params, x[None])[0], inputs, batch_size=BLOCK)
        return jnp.mean(outputs.argmax(-1) == labels)

    return jax.lax.map(one, samples)


def require(is_converged: np.ndarray, needed: int, settings: Convergence, remedy: str) -> None:
    """`ValueError` with a `remedy` unless as many networks converged as are `needed`."""
    found, num = int(np.sum(is_converged)), len(is_converged)
    if found < needed:
        raise ValueError(
            f"only {found} of {num} networks converged, that is, are right on at least "
            f"{100 * settings.least_accuracy:g} % of the training examples, but {needed} are needed; {remedy}"
        )


def words(is_converged: np.ndarray, settings: Convergence) -> list[str]:
    """A sentence with the count; none where all networks are kept."""
    if settings.least_accuracy == 0:
        return []
    lost, num = int(np.sum(~np.asarray(is_converged, bool))), len(is_converged)
    if not lost:
        share = f"{100 * settings.least_accuracy:g} %"
        return [f"All {num} trained networks converged: right on at least {share} of the training examples."]
    return [
        f"{lost} of {num} trained networks did not converge: they are right on less than "
        f"{100 * settings.least_accuracy:g} % of the training examples, and left out of all numbers here."
    ]
