"""What the study of aligned diagnostics measures on relabelled chains."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.aligned_diagnostics import study
from experiments.common.problem import perceptron
from symbnn import diagnostics, symmetry, tree
from tests.experiments.cases import debug_config

KEY = jax.random.key(0)


def test_labels_kept_from_draw_to_draw():
    """Two chains of three draws: one keeps its labels, the other swaps two of four units once."""
    same, swapped = [0, 1, 2, 3], [1, 0, 2, 3]
    permutations = {"hidden": jnp.array([same, same, same, same, swapped, swapped])}
    np.testing.assert_allclose(study.labels_kept(permutations, 2), (4 * 4 - 2) / 16)


def test_random_labels_leave_predictions_alone():
    problem = perceptron(debug_config("aligned_diagnostics"))
    samples = jax.vmap(problem.model.init)(jax.random.split(KEY, 5))
    moved, permutations = diagnostics.relabelled(problem.model.spec, samples, KEY)
    counts = symmetry.number_of_transpositions(permutations["hidden"])
    assert counts.max() > 0
    for index in range(5):
        np.testing.assert_allclose(
            problem.model.apply(tree.take(moved, index), problem.inputs),
            problem.model.apply(tree.take(samples, index), problem.inputs),
            atol=1e-5,
        )


@pytest.mark.parametrize(("function", "control", "is_told"), [(1.5, 1.0, True), (1.0, 1.2, False)])
def test_random_labels_are_held_against_alignment_only_where_they_look_better(function, control, is_told):
    spaces = dict.fromkeys(study.ALIGNED, np.array([1.3])) | {study.RAW: np.array([1.6])}
    said = study.findings(spaces | {study.FUNCTION: np.array([function]), study.CONTROL: np.array([control])})
    assert ("is no evidence of convergence" in said[-1]) == is_told
    assert ("have not converged" in said[0]) == (function > 1.01)
