"""Small sets in every official format, as bytes."""

import gzip
import io
import struct

import numpy as np
import scipy.io

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
