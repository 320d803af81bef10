"""Barriers between networks and distances of their weights."""

import functools

import jax
import numpy as np

from experiments.common import weight_space
from experiments.common.problem import Problem, perceptron
from symbnn import evaluate, tree
from tests.experiments.cases import debug_config

KEY = jax.random.key(0)


@functools.cache
def problem() -> Problem:
    """Digits and an untrained network."""
    return perceptron(debug_config("loss_barriers"))


def two_networks() -> tuple[dict, dict]:
    """Two starts, each with a leading axis of one."""
    starts = jax.jit(jax.vmap(problem().model.init))(jax.random.split(KEY, 2))
    return tree.take(starts, slice(0, 1)), tree.take(starts, slice(1, 2))


def test_the_excess_is_zero_at_both_ends_and_everywhere_between_equal_networks():
    first, second = two_networks()
    found = weight_space.barriers(problem(), first, second, points=5)
    for excess in (found.loss_excess, found.error_excess):
        np.testing.assert_allclose(excess[:, [0, -1]], 0.0, atol=1e-6)
    same = weight_space.barriers(problem(), first, first, points=5)
    np.testing.assert_allclose(same.loss_excess, 0.0, atol=1e-6)


def test_barriers_of_many_pairs_are_those_of_each():
    first, second = two_networks()
    both = weight_space.barriers(
        problem(), tree.concatenate([first, second]), tree.concatenate([second, second]), points=5
    )
    alone = evaluate.barrier(
        problem().model.apply, tree.take(first, 0), tree.take(second, 0), problem().test, points=5
    )
    np.testing.assert_allclose(both.loss[0], alone.loss, rtol=1e-5)
    np.testing.assert_allclose(both.loss_barrier[1], 0.0, atol=1e-6)
