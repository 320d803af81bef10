"""Data that needs no file: scikit-learn's digits and toy sets in the plane."""

import numpy as np

from symbnn.data.base import Dataset, Split, dataset

NUM_DIGITS_TRAIN = 1297


def digits() -> Dataset:
    """1,797 images of 8x8 pixels in [0, 1], in one fixed shuffle: 1,297 to train, 500 to test."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    inputs = (images[order] / 16.0).astype(np.float32).reshape(-1, 8, 8, 1)
    targets = labels[order].astype(np.int32)
    train = Split(inputs[:NUM_DIGITS_TRAIN], targets[:NUM_DIGITS_TRAIN])
    test = Split(inputs[NUM_DIGITS_TRAIN:], targets[NUM_DIGITS_TRAIN:])
    return dataset("digits", train, test, 10)
