"""Readers on small files of every official format, intact and damaged in every way we could think of."""

import gzip
import io
import shutil
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
import scipy.io
from PIL import Image

from symbnn import data
from symbnn.data import idx
from symbnn.data.images import IMAGES
from symbnn.data.uci import NUM_ROWS

NUM_TRAIN, NUM_TEST = 20, 10
RANDOM = np.random.default_rng(0)


def pixels(num, side, channels):
    return RANDOM.integers(0, 256, (num, side, side, channels), dtype=np.uint8)


def labels(num, num_classes=10):
    return (np.arange(num) % num_classes).astype(np.uint8)


def idx_bytes(array, magic=None, shape=None):
    shape = array.shape if shape is None else shape
    magic = 0x0800 | len(shape) if magic is None else magic
    return struct.pack(f">I{len(shape)}I", magic, *shape) + array.tobytes()


def npz_bytes(array, key="arr_0"):
    file = io.BytesIO()
    np.savez_compressed(file, **{key: array})
    return file.getvalue()


def mat_bytes(content):
    file = io.BytesIO()
    scipy.io.savemat(file, content, do_compression=True)
    return file.getvalue()


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def mnist_files(parts):
    return {
        f"{prefix}-{kind}-ubyte.gz": gzip.compress(idx_bytes(array))
        for prefix, (images, targets) in parts.items()
        for kind, array in (("images-idx3", images[..., 0]), ("labels-idx1", targets))
    }


def kmnist_files(parts):
    return {
        f"kmnist-{part}-{kind}.npz": npz_bytes(array)
        for part, (images, targets) in parts.items()
        for kind, array in (("imgs", images[..., 0]), ("labels", targets))
    }


def cifar_rows(images, *columns):
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.concatenate([*(column[:, None] for column in columns), planes], axis=1)


def cifar10_files(parts):
    train, test = cifar_rows(*parts["train"]), cifar_rows(*parts["test"])
    files = {f"data_batch_{index + 1}.bin": rows.tobytes() for index, rows in enumerate(np.split(train, 5))}
    return files | {"test_batch.bin": test.tobytes()}


def cifar100_files(parts):
    return {f"{part}.bin": cifar_rows(images, y % 20, y).tobytes() for part, (images, y) in parts.items()}


def svhn_files(parts):
    return {
        f"{part}_32x32.mat": mat_bytes({"X": x.transpose(1, 2, 3, 0), "y": np.where(y == 0, 10, y)[:, None]})
        for part, (x, y) in parts.items()
    }


FORMATS = {
    "mnist": (mnist_files, ("train", "t10k"), (28, 1), 10),
    "fashion_mnist": (mnist_files, ("train", "t10k"), (28, 1), 10),
    "kmnist": (kmnist_files, ("train", "test"), (28, 1), 10),
    "cifar10": (cifar10_files, ("train", "test"), (32, 3), 10),
    "cifar100": (cifar100_files, ("train", "test"), (32, 3), 100),
    "svhn": (svhn_files, ("train", "test"), (32, 3), 10),
}


@pytest.fixture
def write_set(tmp_path, monkeypatch):
    """Writes a small set of an official format; returns what it wrote."""
    monkeypatch.delenv("SYMBNN_DATA_DIR", raising=False)

    def write_named(name):
        make, prefixes, (side, channels), num_classes = FORMATS[name]
        monkeypatch.setitem(IMAGES, name, IMAGES[name]._replace(num_train=NUM_TRAIN, num_test=NUM_TEST))
        sizes = zip(prefixes, (NUM_TRAIN, NUM_TEST), strict=True)
        parts = {part: (pixels(num, side, channels), labels(num, num_classes)) for part, num in sizes}
        write(tmp_path / name, make(parts))
        return parts

    return write_named


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
    with pytest.raises(ValueError, match="without a training part"):
        data.load("cifar10", data_dir=tmp_path, normalised=True, test_only=True)


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


