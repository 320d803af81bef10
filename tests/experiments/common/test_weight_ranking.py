"""Accuracy of networks of which only the best-ranked weights are left."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import weight_ranking
from experiments.common.problem import perceptron
from symbnn import compact, tree
from tests.experiments.cases import debug_config

KEY = jax.random.key(0)


def test_curves_are_the_accuracy_of_the_pruned_networks():
    """One sort for all levels gives what `compact.prune` gives level by level, ties broken alike."""
    case = perceptron(debug_config("pruning"))
    networks = jax.vmap(case.model.init)(jax.random.split(KEY, 2))
    scores = jax.tree.map(lambda leaf: jnp.round(jnp.abs(leaf), 1), networks)
    curves = weight_ranking.accuracy_curves(
        case.model.apply, networks, scores, weight_ranking.LEVELS, case.test.inputs, case.test.targets
    )
    for index in range(2):
        for level, found in zip(weight_ranking.LEVELS, curves[index], strict=True):
            pruned = compact.prune(tree.take(networks, index), tree.take(scores, index), float(level))
            outputs = case.model.apply(pruned, case.test.inputs)
            expected = jnp.mean(jnp.argmax(outputs, axis=-1) == case.test.targets)
            np.testing.assert_allclose(found, expected, atol=1e-6)
