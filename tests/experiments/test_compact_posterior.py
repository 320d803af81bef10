"""What the studies of the compact posterior decide and measure, apart from any sampling."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import STUDIES
from configs.parts import Data, Refinement
from experiments.aligned_diagnostics import study
from experiments.common import methods
from experiments.common import problem as problems
from experiments.compact_posterior import refined
from experiments.compact_posterior import study as compact_posterior
from experiments.compact_trained import study as compact_trained
from symbnn import data, diagnostics, symmetry, tree
from symbnn.inference.epochs import scan_epochs

KEY = jax.random.key(0)


def test_the_recipe_is_the_nearest_in_function_space_of_those_near_in_weight_space():
    distances, divergences = np.array([0.03, 0.01, 0.02]), np.array([0.1, 0.9, 0.5])
    assert refined.choose(distances, divergences, 1.0) == 1
    assert refined.choose(distances, divergences, 0.8) == 2
    assert refined.choose(distances, divergences, 0.05) == 0


def debug_problem(**changes) -> methods.Problem:
    config = STUDIES["compact_posterior"].configs["debug"][1]
    return methods.Problem(dataclasses.replace(config, **changes))


def test_held_out_images_are_in_no_fit():
    problem = debug_problem()
    samples = jax.vmap(problem.model.init)(jax.random.split(KEY, 2))
    settings = Refinement(num_validation=50, batch_size=20)
    found = refined._split(problem, settings, samples)
    assert found.held_inputs.shape == (50, 64)
    assert found.inputs.shape == (*found.probs.shape[:1], 64) == (300, 64)
    fitted = {row.tobytes() for row in np.asarray(found.inputs[:150])}
    images = {row.tobytes() for row in np.asarray(problem.data.train.inputs)}
    held = {row.tobytes() for row in np.asarray(found.held_inputs)}
    assert fitted | held == images
    assert not fitted & held


def test_too_many_held_out_images_are_named():
    problem = debug_problem()
    samples = tree.stack([problem.model.init(KEY)])
    with pytest.raises(ValueError, match=r"at most 190 of 200 training images.*got 191"):
        refined._split(problem, Refinement(num_validation=191, batch_size=20), samples)


def test_images_are_averaged_down():
    problem = debug_problem(data=Data(num_train=200, num_test=50, image_side=4))
    whole = debug_problem().data.train.inputs.reshape(200, 4, 2, 4, 2)
    np.testing.assert_allclose(problem.data.train.inputs.reshape(200, 4, 4), whole.mean((2, 4)), rtol=1e-6)


def test_chains_start_where_the_config_says(monkeypatch, tmp_path):
    """At prior draws of unit size, or at untrained networks, which are smaller."""
    sizes = {}

    def factory(**settings):
        def method(key, target):
            starts = settings["initial"]
            sizes[starts is None] = settings
            return SimpleNamespace(posterior=SimpleNamespace(samples=starts), diagnostics={})

        return method

    monkeypatch.setattr(methods.inference, "hmc", factory)
    inference = STUDIES["compact_posterior"].configs["debug"][1].inference
    methods.sample(debug_problem(), tmp_path)
    assert sizes[True]["initial"] is None
    fresh = dataclasses.replace(inference, start="initialisation")
    networks = methods.sample(debug_problem(inference=fresh), tmp_path)["samples"]
    kernel = networks["hidden"]["kernel"]
    assert kernel.shape == (inference.num_chains, 64, 8)
    assert not np.array_equal(kernel[0], kernel[1])


def test_labels_kept_from_draw_to_draw():
    """Two chains of three draws: one keeps its labels, the other swaps two of four units once."""
    same, swapped = [0, 1, 2, 3], [1, 0, 2, 3]
    permutations = {"hidden": jnp.array([same, same, same, same, swapped, swapped])}
    np.testing.assert_allclose(study._labels_kept(permutations, 2), (4 * 4 - 2) / 16)


def test_random_labels_leave_predictions_alone():
    problem = debug_problem()
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


def full_size(*_, **__) -> data.Dataset:
    """As large as MNIST, without its files."""
    train, test = (
        data.Split(np.zeros((num, 784), np.float32), np.zeros(num, np.int32)) for num in (60_000, 10_000)
    )
    return data.Dataset("mnist", train, test, 10, (784,))


@pytest.mark.slow
def test_the_papers_ensemble_starts_and_stops(tmp_path, monkeypatch):
    """Full size up to the first compiled chunk of epochs: built, not run, and nothing half-done is kept."""
    monkeypatch.setattr(problems.data, "load", full_size)

    def build_and_stop(*arguments):
        assert "dot_general" in scan_epochs.lower(*arguments).as_text()
        raise KeyboardInterrupt

    monkeypatch.setattr("symbnn.inference.training.advance", build_and_stop)
    with pytest.raises(KeyboardInterrupt):
        compact_trained.run(STUDIES["compact_trained"].configs["mnist"][1], tmp_path)
    assert (tmp_path / "run.json").exists()
    assert not list(tmp_path.glob("stages/*"))


@pytest.mark.slow
def test_the_papers_chain_starts_and_stops(tmp_path, monkeypatch):
    """The gradient that HMC needs 500 times a transition, built at full size."""
    monkeypatch.setattr(problems.data, "load", full_size)

    def factory(**settings):
        assert (settings["num_samples"], settings["num_steps"], settings["step_size"]) == (10_000, 500, 1e-3)

        def method(key, target):
            lowered = jax.jit(jax.grad(target.log_density)).lower(tree.take(settings["initial"], 0))
            assert "60000" in lowered.as_text()
            raise KeyboardInterrupt

        return method

    monkeypatch.setattr(methods.inference, "hmc", factory)
    with pytest.raises(KeyboardInterrupt):
        compact_posterior.run(STUDIES["compact_posterior"].configs["mnist"][1], tmp_path)
    assert not list(tmp_path.glob("stages/*"))
