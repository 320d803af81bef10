"""Mutual information of prediction and network, of all pairs of networks, inside and out of distribution."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.problem import Problem
from experiments.diversity.results import INSIDE
from symbnn import evaluate, tree
from symbnn.types import Samples


def outside_images(problem: Problem) -> dict[str, Any]:
    """Images out of distribution by the name of their source."""
    return {name: problem.outside(name) for name in problem.config.outside}


def compare(problem: Problem, samples: Samples, outside: dict[str, Any]) -> dict[str, Any]:
    """Accuracy of every network on test examples, and the information of every pair by source."""
    num = problem.config.num_paired
    first, second = map(jnp.asarray, np.triu_indices(num, 1))
    apply, chosen = problem.model.apply, tree.take(samples, slice(0, num))
    known = evaluate.predict(apply, samples, problem.inputs, members=True)
    information = {INSIDE: pairwise(known[:num], first, second)}
    for name, images in outside.items():
        predicted = evaluate.predict(apply, chosen, images, members=True)
        information[name] = pairwise(predicted, first, second)
    accuracies = jnp.mean(jnp.argmax(known, axis=-1) == problem.labels, axis=-1)
    return {"accuracies": accuracies, "information": information}


@jax.jit
def pairwise(probabilities: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
    """Mean over images of the information between networks `first[i]` and `second[i]`, for every i."""

    def one(pair: tuple[jax.Array, jax.Array]) -> jax.Array:
        both = jnp.stack([probabilities[pair[0]], probabilities[pair[1]]])
        return jnp.mean(evaluate.mutual_information_score(both))

    with evaluate.unchecked():
        return jax.lax.map(one, (first, second))
