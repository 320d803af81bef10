"""Networks that did not converge are told by their training examples, counted, and missed by name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.parts import Convergence
from experiments.common import convergence
from experiments.common.problem import perceptron
from symbnn import evaluate, tree
from tests.experiments.cases import debug_config


@pytest.fixture(scope="module")
def problem():
    return perceptron(debug_config("compact_posterior"))


@pytest.fixture(scope="module")
def samples(problem):
    """Three networks without training; the last has lost all its weights."""
    found = jax.vmap(problem.model.init)(jax.random.split(jax.random.key(0), 3))
    return jax.tree.map(lambda leaf: leaf.at[2].set(0.0), found)


def test_accuracies_in_blocks_are_those_of_the_library(problem, samples, monkeypatch):
    monkeypatch.setattr(convergence, "BLOCK", 7)
    found = convergence.accuracies(problem.model.apply, samples, problem.inputs, problem.labels)
    for index in range(3):
        one = tree.take(samples, slice(index, index + 1))
        probs = evaluate.predict(problem.model.apply, one, problem.inputs)
        np.testing.assert_allclose(found[index], evaluate.accuracy(probs, problem.labels), rtol=1e-6)


def test_the_threshold_is_on_training_examples_and_zero_keeps_even_what_is_not_finite(problem, samples):
    broken = jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan), samples)
    assert convergence.converged(problem, broken, Convergence()).tolist() == [True] * 3
    labels = problem.target.data.targets
    share = np.mean(np.asarray(labels) == 0)
    # A network of zeros says class 0 to everything.
    above, below = (Convergence(least_accuracy=float(share) + step) for step in (1e-3, -1e-3))
    assert not convergence.converged(problem, samples, above)[2]
    assert convergence.converged(problem, samples, below)[2]


def test_too_few_are_an_error_with_its_remedy_and_enough_are_none():
    flags, settings = np.array([True, False, True]), Convergence(least_accuracy=0.5)
    convergence.require(flags, 2, settings, "train longer")
    with pytest.raises(
        ValueError, match=r"only 2 of 3 networks converged.*50 % .* 3 are needed; train longer"
    ):
        convergence.require(flags, 3, settings, "train longer")


def test_the_count_is_said_where_any_could_be_dropped():
    flags = np.array([True, False, True])
    assert convergence.words(flags, Convergence()) == []
    (said,) = convergence.words(flags, Convergence(least_accuracy=0.5))
    assert said.startswith("1 of 3 trained networks did not converge: they are right on less than 50 %")
    (said,) = convergence.words(np.ones(3, bool), Convergence(least_accuracy=0.5))
    assert said.startswith("All 3 trained networks converged: right on at least 50 %")
