"""What the study of the compact posterior decides, apart from any sampling."""

import jax
import numpy as np
import pytest

from configs import STUDIES
from configs.parts import Refinement
from experiments.common import methods, problem
from experiments.common.problem import perceptron
from experiments.compact_posterior import explorer, refined, study, weights
from symbnn import tree
from symbnn.posteriors import DiagonalGaussian
from tests.experiments.cases import debug_config, full_size

KEY = jax.random.key(0)


def test_the_recipe_is_the_nearest_in_function_space_of_those_near_in_weight_space():
    distances, divergences = np.array([0.03, 0.01, 0.02]), np.array([0.1, 0.9, 0.5])
    assert refined.choose(distances, divergences, 1.0) == 1
    assert refined.choose(distances, divergences, 0.8) == 2
    assert refined.choose(distances, divergences, 0.05) == 0


@pytest.mark.parametrize(("share", "is_made"), [(0.9, True), (0.1, False)])
def test_a_control_that_is_as_alike_is_told(share, is_made):
    """Means that are so much HMC's own: the ensemble's half, prior draws' `share`."""
    random = np.random.default_rng(0)
    centre = random.normal(size=1000)
    parts = {"HMC": 1.0, "ensemble": 0.5, "VI": 0.99, "prior draws": share}
    laws = {
        name: DiagonalGaussian({"w": part * centre + (1 - part) * random.normal(size=1000)}, {"w": centre**2})
        for name, part in parts.items()
    }
    said = weights.finding({"after": laws})
    assert ("no less than ensemble, so such a correlation is made by alignment." in said) == is_made
    assert "VI 1.000; prior draws, which learned nothing, " in said


def test_held_out_images_are_in_no_fit():
    problem = perceptron(debug_config("compact_posterior"))
    samples = jax.vmap(problem.model.init)(jax.random.split(KEY, 2))
    settings = Refinement(num_validation=50, batch_size=20)
    found = refined.split_images(problem, settings, samples)
    assert found.held_inputs.shape == (50, 64)
    assert found.inputs.shape == (*found.probs.shape[:1], 64) == (300, 64)
    fitted = {row.tobytes() for row in np.asarray(found.inputs[:150])}
    images = {row.tobytes() for row in np.asarray(problem.data.train.inputs)}
    held = {row.tobytes() for row in np.asarray(found.held_inputs)}
    assert fitted | held == images
    assert not fitted & held


def test_too_many_held_out_images_are_named():
    problem = perceptron(debug_config("compact_posterior"))
    samples = tree.stack([problem.model.init(KEY)])
    with pytest.raises(ValueError, match=r"at most 190 of 200 training examples.*got 191"):
        refined.split_images(problem, Refinement(num_validation=191, batch_size=20), samples)


@pytest.mark.slow
def test_the_papers_chain_starts_and_stops(tmp_path, monkeypatch):
    """The gradient that HMC needs 500 times a transition, built at full size."""
    monkeypatch.setattr(problem.data, "load", full_size)

    def factory(**settings):
        assert (settings["num_samples"], settings["num_steps"], settings["step_size"]) == (10_000, 500, 1e-3)

        def method(key, target):
            lowered = jax.jit(jax.grad(target.log_density)).lower(tree.take(settings["initial"], 0))
            assert "60000" in lowered.as_text()
            raise KeyboardInterrupt

        return method

    monkeypatch.setattr(methods.inference, "hmc", factory)
    with pytest.raises(KeyboardInterrupt):
        study.run(STUDIES["compact_posterior"].configs["mnist"][1], tmp_path)
    assert not list(tmp_path.glob("stages/*"))


def test_explored_inputs_are_the_most_uncertain_and_some_of_all_others():
    certainty = np.linspace(0.5, 1.0, 101)
    probs = np.stack([certainty, 1 - certainty], axis=1)
    found = explorer.shown_cases(probs)
    assert list(found[:10]) == list(range(10))
    assert list(found[10:12]) == [10, 20]
    assert found[-1] == 100
    assert len(set(found)) == len(found) == 20
    assert sorted(explorer.shown_cases(probs[:7])) == list(range(7))


@pytest.mark.parametrize(
    ("chains", "pairs"),
    [
        ([0, 0, 1, 1], [(0, 2), (0, 3), (1, 2), (1, 3)]),
        ([0, 0, 0], [(0, 1), (0, 2), (1, 2)]),
        ([0, 1], [(0, 1)]),
    ],
)
def test_explored_lines_join_different_chains_where_there_are_several(chains, pairs):
    assert [tuple(pair) for pair in explorer.shown_pairs(np.array(chains))] == pairs


def test_explored_draws_come_from_all_chains_alike():
    problem = perceptron(debug_config("compact_posterior"))
    samples = {"weight": np.zeros((1000, 3))}
    rows, chains = explorer.shown_draws(problem, samples)
    assert len(rows) == len(set(rows)) == 200
    assert list(np.bincount(chains)) == [100, 100]
    assert (rows // 500 == chains).all()
