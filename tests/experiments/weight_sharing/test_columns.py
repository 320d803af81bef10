"""Columns of the table: codecs, files that come back, predictions in log-space, scores against other data."""

import dataclasses

import jax
import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

import configs
from experiments.common import published
from experiments.weight_sharing import contenders, predictions, scores, stages, study
from experiments.weight_sharing.baselines import Clustered, Rounded
from experiments.weight_sharing.stages import load_problem
from symbnn import evaluate, io, sharing, tree
from symbnn.posteriors import DiagonalGaussian, Empirical
from tests.sharing.shared import make

CONFIGS = configs.STUDIES["weight_sharing"].configs
DEBUG = CONFIGS["debug"][1]


def changed(**parts):
    """The debug config with some settings of some parts replaced."""
    return dataclasses.replace(
        DEBUG, **{name: dataclasses.replace(getattr(DEBUG, name), **each) for name, each in parts.items()}
    )


@pytest.fixture(scope="module")
def problem():
    return load_problem(DEBUG, 0)


@pytest.fixture(scope="module")
def params(problem):
    return problem.model.init(jax.random.key(1))


# Codecs and files


def test_rounded_weights_are_within_half_a_step_of_their_own_output(params):
    layout = sharing.layout_of(params)
    kept = Rounded(layout).encode(params)
    assert kept["integers"].dtype == np.int8
    assert np.abs(kept["integers"].astype(int)).max() == 127
    found = tree.named_leaves(Rounded(layout).decode(kept))
    for name, leaf in tree.named_leaves(params).items():
        if name in layout.names:
            steps = np.abs(leaf).max(axis=0) / 127
            assert (np.abs(found[name] - leaf) <= 0.5001 * steps).all()
        else:
            np.testing.assert_array_equal(found[name], leaf)


def test_clustered_weights_are_the_nearest_centres_and_centres_the_means_of_their_weights(params):
    layout = sharing.layout_of(params)
    codec = Clustered(layout, num_centres=8)
    kept = codec.encode(params)
    weights = np.asarray(sharing.flatten(layout, params))
    found = np.asarray(sharing.flatten(layout, codec.decode(kept)))
    gaps = np.abs(weights[:, None] - kept["centres"])
    np.testing.assert_allclose(np.abs(found - weights), gaps.min(axis=1), atol=1e-7)
    for centre in kept["centres"]:
        # Lloyd's iterations have converged to the precision of float32.
        assert centre == pytest.approx(weights[found == centre].mean(), abs=1e-4)


def test_what_is_kept_in_a_file_comes_back_and_is_as_small_as_it_should_be(params, tmp_path):
    layout = sharing.layout_of(params)
    stds = jax.tree.map(lambda leaf: 0.1 + 0 * leaf, params)
    several = Empirical(tree.stack([params, stds]))
    made = {
        "network": params,
        "gaussian": DiagonalGaussian(params, stds),
        "several": several,
        "int8": contenders.through(Rounded(layout), params),
        "shared": make(),
    }
    size, found = {}, {}
    for name, each in made.items():
        path = tmp_path / name
        found[name] = contenders.kept(path, each)
        size[name] = path.stat().st_size
    for name in ("network", "gaussian", "several"):
        jax.tree.map(np.testing.assert_array_equal, found[name], made[name])
    contenders.check_same(made["shared"], found["shared"])
    jax.tree.map(np.testing.assert_array_equal, found["int8"], Rounded(layout).decode(dict(made["int8"])))
    assert size["int8"] < size["network"] < size["gaussian"]


def test_shared_weights_that_come_back_different_are_refused():
    with pytest.raises(ValueError, match=r"gives another '.*kernel' back"):
        contenders.check_same(make(), make(means=make().means + 0.5))


# Predictions


