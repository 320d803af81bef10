"""The law of the imbalance: its formula, and the programs that measure it."""

import jax
import numpy as np
import pytest

from configs.scaling_symmetry import Law
from experiments.scaling_symmetry import law
from symbnn import density, models

LAW = Law(learning_rates=(0.05,), weight_decays=(0.03, 0.1), num_networks=2, num_steps=200, num_images=16)


@pytest.fixture(scope="module")
def problem():
    inputs = jax.random.normal(jax.random.key(1), (16, 3))
    labels = (inputs[:, 0] > 0).astype(int)
    return models.mlp((3,), 2, hidden=(4,)), density.Batch(inputs, labels)


def swept(problem, batch_size=16):
    return law.sweep(jax.random.key(0), *problem, LAW, optimizer="sgd", batch_size=batch_size)


def test_full_batches_follow_the_law(problem):
    expected = law.left_by_law(np.array(LAW.weight_decays), 0.05, LAW.num_steps)
    np.testing.assert_allclose(swept(problem), np.broadcast_to(expected[:, None], (1, 2, 2)), rtol=0.1)


@pytest.mark.parametrize("batch_size", [16, 4])
def test_side_by_side_and_one_after_the_other_train_the_same(problem, monkeypatch, batch_size):
    together = swept(problem, batch_size)
    monkeypatch.setattr(law, "has_convolution", lambda program: True)
    law._train.clear_cache()
    apart = swept(problem, batch_size)
    law._train.clear_cache()
    np.testing.assert_allclose(apart, together, rtol=1e-4)
