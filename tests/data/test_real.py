"""The real files, where there are any: set `SYMBNN_DATA_DIR` to the folder that holds them."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from symbnn import data
from symbnn.data.uci import NUM_ROWS

FOLDER = Path(os.environ.get("SYMBNN_DATA_DIR", "nowhere"))

MNIST_MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
# Digits are not equally frequent; these are the counts of the official files.
MNIST_TRAIN_COUNTS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
CIFAR10_TEST_MD5 = "803d5f7f4d78ea53de84dbe85f74fb6d"


def needs(*parts):
    path = FOLDER.joinpath(*parts)
    return pytest.mark.skipif(not path.exists(), reason=f"no {Path(*parts)} under SYMBNN_DATA_DIR")


@needs("mnist")
def test_mnist_is_the_official_one():
    for name, digest in MNIST_MD5.items():
        assert hashlib.md5((FOLDER / "mnist" / name).read_bytes()).hexdigest() == digest
    dataset = data.load("mnist", flatten=True)
    assert dataset.train.inputs.shape == (60_000, 784)
    assert dataset.test.inputs.shape == (10_000, 784)
    assert np.bincount(dataset.train.targets).tolist() == MNIST_TRAIN_COUNTS
    # The mean and spread of MNIST's pixels that everybody quotes.
    assert abs(dataset.train.inputs.mean() - 0.1307) < 1e-4
    assert abs(dataset.train.inputs.std() - 0.3081) < 1e-4


@needs("fashion_mnist")
def test_fashion_mnist_is_balanced():
    dataset = data.load("fashion_mnist")
    assert (np.bincount(dataset.train.targets) == 6000).all()
    assert (np.bincount(dataset.test.targets) == 1000).all()
    assert abs(dataset.train.inputs.mean() - 0.2860) < 1e-4
    assert abs(dataset.train.inputs.std() - 0.3530) < 1e-4


@needs("kmnist")
def test_kmnist_test_part_is_balanced():
    dataset = data.load("kmnist", test_only=True)
    assert dataset.test.inputs.shape == (10_000, 28, 28, 1)
    assert (np.bincount(dataset.test.targets) == 1000).all()


@needs("notmnist")
def test_notmnist_is_balanced_and_has_no_training_part():
    dataset = data.load("notmnist", resize=14)
    assert dataset.train.inputs.shape == (0, 14, 14, 1)
    assert dataset.test.inputs.shape == (10_000, 14, 14, 1)
    counts = np.bincount(dataset.test.targets, minlength=10)
    assert counts.min() > 800


@pytest.fixture(scope="module")
def cifar10_parent(tmp_path_factory):
    """The folder that holds `cifar10`: the given one, or one that the script beside the data fills."""
    if (FOLDER / "cifar10").is_dir():
        return FOLDER
    parent = tmp_path_factory.mktemp("data")
    subprocess.run([sys.executable, FOLDER / "cifar10.py", parent / "cifar10"], check=True)
    return parent


@pytest.mark.skipif(
    not (FOLDER / "cifar10").exists() and not (FOLDER / "cifar10.py").exists(),
    reason="no cifar10 and no cifar10.py under SYMBNN_DATA_DIR",
)
@pytest.mark.slow
def test_cifar10_is_the_official_one(cifar10_parent):
    digest = hashlib.md5((cifar10_parent / "cifar10" / "test_batch.bin").read_bytes()).hexdigest()
    assert digest == CIFAR10_TEST_MD5
    dataset = data.load("cifar10", data_dir=cifar10_parent)
    assert dataset.train.inputs.shape == (50_000, 32, 32, 3)
    assert (np.bincount(dataset.train.targets) == 5000).all()
    assert (np.bincount(dataset.test.targets) == 1000).all()
    # The channel statistics that everybody quotes.
    scale = data.statistics(dataset.train)
    np.testing.assert_allclose(scale.mean, [0.4914, 0.4822, 0.4465], atol=1e-4)
    np.testing.assert_allclose(scale.std, [0.2470, 0.2435, 0.2616], atol=1e-4)


@pytest.mark.parametrize("name", NUM_ROWS)
def test_uci_sets(name):
    if not (FOLDER / "uci" / name).exists():
        pytest.skip(f"no uci/{name} under SYMBNN_DATA_DIR")
    dataset = data.load(f"uci/{name}", seed=1)
    num_test = len(dataset.test.targets)
    assert len(dataset.train.targets) + num_test == NUM_ROWS[name]
    assert num_test == -(-NUM_ROWS[name] // 10)
    assert np.isfinite(dataset.test.inputs).all()
    # Three standard errors of the mean of the smallest test part, 31 values: 3 / sqrt(31) = 0.54.
    assert abs(dataset.test.targets.mean()) < 0.54
    np.testing.assert_allclose(dataset.train.targets.std(), 1, atol=1e-4)
