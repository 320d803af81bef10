"""A data set by name: its source, its subsets, its scale, and what cannot be had."""

import gzip

import numpy as np
import pytest

from symbnn import data
from tests.data.files import NUM_TRAIN, mnist_files, write


def test_sources_are_tried_in_order(tmp_path, write_set, monkeypatch):
    parts = write_set("mnist")
    monkeypatch.setenv("SYMBNN_DATA_DIR", str(tmp_path))
    found = data.load("mnist", data_dir=tmp_path / "empty")
    np.testing.assert_allclose(found.test.inputs * 255, parts["t10k"][0], atol=1e-4)
    other = tmp_path / "other"
    write(other / "mnist", mnist_files({part: (255 - images, y) for part, (images, y) in parts.items()}))
    first = data.load("mnist", data_dir=other)
    np.testing.assert_allclose(first.test.inputs * 255, 255 - parts["t10k"][0], atol=1e-4)


def test_plain_idx_files_and_the_folders_of_the_archives_are_found(tmp_path, write_set):
    write_set("mnist")
    for path in list((tmp_path / "mnist").iterdir()):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert len(data.load("mnist", data_dir=tmp_path).train.targets) == NUM_TRAIN
    write_set("cifar10")
    inner = tmp_path / "cifar10" / "cifar-10-batches-bin"
    inner.mkdir()
    for path in list((tmp_path / "cifar10").glob("*.bin")):
        path.rename(inner / path.name)
    assert len(data.load("cifar10", data_dir=tmp_path).train.targets) == NUM_TRAIN


def test_subsets_depend_on_the_seed_alone(tmp_path, write_set):
    write_set("mnist")
    whole = data.load("mnist", data_dir=tmp_path)
    one, same, other = (
        data.load("mnist", data_dir=tmp_path, num_train=6, num_test=3, seed=seed) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one.train.inputs, same.train.inputs)
    assert not np.array_equal(one.train.inputs, other.train.inputs)
    rows = {row.tobytes(): target for row, target in zip(*whole.train, strict=True)}
    assert [rows[row.tobytes()] for row in one.train.inputs] == list(one.train.targets)
    assert len({row.tobytes() for row in one.train.inputs}) == 6
    assert one.test.inputs.shape == (3, 28, 28, 1)


def test_the_test_part_alone_needs_no_training_files(tmp_path, write_set):
    write_set("kmnist")
    (tmp_path / "kmnist" / "kmnist-train-imgs.npz").unlink()
    with pytest.raises(data.DataError, match="test_only=True"):
        data.load("kmnist", data_dir=tmp_path)
    dataset = data.load("kmnist", data_dir=tmp_path, test_only=True, flatten=True, resize=14)
    assert dataset.train.inputs.shape == (0, 196)
    assert dataset.test.inputs.shape == (10, 196)


def test_resizing_averages_blocks(tmp_path, write_set):
    images, _ = write_set("mnist")["train"]
    resized = data.load("mnist", data_dir=tmp_path, resize=14).train.inputs
    expected = sum(images[:, i::2, j::2].astype(float) for i in (0, 1) for j in (0, 1)) / 4 / 255
    np.testing.assert_allclose(resized, expected, atol=1e-6)
    with pytest.raises(ValueError, match="resize must divide the sides of the images, 28x28 pixels; got 5"):
        data.load("mnist", data_dir=tmp_path, resize=5)


def test_normalised_inputs_have_unit_variance_per_channel(tmp_path, write_set):
    write_set("cifar10")
    raw, dataset = (data.load("cifar10", data_dir=tmp_path, normalised=flag) for flag in (False, True))
    np.testing.assert_allclose(dataset.train.inputs.mean(axis=(0, 1, 2)), 0, atol=1e-4)
    np.testing.assert_allclose(dataset.train.inputs.std(axis=(0, 1, 2)), 1, atol=1e-4)
    scale = data.statistics(raw.train)
    np.testing.assert_array_equal(data.normalise(raw.test, scale).inputs, dataset.test.inputs)
    with pytest.raises(ValueError, match="normalised=True needs the training part"):
        data.load("cifar10", data_dir=tmp_path, normalised=True, test_only=True)


def test_the_catalogue_serves_what_no_folder_has(monkeypatch):
    import tensorflow_datasets as tfds

    monkeypatch.delenv("SYMBNN_DATA_DIR", raising=False)
    with tfds.testing.mock_data(num_examples=8):
        dataset = data.load("cifar10", num_train=5)
        alone = data.load("mnist", test_only=True, flatten=True)
    assert dataset.train.inputs.shape == (5, 32, 32, 3)
    assert dataset.test.inputs.shape == (8, 32, 32, 3)
    assert dataset.train.inputs.dtype == np.float32
    assert 0 <= dataset.train.inputs.min() <= dataset.train.inputs.max() <= 1
    assert dataset.train.targets.dtype == np.int32
    assert (alone.train.inputs.shape, alone.test.inputs.shape) == ((0, 784), (8, 784))


def test_a_failing_catalogue_says_where_files_may_go(monkeypatch):
    import tensorflow_datasets as tfds

    def offline(*args, **settings):
        raise ConnectionError("no network")

    monkeypatch.delenv("SYMBNN_DATA_DIR", raising=False)
    monkeypatch.setattr(tfds, "data_source", offline)
    with pytest.raises(data.DataError, match=r"mnist: no folder.*no network.*put the official files"):
        data.load("mnist")


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (lambda: data.load("cifar-10"), "did you mean 'cifar10'"),
        (lambda: data.load("digits", num_train=1298), "num_train must be between 1 and 1297; got 1298"),
        (lambda: data.load("digits", num_test=0), "num_test must be between 1 and 500; got 0"),
        (lambda: data.load("moons", num_train=0), "num_train must be at least 1; got 0"),
        (lambda: data.load("moons", resize=4), "apply to sets of images, which moons is not"),
        (lambda: data.load("notmnist"), "notmnist: no folder notmnist.*no other source"),
        (lambda: data.load("uci/yacht"), "uci/yacht: no folder"),
        (lambda: data.load("digits", test_share=0.2), "test_share applies to tables of rows"),
        (lambda: data.load("diabetes", test_share=1.0), "test_share must be between 0 and 1.*; got 1.0"),
    ],
)
def test_bad_requests_are_named(monkeypatch, load, message):
    monkeypatch.delenv("SYMBNN_DATA_DIR", raising=False)
    with pytest.raises(ValueError, match=message):
        load()


def test_every_set_is_described():
    lines = data.describe().splitlines()
    assert [line.split()[0] for line in lines] == data.known()
    assert all(len(line.split()) > 2 for line in lines)
