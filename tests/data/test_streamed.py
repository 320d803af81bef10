"""Inputs that stay on disk: read as the same numbers, trained on as the same data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import configs
from experiments.weight_sharing.predictions import predict
from experiments.weight_sharing.stages import load_problem
from symbnn import data, density, inference, models, sharing, tree
from symbnn.data import Split, Streamed
from symbnn.data.images import IMAGES
from symbnn.inference.training.recipe import Recipe
from symbnn.posteriors import DiagonalGaussian

KEY = jax.random.key(0)
VALUES = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
LABELS = np.arange(30, dtype=np.int32) % 3
STREAMED = Streamed(lambda indices: VALUES[indices], VALUES.shape)
MODEL = models.mlp((4,), 3, hidden=(5,))


def assert_close(first, second):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), first, second)


def test_it_is_indexed_like_an_array():
    indices = np.array([[3, 1], [0, 29]])
    np.testing.assert_array_equal(STREAMED[indices], VALUES[indices])
    part = STREAMED[5:-3]
    assert isinstance(part, Streamed)
    np.testing.assert_array_equal(part[np.array([0, 21])], VALUES[[5, 26]])
    np.testing.assert_array_equal(np.concatenate(list(STREAMED.blocks(7))), VALUES)


def test_it_is_normalised_when_it_is_read():
    scale = data.statistics(Split(VALUES, LABELS))
    found = data.normalise(Split(STREAMED, LABELS), scale).inputs
    assert isinstance(found, Streamed)
    np.testing.assert_array_equal(found[np.arange(30)], data.normalise(Split(VALUES, LABELS), scale).inputs)


def test_it_is_never_read_whole_by_accident():
    with pytest.raises(ValueError, match=r"inputs of shape \(30, 4\) stay on disk"):
        np.asarray(STREAMED)
    wrong = Streamed(lambda indices: VALUES[indices].astype(np.float64), VALUES.shape)
    with pytest.raises(ValueError, match="read gave float64 of shape"):
        wrong[np.arange(2)]


def test_image_folders_are_streamed_as_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setitem(
        IMAGES, "imagenet", IMAGES["imagenet"]._replace(num_classes=2, num_train=4, num_test=2)
    )
    random = np.random.default_rng(1)
    for name in ("train/a/1", "train/a/2", "train/b/1", "train/b/2", "val/a/1", "val/b/1"):
        path = tmp_path / "imagenet" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (30, 40, 3), dtype=np.uint8)).save(path)
    settings = {"data_dir": tmp_path, "num_train": 3, "resize": 24, "seed": 5}
    whole, streamed = (data.load("imagenet", **settings, streamed=stays) for stays in (False, True))
    assert streamed.input_shape == (24, 24, 3)
    for part in ("train", "test"):
        expected, found = getattr(whole, part), getattr(streamed, part)
        np.testing.assert_array_equal(found.inputs[np.arange(len(found.inputs))], expected.inputs)
        np.testing.assert_array_equal(found.targets, expected.targets)
    monkeypatch.setattr(data.folders, "MAX_BYTES", 15_000)
    assert data.load("imagenet", **settings, streamed=True).train.inputs[np.arange(2)].shape[0] == 2
    with pytest.raises(ValueError, match="or load with streamed=True"):
        data.load("imagenet", **settings)
    with pytest.raises(ValueError, match="leave flatten and normalised out"):
        data.load("imagenet", **settings, streamed=True, normalised=True)


@pytest.mark.slow
def test_training_on_streamed_inputs_gives_the_same_networks():
    targets = [density.target(MODEL, Split(inputs, LABELS)) for inputs in (VALUES, STREAMED)]
    method = inference.ensemble(num_members=2, epochs=3, batch_size=8)
    whole, streamed = (method(KEY, target).posterior.samples for target in targets)
    assert_close(streamed, whole)
    stochastic = [
        sharing.train_stochastic(KEY, target, Recipe(2, 8), initial=tree.take(whole, 0)) for target in targets
    ]
    assert_close(stochastic[1].stds, stochastic[0].stds)
    magnitudes = [
        sharing.gradient_magnitudes(KEY, target, each, num_batches=3, batch_size=8)
        for target, each in zip(targets, stochastic, strict=True)
    ]
    assert_close(magnitudes[1], magnitudes[0])


def test_a_sum_over_all_streamed_inputs_is_refused():
    target = density.target(MODEL, Split(STREAMED, LABELS))
    params = MODEL.init(KEY)
    with pytest.raises(ValueError, match="streamed from disk, so their log-likelihood cannot"):
        target.log_density(params)
    batch = density.Batch(jnp.asarray(VALUES), jnp.asarray(LABELS))
    expected = density.target(MODEL, batch).log_likelihood(params)
    np.testing.assert_allclose(target.log_likelihood(params, batch), expected, rtol=1e-6)


@pytest.mark.slow
def test_streamed_inputs_are_judged_as_arrays_are(monkeypatch):
    problem = load_problem(configs.STUDIES["weight_sharing"].configs["debug"][1], 0)
    params = problem.model.init(KEY)
    law = DiagonalGaussian(params, jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.3), params))
    images = np.asarray(problem.inputs)
    expected = [predict(problem, each, problem.inputs, problem.labels) for each in (law, params)]
    monkeypatch.setattr(data.streamed, "BLOCK", 20)
    streamed = Streamed(lambda indices: images[indices], images.shape)
    found = [predict(problem, each, streamed, problem.labels) for each in (law, params)]
    assert expected[0]["log_probs"].shape == (len(images), 10)
    assert_close(found, expected)
