"""The optimiser of a config: one object for equal settings, and the one that the words mean."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.common.methods import optimizer

SETTINGS = {"optimizer": "momentum", "learning_rate": 0.1, "momentum": 0.5, "num_epochs": 4}


def test_equal_settings_are_one_object_so_that_nothing_compiles_again():
    first, again = (optimizer(SimpleNamespace(**SETTINGS), 3) for _ in range(2))
    assert first is again
    assert optimizer(SimpleNamespace(**SETTINGS), 3, learning_rate=0.2) is not first


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"optimizer": "sgd"}, optax.sgd(0.1)),
        ({}, optax.sgd(0.1, momentum=0.5)),
        ({"optimizer": "nesterov"}, optax.sgd(0.1, momentum=0.5, nesterov=True)),
        ({"optimizer": "adam", "schedule": "cosine"}, optax.adam(optax.cosine_decay_schedule(0.1, 12))),
        (
            {"schedule": "step", "milestones": (1, 2)},
            optax.sgd(optax.piecewise_constant_schedule(0.1, {3: 0.1, 6: 0.1}), momentum=0.5),
        ),
    ],
)
def test_words_mean_what_they_say(changes, expected):
    found, weights = optimizer(SimpleNamespace(**SETTINGS), 3, **changes), jnp.ones(2)
    states = [each.init(weights) for each in (found, expected)]
    for step in range(8):
        moves = []
        for index, each in enumerate((found, expected)):
            move, states[index] = each.update(jnp.array([1.0, -step]), states[index], weights)
            moves.append(move)
        np.testing.assert_array_equal(*moves)