def test_predictions_are_those_of_the_evaluators(problem, params):
    stds = jax.tree.map(lambda leaf: 0.3 + 0 * leaf, params)
    posterior = DiagonalGaussian(params, stds)
    found = predictions.predict(problem, posterior, problem.inputs, problem.labels)
    networks = tree.stack([tree.take(each, 0) for each in predictions.draws(problem, posterior)])
    assert tree.num_samples(networks) == DEBUG.judging.num_draws
    members = np.asarray(evaluate.predict(problem.model.apply, networks, problem.inputs, members=True))
    np.testing.assert_allclose(np.exp(found["log_probs"]), members.mean(0), atol=1e-6)
    uncertainty = evaluate.predict_uncertainty(problem.model.apply, networks, problem.inputs)
    np.testing.assert_allclose(found["aleatoric"], uncertainty.aleatoric, atol=1e-5)
    np.testing.assert_allclose(
        found["singles"], (members.argmax(-1) == np.asarray(problem.labels)).mean(1), atol=1e-7
    )
    logits = jax.vmap(problem.model.apply, (0, None))(networks, problem.inputs)
    np.testing.assert_allclose(found["logits"], logits.mean(0), atol=1e-5)
    np.testing.assert_allclose(
        found["energy"], jax.vmap(evaluate.energy_score)(logits).mean(0), rtol=1e-5, atol=1e-5
    )


def test_a_network_that_is_sure_and_wrong_has_a_large_but_finite_nll(problem, params):
    sure = jax.tree.map(lambda leaf: 300.0 * leaf, params)
    probs = evaluate.predict(problem.model.apply, tree.stack([sure]), problem.inputs)
    assert np.asarray(probs).min() == 0.0
    found = predictions.predict(problem, sure, problem.inputs, problem.labels)
    scored = scores.scores(problem, {"inside": found, "outside": {}}, 1)
    logits = np.asarray(problem.model.apply(sure, problem.inputs), np.float64)
    right = np.take_along_axis(logits, np.asarray(problem.labels)[:, None], 1)[:, 0]
    largest = logits.max(1)
    expected = (largest + np.log(np.exp(logits - largest[:, None]).sum(1)) - right).mean()
    assert 100 < scored["nll"] < np.inf
    assert scored["nll"] == pytest.approx(expected, rel=1e-5)


def test_sure_predictions_are_no_ties_out_of_distribution():
    logits = np.array([[200.0, 0.0, 0.0], [400.0, 0.0, 0.0], [300.0, 0.0, 0.0], [1.0, 0.9, 0.8]])
    log_probs = logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True))
    log_probs -= logits.max(1, keepdims=True)
    assert (np.exp(log_probs.astype(np.float32)).max(1)[:3] == 1.0).all()
    found = scores.doubts(
        {
            "log_probs": log_probs.astype(np.float32),
            "aleatoric": np.zeros(4),
            "logits": logits,
            "energy": -logits.max(1),
        }
    )
    for name in ("largest probability", "largest logit", "energy"):
        assert list(np.argsort(found[name])) == [1, 2, 0, 3], name


def test_scores_against_other_data_are_those_of_scikit_learn(problem, params):
    network = jax.tree.map(lambda leaf: 3 * leaf, params)
    noise = jax.random.uniform(jax.random.key(2), (80, 64))
    both = [predictions.predict(problem, network, inputs) for inputs in (problem.inputs, noise)]
    found = scores.against(*both)
    inside, other = (np.exp(each["log_probs"]).max(axis=1) for each in both)
    is_inside = np.arange(len(inside) + len(other)) < len(inside)
    confidence = np.concatenate([inside, other])
    assert found["auroc"]["largest probability"] == pytest.approx(
        roc_auc_score(is_inside, confidence), abs=1e-6
    )
    assert found["aupr"] == pytest.approx(average_precision_score(is_inside, confidence), abs=1e-6)
    false, true, _ = roc_curve(is_inside, confidence, drop_intermediate=False)
    assert found["fpr85"] == pytest.approx(false[np.argmax(true >= 0.85)], abs=1e-6)
    energies = np.concatenate([each["energy"] for each in both])
    assert found["auroc"]["energy"] == pytest.approx(roc_auc_score(~is_inside, energies), abs=1e-6)


