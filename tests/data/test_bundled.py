"""Data that needs no file."""

import numpy as np
import pytest

from symbnn import data


def test_digits_are_the_bundled_ones():
    from sklearn.datasets import load_digits

    dataset = data.load("digits", flatten=True)
    assert dataset.train.inputs.shape == (1297, 64)
    assert dataset.test.inputs.shape == (500, 64)
    both = np.concatenate([dataset.train.inputs, dataset.test.inputs]) * 16
    images, targets = load_digits(return_X_y=True)
    order = np.lexsort(both.T), np.lexsort(images.T)
    np.testing.assert_array_equal(both[order[0]], images[order[1]])
    both_targets = np.concatenate([dataset.train.targets, dataset.test.targets])
    np.testing.assert_array_equal(both_targets[order[0]], targets[order[1]])


@pytest.mark.parametrize("name", ["moons", "circles", "blobs", "spirals"])
def test_toy_sets_are_balanced_and_drawn_from_the_seed(name):
    one, same, other = (data.load(name, num_train=50, num_test=20, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.train.inputs, same.train.inputs)
    assert not np.array_equal(one.train.inputs, other.train.inputs)
    assert one.train.inputs.shape == (50, 2)
    assert (np.bincount(one.train.targets) == 25).all()
    assert not np.array_equal(one.train.inputs[:20], one.test.inputs)


def test_the_wave_has_a_gap():
    dataset = data.load("wave")
    assert dataset.num_classes is None
    assert np.abs(dataset.train.inputs).min() >= 0.3
    residual = dataset.train.targets - np.sin(4 * dataset.train.inputs)
    # Standard error of a standard deviation from 400 draws: 0.1 / sqrt(800).
    assert abs(residual.std() - 0.1) < 4 * 0.1 / 800**0.5
