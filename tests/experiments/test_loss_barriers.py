"""What the study of loss barriers computes, apart from any training."""

import dataclasses

import jax
import numpy as np
import pytest

from configs import STUDIES
from experiments.common import problem
from experiments.common.problem import perceptron
from experiments.loss_barriers import study
from symbnn import symmetry, tree
from tests.experiments.cases import debug_config, full_size, stop_before_training

KEY = jax.random.key(0)
DEBUG = debug_config("loss_barriers")


def test_each_network_is_matched_to_its_own_partner():
    """Partners that differ by a relabelling only come out equal, so no barrier is left."""
    case = perceptron(DEBUG)
    first = jax.vmap(case.model.init)(jax.random.split(KEY, 2))
    elements = [
        symmetry.random_element(case.model.spec, key, log_scale=0.0) for key in jax.random.split(KEY, 2)
    ]
    second = tree.stack([symmetry.act(case.model.spec, elements[i], tree.take(first, i)) for i in range(2)])
    config = dataclasses.replace(DEBUG, num_pairs=2)
    # By weights: activations do not tell units apart that are silent on every image.
    moved = study.match_pairs(config, case, first, second, "weights")
    jax.tree.map(np.testing.assert_array_equal, moved, first)


@pytest.mark.parametrize("epochs", [(2, 1), (1, 1), (1, 3)])
def test_epochs_that_do_not_rise_or_come_too_late_are_refused(epochs, tmp_path):
    config = dataclasses.replace(DEBUG, epochs=epochs)
    with pytest.raises(ValueError, match=r"--epochs must rise and end by --training\.num-epochs 2"):
        study.run(config, tmp_path)


@pytest.mark.slow
def test_the_papers_settings_start_and_stop(tmp_path, monkeypatch):
    """Full size up to the first compiled chunk of epochs: built, not run, and nothing half-done is kept."""
    monkeypatch.setattr(problem.data, "load", full_size)
    stop_before_training(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        study.run(STUDIES["loss_barriers"].configs["mnist"][1], tmp_path)
    assert (tmp_path / "run.json").exists()
    assert not list(tmp_path.glob("stages/*"))
