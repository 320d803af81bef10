"""Posterior quality of networks that are given: the last layer, both versions of a method, the page."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.posterior_quality import CONFIGS, Network
from experiments.posterior_quality import findings, last_layer, modes, results, scores, sets, study, words
from symbnn import data, evaluate, inference, tree

DEBUG = CONFIGS["debug_modes"][1]
PUBLISHED = CONFIGS["cifar10_resnet20"][1]


@pytest.fixture(scope="module")
def problem():
    """A perceptron: what is tested of it does not depend on the kind of network."""
    return sets.load_problem(dataclasses.replace(DEBUG, network=Network(hidden=(6,))))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_compared": True}, "--published and --last-layer go with --no-is-compared"),
        ({"published": ("one.safetensors",)}, "--published names 1 ResNet-20s"),
        ({"network": Network(name="mlp")}, "--published names 4 ResNet-20s"),
        ({"num_single": 1}, "--num-single must be --num-modes 4"),
    ],
)
def test_modes_that_do_not_go_together_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        sets.load_problem(dataclasses.replace(PUBLISHED, **changes))


def test_files_that_are_not_there_are_named(tmp_path, monkeypatch):
    config = dataclasses.replace(PUBLISHED, data=dataclasses.replace(PUBLISHED.data, directory=str(tmp_path)))
    split = data.Split(np.zeros((4, 32, 32, 3), np.float32), np.zeros(4, np.int32))
    monkeypatch.setattr(data, "load", lambda name, **_: data.Dataset(name, split, split, 10, (32, 32, 3)))
    held = sets.load_problem(config)
    # Black is not zero for a network that was trained on scaled pixels.
    assert np.all(held.inputs < -1.5)
    with pytest.raises(ValueError, match=r"cifar10_resnet20_akamaster\.safetensors is not there"):
        modes.find_modes(held, None)


def test_the_last_layer_on_its_features_is_the_network(problem, monkeypatch):
    # Blocks for more than one device, of which the last is shorter.
    monkeypatch.setattr(last_layer, "BLOCK", 3)
    head = last_layer.find_head(problem)
    assert head == last_layer.Head("out/kernel", "out/bias")
    network = problem.model.init(jax.random.key(3))
    network["out"]["bias"] = jnp.arange(10.0)
    found = last_layer.features(problem, head, network, problem.inputs)
    hidden = np.maximum(problem.inputs @ network["hidden"]["kernel"] + network["hidden"]["bias"], 0)
    np.testing.assert_allclose(found, hidden, atol=1e-5)
    heads = tree.stack([head.of(network)])
    expected = evaluate.predict(problem.model.apply, tree.stack([network]), problem.inputs)
    np.testing.assert_allclose(last_layer.probabilities(heads, found)[0], expected, atol=1e-5)


def test_a_method_on_features_is_that_method_on_the_last_layer(problem):
    """Laplace's approximation of the last layer, by the whole network and by what enters the layer."""
    config, network = problem.config, problem.model.init(jax.random.key(3))
    stacked = tree.stack([network, network])
    known = modes.all_features(problem, stacked)
    assert known["inside"].shape == (2, 50, 6)
    assert known[modes.TRAINING].shape == (2, 100, 6)
    found = modes._around_heads(problem, "laplace", stacked, known)["inside"]
    assert found.shape == (2, config.num_samples, 50, 10)
    method = inference.laplace(structure="full", leaves="last_layer", pretrain_epochs=0, initial=network)
    posterior = method(jax.random.key(0), problem.target).posterior
    expected = evaluate.predict(
        problem.model.apply, posterior, problem.inputs, key=jax.random.key(1), num_samples=4000
    )
    many = dataclasses.replace(problem, config=dataclasses.replace(config, num_samples=4000))
    drawn = modes._around_heads(many, "laplace", stacked, known)["inside"]
    # Two estimates of one mean: 4,000 draws each of a probability, whose standard deviation is below 0.5.
    np.testing.assert_allclose(drawn[0].mean(0), expected, atol=5 * 0.5 * np.sqrt(2 / 4000))