def save_image(path, colour, size=(64, 64)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def tiny_imagenet(tmp_path, monkeypatch):
    """Three classes of four images, and three to validate; a class is a colour."""
    monkeypatch.delenv("SYMBNN_DATA_DIR", raising=False)
    small = IMAGES["tiny_imagenet"]._replace(num_classes=3, num_train=12, num_test=3)
    monkeypatch.setitem(IMAGES, "tiny_imagenet", small)
    root = tmp_path / "tiny_imagenet" / "tiny-imagenet-200"
    classes = ["n03", "n01", "n02"]
    lines = []
    for label, name in enumerate(classes):
        for index in range(4):
            save_image(root / "train" / name / "images" / f"{name}_{index}.JPEG", (80 * label, 0, 0))
        save_image(root / "val" / "images" / f"val_{label}.JPEG", (80 * label, 0, 0))
        lines.append(f"val_{label}.JPEG\t{name}\t0\t0\t1\t1")
    (root / "wnids.txt").write_text("\n".join(classes) + "\n")
    (root / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    return root


def test_tiny_imagenet_is_read_by_its_own_class_order(tmp_path, tiny_imagenet):
    dataset = data.load("tiny_imagenet", data_dir=tmp_path, resize=16)
    assert dataset.train.inputs.shape == (12, 16, 16, 3)
    for split in (dataset.train, dataset.test):
        # JPEG keeps a plain colour to within a few grey levels.
        np.testing.assert_allclose(split.inputs[..., 0].mean(axis=(1, 2)) * 255, 80 * split.targets, atol=4)


def test_validation_images_alone_need_no_training_images(tmp_path, tiny_imagenet):
    shutil.rmtree(tiny_imagenet / "train")
    dataset = data.load("tiny_imagenet", data_dir=tmp_path, test_only=True)
    assert (len(dataset.train.targets), len(dataset.test.targets)) == (0, 3)


def test_broken_image_folders_are_named(tmp_path, tiny_imagenet):
    bad = tiny_imagenet / "train" / "n01" / "images" / "n01_2.JPEG"
    whole = bad.read_bytes()
    bad.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(data.DataError, match=r"n01_2\.JPEG: expected an image"):
        data.load("tiny_imagenet", data_dir=tmp_path)
    bad.unlink()
    with pytest.raises(data.DataError, match="train: expected 12 images of 3 classes; found 11 of 3"):
        data.load("tiny_imagenet", data_dir=tmp_path)
    bad.write_bytes(whole)
    shutil.rmtree(tiny_imagenet / "train" / "n02")
    with pytest.raises(data.DataError, match="train: expected 3 class folders; found 2, without n02"):
        data.load("tiny_imagenet", data_dir=tmp_path)
    (tiny_imagenet / "wnids.txt").write_text("n01 n02 n04")
    with pytest.raises(data.DataError, match=r"val_annotations\.txt: expected file and class in line 1"):
        data.load("tiny_imagenet", data_dir=tmp_path)
    (tiny_imagenet / "wnids.txt").unlink()
    with pytest.raises(data.DataError, match=r"wnids\.txt: expected a text file"):
        data.load("tiny_imagenet", data_dir=tmp_path)


def test_imagenet_is_listed_and_a_subset_decoded(tmp_path, monkeypatch):
    small = IMAGES["imagenet"]._replace(num_classes=2, num_train=4, num_test=2)
    monkeypatch.setitem(IMAGES, "imagenet", small)
    root = tmp_path / "imagenet"
    for label, name in enumerate(("n1", "n2")):
        for index in range(2):
            save_image(root / "train" / name / f"{index}.JPEG", (0, 200 * label, 0), size=(50, 30))
        save_image(root / "val" / name / "0.JPEG", (0, 200 * label, 0), size=(20, 60))
    dataset = data.load("imagenet", data_dir=tmp_path, num_train=3, resize=24)
    assert dataset.train.inputs.shape == (3, 24, 24, 3)
    np.testing.assert_allclose(
        dataset.test.inputs[..., 1].mean(axis=(1, 2)) * 255, 200 * dataset.test.targets, atol=4
    )
    listed = data.image_folder(root / "train")
    assert listed.classes == ("n1", "n2")
    assert listed.read(np.asarray([3]), side=8).inputs.shape == (1, 8, 8, 3)
    monkeypatch.setattr(data.folders, "MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="ask for fewer"):
        data.load("imagenet", data_dir=tmp_path)


def test_images_keep_their_centre(tmp_path):
    picture = np.zeros((40, 80, 3), np.uint8)
    picture[:, 20:60] = 255
    Image.fromarray(picture).save(tmp_path / "wide.png")
    assert data.folders.read_image(tmp_path / "wide.png", 40).min() == 1.0


@pytest.fixture
def uci_folder(tmp_path, monkeypatch):
    monkeypatch.setitem(NUM_ROWS, "yacht", 50)
    folder = tmp_path / "uci" / "yacht"
    folder.mkdir(parents=True)
    table = np.random.default_rng(0).normal(3, 5, (50, 4))
    table[:, 1] = 288.123
    np.savetxt(folder / "data.txt", table)
    (folder / "index_features.txt").write_text("0\n1\n2\n")
    (folder / "index_target.txt").write_text("3\n")
    return folder


def test_uci_sets_are_standardised_by_their_training_part(tmp_path, uci_folder):
    dataset = data.load("uci/yacht", data_dir=tmp_path, seed=3)
    assert dataset.num_classes is None
    assert (dataset.train.inputs.shape, dataset.test.targets.shape) == ((45, 3), (5, 1))
    for values in (dataset.train.inputs[:, [0, 2]], dataset.train.targets):
        np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-5)
        np.testing.assert_allclose(values.std(axis=0), 1, atol=1e-5)
    np.testing.assert_allclose(dataset.train.inputs[:, 1], 0, atol=1e-4)
    table = np.loadtxt(uci_folder / "data.txt")
    back = np.concatenate([split.targets for split in (dataset.train, dataset.test)])
    back = back * dataset.target_scale.std + dataset.target_scale.mean
    np.testing.assert_allclose(np.sort(back[:, 0]), np.sort(table[:, 3]), rtol=1e-4, atol=1e-4)
    other = data.load("uci/yacht", data_dir=tmp_path, seed=4)
    assert not np.array_equal(other.test.inputs, dataset.test.inputs)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("data.txt", "1 2 3 4\n1 2 3\n", "expected rows of numbers"),
        ("data.txt", "1 2 3 4\n", "expected 50 rows; found 1"),
        ("data.txt", "1 2 nan 4\n" * 50, "expected finite numbers; found row 0"),
        ("data.txt", "1 2 x 4\n", "expected rows of numbers"),
        ("index_features.txt", "0 1 4", "column numbers from 0 to 3"),
        ("index_target.txt", "0.5", "column numbers from 0 to 3"),
        ("index_target.txt", None, "expected column numbers"),
    ],
)
def test_wrong_uci_files_are_named(tmp_path, uci_folder, file, content, message):
    (uci_folder / file).unlink() if content is None else (uci_folder / file).write_text(content)
    with pytest.raises(data.DataError, match=f"{file}: .*{message}"):
        data.load("uci/yacht", data_dir=tmp_path)


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
        (lambda: data.load("moons", resize=4), "resize and test_only apply to sets of images, which moons is not"),
        (lambda: data.load("notmnist"), "notmnist: no folder notmnist.*no other source"),
        (lambda: data.load("uci/yacht"), "uci/yacht: no folder"),
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
