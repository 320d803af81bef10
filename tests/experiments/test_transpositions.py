"""What the study of transpositions computes, apart from any training."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import STUDIES
from experiments.common import problem, weight_space
from experiments.common.problem import Problem, load
from experiments.transpositions import study
from symbnn import symmetry
from tests.experiments.cases import debug_config, full_size, stop_before_training

KEY = jax.random.key(0)
DEBUG = debug_config("transpositions")


def untrained(*hidden: int) -> Problem:
    """Digits and a network of these hidden layers."""
    return load(DEBUG, hidden=hidden)


@pytest.mark.parametrize("method", ["weights", "activations"])
def test_as_many_transpositions_are_found_as_were_put_in(method):
    """Also where a layer is swapped as far as it goes, and the copies are the same functions."""
    case = untrained(12)
    network = case.model.init(KEY)
    counts = study.swap_counts(case.model.spec, 6)
    assert counts["hidden"].tolist() == [1, 3, 5, 7, 9, 11]
    copies = study.swapped_copies(case.model.spec, KEY, network, counts)
    aligned = case.align(copies, reference=network, method=method)
    np.testing.assert_array_equal(symmetry.number_of_transpositions(aligned.elements), counts["hidden"])
    np.testing.assert_array_equal(weight_space.squared_distances(network, aligned.samples), 0.0)
    assert np.all(np.asarray(weight_space.squared_distances(network, copies)) > 0)
    outputs = jax.vmap(lambda params: case.model.apply(params, case.test.inputs))(copies)
    expected = case.model.apply(network, case.test.inputs)
    np.testing.assert_allclose(outputs, jnp.broadcast_to(expected, outputs.shape), atol=1e-6)


@pytest.mark.slow
def test_several_layers_share_the_transpositions():
    case = untrained(6, 4)
    network = case.model.init(KEY)
    counts = study.swap_counts(case.model.spec, 3)
    assert {name: values.tolist() for name, values in counts.items()} == {
        "hidden0": [1, 3, 5],
        "hidden1": [1, 2, 3],
    }
    copies = study.swapped_copies(case.model.spec, KEY, network, counts)
    aligned = symmetry.align(case.model.spec, copies, reference=network)
    np.testing.assert_array_equal(symmetry.number_of_transpositions(aligned.elements), [2, 5, 8])


def test_a_layer_of_one_unit_has_nothing_to_swap(tmp_path):
    narrow = dataclasses.replace(DEBUG, model=dataclasses.replace(DEBUG.model, hidden=(8, 1)))
    with pytest.raises(ValueError, match=r"two units a layer to swap, got \(8, 1\)"):
        study.run(narrow, tmp_path)


def test_paths_spread_over_all_values_and_repeat_none():
    for values, paths in ((16, 5), (3, 5), (2, 1)):
        chosen = study.path_values(dataclasses.replace(DEBUG, num_values=values, num_paths=paths))
        assert len(set(chosen.tolist())) == len(chosen) == min(values, paths)
        assert set(chosen.tolist()) <= set(range(values))


@pytest.mark.slow
def test_the_papers_settings_start_and_stop(tmp_path, monkeypatch):
    """Full size up to the first compiled chunk of epochs: built, not run, and nothing half-done is kept."""
    monkeypatch.setattr(problem.data, "load", full_size)
    stop_before_training(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        study.run(STUDIES["transpositions"].configs["mnist"][1], tmp_path)
    assert (tmp_path / "run.json").exists()
    assert not list(tmp_path.glob("stages/*"))
