"""CIFAR's binary format: per image one label byte (CIFAR-100: coarse, then fine), then 3x32x32 pixels."""

from pathlib import Path

import numpy as np

from symbnn.data.base import Part, bad_file, check_labels, find, image_part

PIXELS = 3 * 32 * 32
# Folders inside the official archives.
INNER_FOLDERS = ("", "cifar-10-batches-bin", "cifar-100-binary")
CIFAR10_TRAIN = tuple(f"data_batch_{index}.bin" for index in range(1, 6))


def read_cifar_part(folder: Path, files: tuple[str, ...], *, num: int, num_classes: int) -> Part:
    """The images of `files` one after the other; `num` in all, the same number in each."""
    num_labels = 1 if num_classes == 10 else 2
    advice = "unpack the official binary archive there"
    paths = [find(*(folder / inner / name for inner in INNER_FOLDERS), advice=advice) for name in files]
    joined = np.concatenate([_read_rows(path, num // len(files), num_labels, num_classes) for path in paths])
    images = joined[:, num_labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return image_part(images, joined[:, num_labels - 1])


def _read_rows(path: Path, num: int, num_labels: int, num_classes: int) -> np.ndarray:
    row = num_labels + PIXELS
    if path.stat().st_size != num * row:
        raise bad_file(
            path, expected=f"{num} images in {num * row} bytes", found=f"{path.stat().st_size} bytes"
        )
    rows = np.fromfile(path, np.uint8).reshape(num, row)
    if num_labels == 2:
        check_labels(path, rows[:, 0], 20)
    check_labels(path, rows[:, num_labels - 1], num_classes)
    return rows
