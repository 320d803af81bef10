"""The optimiser of a config: one object for equal settings, and the one that the words mean."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from configs.scaling_symmetry import Networks
from experiments.common import optimizers

SETTINGS = {"name": "momentum", "learning_rate": 0.1, "momentum": 0.5}


def test_equal_settings_are_one_object_so_that_nothing_compiles_again():
    first, again = (optimizers.create(**SETTINGS) for _ in range(2))
    assert first is again
    assert optimizers.create(**(SETTINGS | {"learning_rate": 0.2})) is not first


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"name": "sgd"}, optax.sgd(0.1)),
        ({}, optax.sgd(0.1, momentum=0.5)),
        ({"name": "nesterov"}, optax.sgd(0.1, momentum=0.5, nesterov=True)),
        (
            {"name": "adam", "schedule": "cosine", "num_steps": 12},
            optax.adam(optax.cosine_decay_schedule(0.1, 12)),
        ),
        (
            {"schedule": "step", "milestones": (3, 6)},
            optax.sgd(optax.piecewise_constant_schedule(0.1, {3: 0.1, 6: 0.1}), momentum=0.5),
        ),
        (
            {"schedule": "step", "milestones": (2,), "factor": 0.5},
            optax.sgd(optax.piecewise_constant_schedule(0.1, {2: 0.5}), momentum=0.5),
        ),
    ],
)
def test_words_mean_what_they_say(changes, expected):
    found, weights = optimizers.create(**(SETTINGS | changes)), jnp.ones(2)
    states = [each.init(weights) for each in (found, expected)]
    for step in range(8):
        moves = []
        for index, each in enumerate((found, expected)):
            move, states[index] = each.update(jnp.array([1.0, -step]), states[index], weights)
            moves.append(move)
        np.testing.assert_array_equal(*moves)


def test_a_sentence_names_the_epochs_at_which_the_rate_falls():
    assert optimizers.rate_words(Networks(learning_rate=0.04)) == "learning rate 0.04"
    stepped = Networks(learning_rate=0.04, milestones=(15, 30))
    assert optimizers.rate_words(stepped) == "learning rate 0.04, times 0.5 after epochs 15 and 30"