def test_both_versions_have_as_many_networks_and_the_ensemble_is_the_modes():
    draws = jax.random.dirichlet(jax.random.key(0), jnp.ones(3), (4, 8, 5))
    alone = draws[:, :1]
    found = modes.all_sets({results.SINGLE: {"inside": alone}, "swag": {"inside": draws}})
    assert list(found) == [results.SINGLE, results.ENSEMBLE, "swag_one", "swag_many"]
    assert [len(found[name]) for name in found] == [4, 1, 4, 1]
    for mode in range(4):
        one = found["swag_one"][mode]["inside"]
        np.testing.assert_allclose(one["probs"], draws[mode].mean(0), rtol=1e-5)
        assert np.all(found[results.SINGLE][mode]["inside"]["information"] < 1e-6)
    many = found["swag_many"][0]["inside"]
    np.testing.assert_allclose(many["probs"], draws[:, :2].mean((0, 1)), rtol=1e-5)
    np.testing.assert_allclose(found[results.ENSEMBLE][0]["inside"]["probs"], alone.mean((0, 1)), rtol=1e-5)


def test_doubt_orders_predictions_that_round_to_one():
    probs = jnp.float32([[1.0, 1e-12, 0.0], [1.0, 1e-20, 0.0], [0.6, 0.3, 0.1]])
    assert np.array_equal(np.argsort(scores.doubt(probs)), [1, 0, 2])


def made_up(one, many):
    """Predictions of one method, with one network and the ensemble between them."""
    levels = {"swag_one": one, "swag_many": many, results.SINGLE: 90.0, results.ENSEMBLE: 92.0}
    names = ("accuracy", "nll", "brier", "ece", "rotated_auroc")
    found = {entry: {name: np.full((1, 4), level) for name in names} for entry, level in levels.items()}
    return results.Results(found, {}, 4, ["out"], ("rotated",), ("swag",))


def test_findings_without_a_reference_speak_of_predictions_and_follow_the_numbers():
    said = findings.findings(made_up(91.0, 93.0))
    assert (
        "More accurate than one network: SWAG of the last layer, one mode; SWAG of the last layer, 4"
        in said[0]
    )
    assert "More accurate than the ensemble: SWAG of the last layer, 4 modes." in said[0]
    assert "NLL, many modes minus one in 0.01 nats: many modes beat one for no method" in said[2]
    assert "AUROC (rotated), many modes minus one in points: many modes beat one for SWAG" in said[5]
    assert not any("MMD" in sentence for sentence in said)
    said = findings.findings(made_up(80.0, 79.0))
    assert "More accurate than one network: none. More accurate than the ensemble: none." in said[0]
    assert "beat one for no method; they are worse for SWAG" in said[1]


def test_the_page_says_what_ran_and_with_how_little(problem):
    config = dataclasses.replace(DEBUG, methods=("swag", "laplace"), last_layer=("laplace",))
    said = words.introduction(dataclasses.replace(problem, config=config), np.ones(2, bool))
    assert any("SWAG 2 collections, 1 minibatches apart" in each for each in said)
    assert any("The last layer only, on all 100 training images: Laplace." in each for each in said)
    assert any("Not run: dropout, VI, SGHMC, HMC." in each for each in said)
    assert not any("batch normalisation" in each for each in said)


@pytest.mark.slow
def test_every_method_around_networks_with_batch_normalisation_and_again_from_its_stages(tmp_path, capsys):
    table = study.run(DEBUG, tmp_path)
    labels = [row.name for row in table.rows]
    assert len(labels) == 2 * len(DEBUG.methods) + 2
    assert labels[-2:] == ["one network", "deep ensemble"]
    assert "HMC of the last layer, 2 modes" in labels
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert all(np.isfinite(record["value"]) for record in records)
    text = (tmp_path / "table.md").read_text()
    assert "MMD" not in text.replace("discrepancy (MMD)", "")
    capsys.readouterr()
    assert study.run(DEBUG, tmp_path) == table
    assert capsys.readouterr().out.count("reused") == len(DEBUG.methods) + 3


def test_every_set_is_scored_by_its_own_predictions(problem):
    """Sets of networks and their predictions, one by one, give the same scores, each its own."""
    samples = jax.vmap(problem.model.init)(jax.random.split(jax.random.key(0), 4))
    groups = {"first": tree.take(samples, slice(0, 2)), "second": tree.take(samples, slice(2, 4))}
    found = scores.score(
        problem, {name: jax.tree.map(lambda leaf: leaf[None], each) for name, each in groups.items()}
    )
    for name, each in groups.items():
        probs = evaluate.predict(problem.model.apply, each, problem.inputs)
        np.testing.assert_allclose(
            found[name]["nll"][0, 0], 100 * evaluate.nll(probs, problem.labels), rtol=1e-4
        )
    assert abs(found["first"]["nll"][0, 0] - found["second"]["nll"][0, 0]) > 1e-3
