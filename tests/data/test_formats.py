"""Readers on small files of every official format, intact and damaged in every way we could think of."""

import gzip
import io
import tracemalloc
import zipfile

import numpy as np
import pytest

from symbnn import data
from symbnn.data import idx
from tests.data.files import FORMATS, idx_bytes, labels, mat_bytes, npz_bytes


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_back_what_was_written(tmp_path, write_set, name):
    parts = write_set(name)
    dataset = data.load(name, data_dir=tmp_path)
    assert dataset.name == name
    assert dataset.num_classes == FORMATS[name][3]
    for split, (images, targets) in zip((dataset.train, dataset.test), parts.values(), strict=True):
        assert (split.inputs.dtype, split.targets.dtype) == (np.float32, np.int32)
        np.testing.assert_allclose(split.inputs * 255, images, atol=1e-4)
        np.testing.assert_array_equal(split.targets, targets)
    assert dataset.input_shape == dataset.train.inputs.shape[1:]


@pytest.mark.parametrize("name", FORMATS)
def test_a_cut_file_is_named(tmp_path, write_set, name):
    write_set(name)
    for path in sorted((tmp_path / name).iterdir()):
        whole = path.read_bytes()
        for length in (0, 3, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:length])
            with pytest.raises(data.DataError, match=f"{path.name}.*expected.*found"):
                data.load(name, data_dir=tmp_path)
        path.write_bytes(whole)


@pytest.mark.parametrize("name", FORMATS)
def test_a_missing_file_is_named_and_not_replaced_by_another_source(tmp_path, write_set, name):
    write_set(name)
    for path in sorted((tmp_path / name).iterdir()):
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(data.DataError, match=f"{path.name}.*expected this file.*found no such file"):
            data.load(name, data_dir=tmp_path)
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        (
            "mnist",
            "train-labels-idx1-ubyte.gz",
            idx_bytes(labels(20), magic=0x0803),
            "magic number 0x00000801",
        ),
        ("mnist", "train-labels-idx1-ubyte.gz", idx_bytes(labels(20) + 1), "labels from 0 to 9; found 10 at"),
        ("mnist", "train-labels-idx1-ubyte.gz", idx_bytes(labels(19)), r"shape \(20,\); found shape \(19,\)"),
        ("mnist", "train-labels-idx1-ubyte.gz", idx_bytes(labels(21), shape=(20,)), "20 bytes.*more bytes"),
        ("mnist", "train-labels-idx1-ubyte.gz", b"<html>not found</html>", "magic number"),
        ("mnist", "train-labels-idx1-ubyte.gz", gzip.compress(b"")[:-1], "cut or damaged"),
        ("kmnist", "kmnist-test-labels.npz", npz_bytes(labels(11)), r"bytes of shape \(10,\)"),
        ("kmnist", "kmnist-test-labels.npz", npz_bytes(labels(10) + 1), "labels from 0 to 9"),
        ("kmnist", "kmnist-test-labels.npz", npz_bytes(labels(10), "other"), "arr_0"),
        ("kmnist", "kmnist-test-labels.npz", npz_bytes(np.ones(10)), "found float64"),
        ("cifar10", "test_batch.bin", bytes([10]) * 3073 * 10, "labels from 0 to 9; found 10 at position 0"),
        ("cifar10", "test_batch.bin", bytes(3073 * 9), "10 images in 30730 bytes; found 27657 bytes"),
        ("cifar100", "test.bin", bytes([20]) * 3074 * 10, "labels from 0 to 19"),
        ("cifar100", "test.bin", (bytes([0]) + bytes([100]) * 3073) * 10, "labels from 0 to 99"),
        ("svhn", "test_32x32.mat", mat_bytes({"X": np.zeros(3)}), r"X of shape \(32, 32, 3, 10\)"),
    ],
    ids=lambda value: "content" if isinstance(value, bytes) else None,
)
def test_wrong_content_is_named(tmp_path, write_set, name, file, content, message):
    write_set(name)
    (tmp_path / name / file).write_bytes(content)
    with pytest.raises(data.DataError, match=f"{file}: .*{message}"):
        data.load(name, data_dir=tmp_path)


def test_a_flipped_bit_in_a_compressed_file_is_found(tmp_path, write_set):
    write_set("mnist")
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)
    with pytest.raises(data.DataError, match="train-images"):
        data.load("mnist", data_dir=tmp_path)


def test_lying_headers_allocate_nothing(tmp_path):
    shape = (60_000, 28, 28)
    small = np.zeros(4, np.uint8)
    (tmp_path / "idx").write_bytes(idx_bytes(small, shape=shape))
    (tmp_path / "idx.gz").write_bytes(gzip.compress(idx_bytes(small, shape=shape)))
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(tmp_path / "npz", "w") as archive:
        archive.writestr("arr_0.npy", file.getvalue())
    tracemalloc.start()
    for name in ("idx", "idx.gz"):
        with pytest.raises(data.DataError, match="expected 47040000 bytes"):
            idx.read_idx(tmp_path / name, shape)
    with pytest.raises(data.DataError, match="bytes of 'arr_0'"):
        data.archives.read_npz(tmp_path / "npz", "arr_0", shape)
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()