def test_a_reference_of_other_images_is_refused_and_one_of_these_is_compared_with(tmp_path):
    path = tmp_path / "reference.npy"
    with pytest.raises(ValueError, match=r"reference\.npy is not there"):
        scores.reference_of(load_problem(changed(judging={"reference": "reference.npy"}), 0))
    np.save(path, np.full((51, 10), 0.1, np.float32))
    given = load_problem(changed(judging={"reference": str(path)}), 0)
    with pytest.raises(
        ValueError, match=r"has shape \(51, 10\); the judged images and classes are \(50, 10\)"
    ):
        scores.reference_of(given)
    np.save(path, np.full((50, 10), 0.1, np.float32))
    sure = {"log_probs": np.where(np.arange(10) == 3, 0.0, -80.0) * np.ones((50, 1)), "singles": np.ones(1)}
    found = scores.scores(given, {"inside": sure, "outside": {}}, 1)
    assert found["total_variation"] == pytest.approx(0.9, abs=1e-6)


# Published networks


def test_a_seed_starts_from_its_own_published_network(tmp_path, monkeypatch):
    monkeypatch.setenv("SYMBNN_DATA_DIR", str(tmp_path))
    (tmp_path / "pretrained").mkdir()
    problem = load_problem(DEBUG, 0)
    networks = [problem.model.init(jax.random.key(seed)) for seed in (3, 4)]
    for name, each in zip("ab", networks, strict=True):
        torch = io.to_torch(problem.model, each, "mlp")
        io.save_safetensors(tmp_path / "pretrained" / f"{name}.safetensors", torch)
    config = changed(pretraining={"published": ("a.safetensors", "b.safetensors")}, judging={"num_seeds": 2})
    config = dataclasses.replace(config, stages=("pretrain",))
    monkeypatch.setattr(
        published, "SCALE", published.SCALE._replace(mean=np.float32(0.25), std=np.float32(0.5))
    )
    scaled = load_problem(config, 0)
    np.testing.assert_allclose(scaled.inputs, (problem.inputs - 0.25) / 0.5, rtol=1e-6)
    study.run(config, tmp_path / "run")
    for name, each in zip(("pretrain", "pretrain_1"), networks, strict=True):
        found, _ = io.load_tree(tmp_path / "run" / "stages" / f"{name}.safetensors")
        jax.tree.map(np.testing.assert_array_equal, found["params"], each)
    with pytest.raises(ValueError, match="names 2 networks; one for each of 3 seeds"):
        study.run(
            dataclasses.replace(config, judging=dataclasses.replace(config.judging, num_seeds=3)), tmp_path
        )
    with pytest.raises(ValueError, match=r"absent\.safetensors is not there"):
        published.read(problem.model, None, "absent.safetensors", "mlp")


def test_held_out_images_can_be_made_harder():
    config = changed(judging={"holdout": 30, "holdout_crop": 0.5})
    image = dataclasses.replace(config, model=dataclasses.replace(config.model, name="resnet20", width=0.1))
    plain = dataclasses.replace(image, judging=dataclasses.replace(image.judging, holdout_crop=None))
    assert (load_problem(image, 0).inputs != load_problem(plain, 0).inputs).any()
    np.testing.assert_array_equal(load_problem(image, 0).labels, load_problem(plain, 0).labels)


# Statistics of norms


@pytest.mark.slow
@pytest.mark.parametrize("statistics", ["frozen", "running", "recomputed"])
def test_statistics_stay_follow_or_are_measured(statistics):
    config = changed(
        model={"name": "resnet20", "width": 0.25, "statistics": statistics, "statistics_images": 40},
        judging={"num_draws": 2},
    )
    given = stages.after_stage_0(load_problem(config, 0))
    network = given.model.init(jax.random.key(0))
    found = stages.train_stochastic(given, {"params": network}, None)["network"]
    before, after = network["batch_stats"], found.params["batch_stats"]
    is_same = jax.tree.all(jax.tree.map(np.array_equal, before, after))
    assert is_same == (statistics == "frozen")
    drawn = [tree.take(each, 0) for each in predictions.draws(given, found.posterior())]
    measured = [
        evaluate.recompute_statistics(given.model.apply, given.target.data.inputs[:40])(each, each, 0.0, each)
        for each in drawn
    ]
    for one, new in zip(drawn, measured, strict=True):
        gaps = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), one["batch_stats"], new["batch_stats"])
        assert (max(jax.tree.leaves(gaps)) < 1e-4) == (statistics == "recomputed")
