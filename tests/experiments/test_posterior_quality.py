"""The study of posterior quality: images out of distribution, symmetries removed, every method, findings."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.posterior_quality import (
    CONFIGS,
    METHODS,
    Chains,
    Dropout,
    Laplace,
    Network,
    StochasticGradient,
    Swag,
    Training,
    Variational,
)
from experiments.common import convergence
from experiments.harness import rundir
from experiments.posterior_quality import findings, results, scores, sets, study, words
from symbnn import data, evaluate, symmetry, tree

DEBUG = CONFIGS["debug"][1]
TINY = dataclasses.replace(
    DEBUG,
    methods=METHODS,
    dropout=Dropout(num_epochs=2),
    variational=Variational(num_epochs=2),
    swag=Swag(rank=2, num_epochs=2),
    sghmc=StochasticGradient(num_burnin=2, thinning=2),
    hmc=Chains(num_burnin=2, thinning=1, num_steps=3, num_reference_chains=2),
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_modes": 3}, "--num-modes must divide"),
        ({"num_single": 3}, "--num-modes must divide"),
        ({"num_validation": 199}, "at least two must be left to train on"),
    ],
)
def test_settings_that_do_not_go_together_are_named(changes, words):
    with pytest.raises(ValueError, match=words):
        sets.load_problem(dataclasses.replace(DEBUG, **changes))


def test_validation_images_are_training_images_that_nothing_is_trained_on():
    held_out = sets.load_problem(dataclasses.replace(DEBUG, num_validation=40))
    assert held_out.target.num_data == 160
    np.testing.assert_array_equal(held_out.inputs, sets.load_problem(DEBUG).target.data.inputs[160:])


def made_up_results(one, many, *, discrepancy=0.0):
    """Two methods whose scores on three resamples are as given, and an ensemble."""
    found = {}
    for method, values in {"swag": (one, many), "laplace": (many, one)}.items():
        for version, value in zip((results.ONE, results.MANY), values, strict=True):
            found[f"{method}_{version}"] = {name: np.asarray([value]) for name in ("accuracy", "brier")}
    part = {"value": [discrepancy], "interval": [[discrepancy - 1, discrepancy + 1]], "p_value": [0.5]}
    gaps = {results.ENSEMBLE: dict.fromkeys(scores.VERSIONS, part)}
    return results.Results(found, {results.NETWORKS: gaps}, 10, ["hidden", "out"], ("rotated",))


def test_a_finding_names_where_many_modes_do_not_beat_one():
    made_up = made_up_results([90.0, 89.0, 91.0], [92.0, 91.5, 92.5])
    words = findings.gain_finding(made_up, "accuracy", sign=1.0)
    assert "beat one for SWAG (2.00 [1.52, 2.48])" in words
    assert "are worse for Laplace (-2.00 [-2.48, -1.52])" in words
    assert "inside" not in words
    # The smaller Brier score is the better one.
    words = findings.gain_finding(made_up, "brier", sign=-1.0)
    assert "beat one for Laplace" in words
    assert "are worse for SWAG" in words


def test_equal_versions_are_no_gain():
    words = findings.gain_finding(made_up_results([90.0, 91.0], [90.0, 91.0]), "accuracy", sign=1.0)
    assert "beat one for no method; zero lies inside the interval for SWAG (0.00 [" in words
    assert "worse" not in words


@pytest.mark.parametrize(("discrepancy", "words"), [(0.5, "as it must"), (1.5, "NOT in the interval")])
def test_a_discrepancy_of_the_ensemble_is_told(discrepancy, words):
    made_up = made_up_results([90.0, 91.0], [90.0, 91.0], discrepancy=discrepancy)
    assert words in findings.ensemble_finding(made_up)


@pytest.fixture(scope="module")
def problem():
    return sets.load_problem(DEBUG)


@pytest.mark.slow
def test_versions_without_symmetries_are_those_of_every_equivalent_network(problem):
    spec, key = problem.model.spec, jax.random.key(1)
    samples = jax.vmap(problem.model.init)(jax.random.split(key, 6))
    anchor = problem.model.init(jax.random.key(2))

    def moved(params, element_key):
        return symmetry.act(spec, symmetry.random_element(spec, element_key), params)

    equivalent = jax.vmap(moved)(samples, jax.random.split(jax.random.key(3), 6))
    before, after = (scores.without_symmetries(problem, each, anchor) for each in (samples, equivalent))
    for version in (scores.SORTED, scores.ALIGNED):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4),
            before[version],
            after[version],
        )
    assert not np.allclose(before[scores.RAW]["hidden"]["kernel"], after[scores.RAW]["hidden"]["kernel"])


@pytest.mark.slow
def test_scores_are_those_of_the_library_and_of_resampled_images(problem):
    samples = jax.vmap(problem.model.init)(jax.random.split(jax.random.key(0), 3))
    found = scores.score(problem, {"some": jax.tree.map(lambda leaf: leaf[None], samples)})["some"]
    probs = evaluate.predict(problem.model.apply, samples, problem.inputs)
    strange = evaluate.predict(problem.model.apply, samples, problem.outside("permuted"))
    known, unknown = -probs.max(-1), -strange.max(-1)
    expected = {
        "accuracy": evaluate.accuracy(probs, problem.labels),
        "brier": evaluate.brier(probs, problem.labels),
        "permuted_auroc": evaluate.auroc(known, unknown),
        "permuted_fpr95": evaluate.fpr_at(known, unknown),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(found[name][0, 0], 100 * value, rtol=1e-5)
    assert found["accuracy"].shape == (1, 1 + DEBUG.num_bootstrap)
    assert np.ptp(found["accuracy"][0, 1:]) > 0


@pytest.mark.slow
def test_every_method_against_both_references_and_again_from_its_stages(tmp_path, capsys):
    table = study.run(TINY, tmp_path)
    labels = [row.name for row in table.rows]
    assert len(labels) == 2 * len(METHODS) + 3
    assert labels.count("HMC, 2 modes") == labels.count("reference HMC chains") == 1
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert all(record["value"] is None or np.isfinite(record["value"]) for record in records)
    text = (tmp_path / "table.md").read_text()
    assert "MMD² to the reference HMC chains by layer" in text
    assert "in the interval" in text or "in every interval" in text
    capsys.readouterr()
    assert study.run(TINY, tmp_path) == table
    assert capsys.readouterr().out.count("reused") == len(METHODS) + 4


@pytest.mark.slow
def test_independent_networks_have_no_discrepancy_and_other_laws_do(tmp_path):
    config = dataclasses.replace(
        DEBUG, num_samples=40, num_bootstrap=200, training=Training(num_epochs=10), num_single=2
    )
    study.run(config, tmp_path)
    with rundir.open_run("posterior_quality", config, tmp_path) as opened:
        found = opened.stage("discrepancies", lambda: None)[results.NETWORKS]
    for version in scores.VERSIONS:
        low, high = found[results.ENSEMBLE][version]["interval"][0]
        assert low < 0 < high, version
        assert found[results.ENSEMBLE][version]["p_value"][0] > 0.05
        one = found[f"laplace_{results.ONE}"][version]
        assert one["value"].shape == (2,)
        assert jnp.all(one["interval"][:, 0] > 0)


@pytest.mark.slow
def test_a_network_with_batch_normalisation_holds_its_statistics_and_says_so(tmp_path):
    config = dataclasses.replace(
        TINY,
        network=Network(name="resnet18", width=0.05),
        methods=("swag", "laplace"),
        # Drawn in all weights, networks of this size after two epochs give labels probability zero.
        laplace=Laplace(),
        hmc=Chains(),
    )
    table = study.run(config, tmp_path)
    assert [row.name for row in table.rows][:2] == ["SWAG, one mode", "Laplace, one mode"]
    text = (tmp_path / "table.md").read_text()
    assert "in evaluation mode and held (Laplace)" in text
    assert "SWAG measures them at its mean" in text
    with pytest.raises(ValueError, match="--methods hmc moves all leaves"):
        sets.load_problem(dataclasses.replace(config, methods=("swag", "hmc")))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "side"), [("resnet18_cifar100", 32), ("resnet18_tiny_imagenet", 64)])
def test_configs_for_accelerators_build(monkeypatch, name, side):
    """Their data are large downloads: the images here are blank, of the same shape."""
    config = CONFIGS[name][1]
    num_classes = {32: 100, 64: 200}[side]

    def blank(source, *, test_only=False, **_):
        pixels = 32 if source == "svhn" else side
        split = data.Split(np.zeros((4, pixels, pixels, 3), np.float32), np.zeros(4, np.int32))
        return data.Dataset(source, split, split, num_classes, split.inputs.shape[1:])

    monkeypatch.setattr(data, "load", blank)
    problem = sets.load_problem(config)
    assert problem.has_batch_statistics
    assert problem.outside("svhn").shape == (4, side, side, 3)
    assert jax.eval_shape(problem.model.apply, problem.shapes, problem.inputs).shape == (4, num_classes)


SPARE = dataclasses.replace(
    DEBUG, training=Training(num_epochs=2, milestones=(1,), least_accuracy=0.5, num_spare=3)
)


def trained(monkeypatch, tmp_path, lost):
    """The networks of `SPARE` if those with the numbers `lost` do not converge, and all that were trained."""
    everything = []

    def told(problem, samples, settings):
        everything.append(samples)
        return ~np.isin(np.arange(tree.num_samples(samples)), lost)

    monkeypatch.setattr(convergence, "converged", told)
    problem = sets.load_problem(SPARE)
    with rundir.open_run("posterior_quality", SPARE, tmp_path) as opened:
        return sets.train(problem, opened), everything[0], problem


def test_spare_networks_take_the_place_of_those_that_did_not_converge(monkeypatch, tmp_path):
    found, everything, problem = trained(monkeypatch, tmp_path, [0, 5])
    kernels = everything["out"]["kernel"]
    # Nine are needed, four of each set and one more; twelve were trained.
    assert len(kernels) == 12
    np.testing.assert_array_equal(found["reference"]["out"]["kernel"], kernels[1:5])
    np.testing.assert_array_equal(found["ensemble"]["out"]["kernel"], kernels[6:10])
    np.testing.assert_array_equal(found["anchor"]["out"]["kernel"], kernels[10])
    said = " ".join(words.introduction(problem, found["converged"]))
    assert "2 of 12 trained networks did not converge" in said
    assert "Of the 10 that converged, the first 9 are used" in said
    assert "learning rate 0.01, times 0.5 after epochs 1 and prior" in said


def test_too_few_networks_that_converged_are_an_error_with_its_remedy(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match=r"only 8 of 12 networks.*9 are needed; .*--training\.num-spare"):
        trained(monkeypatch, tmp_path, [0, 1, 2, 3])
