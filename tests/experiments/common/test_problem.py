"""Data, network and target of a config: images averaged down, held out, out of distribution."""

import dataclasses

import numpy as np
import pytest

from configs.parts import Data
from experiments.common.distortions import fitted
from experiments.common.problem import load, perceptron
from symbnn import data
from tests.experiments.cases import debug_config

DEBUG = debug_config("compact_posterior")


def test_images_are_averaged_down():
    small = perceptron(dataclasses.replace(DEBUG, data=Data(num_train=200, num_test=50, image_side=4)))
    whole = perceptron(DEBUG).data.train.inputs.reshape(200, 4, 2, 4, 2)
    np.testing.assert_allclose(small.data.train.inputs.reshape(200, 4, 4), whole.mean((2, 4)), rtol=1e-6)


def test_a_network_of_images_and_a_perceptron_see_the_same_examples():
    images, vectors = load(DEBUG, "resnet20_frn", hidden=(), width=0.1), perceptron(DEBUG)
    assert images.inputs.shape == (50, 8, 8, 1)
    np.testing.assert_array_equal(images.inputs.reshape(50, 64), vectors.inputs)
    assert images.image_shape == vectors.image_shape == (8, 8, 1)


def test_the_sizes_of_a_perceptron_are_joined():
    assert load(DEBUG, hidden=(5, 3)).sizes == "64-5-3-10"


def test_held_out_examples_are_the_last_training_examples_and_take_the_place_of_the_test_set():
    held, plain = load(DEBUG, hidden=(4,), num_held_out=30), load(DEBUG, hidden=(4,))
    assert held.target.num_data == 170
    np.testing.assert_array_equal(held.inputs, plain.target.data.inputs[170:])
    np.testing.assert_array_equal(held.labels, plain.target.data.targets[170:])


def test_two_examples_must_be_left_to_train_on():
    with pytest.raises(ValueError, match="199 of 200 training examples are held out; at least two"):
        load(DEBUG, hidden=(4,), num_held_out=199)


def test_a_data_set_without_classes_is_refused():
    with pytest.raises(ValueError, match=r"--data\.name wave has no classes; this study needs labels"):
        perceptron(dataclasses.replace(DEBUG, data=Data(name="wave")))


def test_another_seed_draws_other_examples_and_has_another_key():
    first, second = (load(DEBUG, hidden=(4,), seed=seed) for seed in (0, 1))
    assert not np.array_equal(first.inputs, second.inputs)
    assert first.key != second.key


@pytest.mark.parametrize("name", ["permuted", "rotated"])
def test_distortions_keep_the_intensities_of_an_image(name):
    given = perceptron(DEBUG)
    moved = np.asarray(given.outside(name))
    assert not np.array_equal(moved, given.inputs)
    np.testing.assert_array_equal(np.sort(moved), np.sort(given.inputs))


def test_the_negative_of_a_negative_is_the_image_and_scaled_inputs_have_none():
    given = perceptron(DEBUG)
    np.testing.assert_array_equal(given.outside("negatives"), 1 - np.asarray(given.inputs))
    scaled = given.data.test._replace(inputs=2 * given.data.test.inputs)
    with pytest.raises(ValueError, match=r"need x in \[0, 1\]; those of digits go from 0 to 2: rescale"):
        dataclasses.replace(given, data=given.data._replace(test=scaled)).outside("negatives")


def test_a_quarter_turn_is_that_of_the_image():
    given = perceptron(DEBUG)
    turned = np.rot90(np.asarray(given.inputs).reshape(50, 8, 8), axes=(1, 2))
    np.testing.assert_array_equal(given.outside("rotated"), turned.reshape(50, 64))


def test_smaller_images_are_enlarged_by_whole_factors_and_bordered_and_larger_ones_refused():
    given = load(DEBUG, "resnet20_frn", hidden=(), width=0.1)
    twice = dataclasses.replace(
        given, image_shape=(16, 16, 1), data=given.data._replace(input_shape=(16, 16, 1))
    )
    enlarged = twice.outside("digits")
    np.testing.assert_array_equal(enlarged[:, ::2, ::2], enlarged[:, 1::2, 1::2])
    np.testing.assert_array_equal(enlarged[:, ::2, ::2], given.outside("digits"))
    with pytest.raises(ValueError, match=r"have shape \(8, 8, 1\), which does not enlarge"):
        dataclasses.replace(given, image_shape=(7, 7, 1)).outside("digits")


def test_fitted_images_keep_their_pixels_in_the_middle_and_are_grey_in_every_channel():
    images = np.random.default_rng(0).uniform(0.5, 1.0, size=(3, 4, 4, 1)).astype(np.float32)
    found = fitted(images, (11, 10, 3))
    assert found.shape == (3, 11, 10, 3)
    np.testing.assert_array_equal(found[:, 1:9, 1:9], images.repeat(2, 1).repeat(2, 2).repeat(3, 3))
    assert (found == 0).sum() == 3 * 3 * (11 * 10 - 8 * 8), "all else is a black border"
    for shape in ((3, 4, 1), (4, 4, 3)):
        colour = images.repeat(2, axis=3) if shape[2] == 3 else images
        assert fitted(colour, shape) is colour


def test_colours_are_scaled_and_images_of_another_set_as_the_network_sees_its_own(monkeypatch):
    def uniform(name, **_):
        split = data.Split(np.full((4, 32, 32, 3), 0.5, np.float32), np.arange(4, dtype=np.int32))
        return data.Dataset(name, split, split, 10, (32, 32, 3))

    monkeypatch.setattr(data, "load", uniform)
    given = load(dataclasses.replace(DEBUG, data=Data(name="imagenet")), "lenet", hidden=())
    expected = (0.5 - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])
    for images in (given.target.data.inputs, given.inputs, given.outside("svhn")):
        np.testing.assert_allclose(images[0, 0, 0], expected, rtol=1e-5)


@pytest.mark.parametrize("network", ["mlp", "resnet20_frn"])
def test_normalised_inputs_are_scaled_by_the_training_images_alone_and_others_by_the_same(network):
    settings = {"hidden": (4,), "width": 0.1, "num_held_out": 30}
    plain = load(DEBUG, network, **settings)
    normalised = dataclasses.replace(DEBUG, data=dataclasses.replace(DEBUG.data, is_normalised=True))
    found = load(normalised, network, **settings)
    train = np.asarray(plain.target.data.inputs, np.float64)
    mean, std = train.mean(), train.std()
    for scaled, raw in (
        (found.target.data.inputs, train),
        (found.inputs, plain.inputs),
        (found.outside("digits"), plain.outside("digits")),
        (found.outside("rotated"), plain.outside("rotated")),
    ):
        np.testing.assert_allclose(scaled, (raw - mean) / std, atol=1e-5)
    np.testing.assert_allclose(np.mean(found.target.data.inputs), 0.0, atol=1e-5)
    np.testing.assert_allclose(np.std(found.target.data.inputs), 1.0, atol=1e-5)
    assert (plain.examples, found.examples) == (
        "170 examples of digits",
        "170 examples of digits, normalised",
    )


def test_images_that_are_scaled_as_published_are_not_normalised_as_well():
    normalised = dataclasses.replace(DEBUG, data=dataclasses.replace(DEBUG.data, is_normalised=True))
    scale = data.Statistics(np.zeros(1, np.float32), np.ones(1, np.float32))
    with pytest.raises(ValueError, match=r"--data\.is-normalised measures .* leave it out"):
        load(normalised, hidden=(4,), scale=scale)
