"""Images in folders by class, Tiny-ImageNet and ImageNet: listed at once, decoded when asked for."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from symbnn.data.base import Part, Split, bad_file, reading
from symbnn.extras import extra

SUFFIXES = (".jpeg", ".jpg", ".png")
# Twice the largest ImageNet picture; a header that promises more is a decompression bomb.
MAX_PIXELS = 2**27
# Arrays of more than this are a mistake: take a subset, or stream.
MAX_BYTES = 16 * 2**30


class ImageFolder(NamedTuple):
    """Paths and labels of images, and the class names that the labels count."""

    paths: tuple[Path, ...]
    labels: np.ndarray
    classes: tuple[str, ...]

    def read(self, indices: np.ndarray, *, side: int) -> Split:
        """The images at `indices`: shorter side scaled to `side`, centre cropped, floats in [0, 1]."""
        num_bytes = len(indices) * side * side * 3 * 4
        if num_bytes > MAX_BYTES:
            raise ValueError(
                f"{len(indices)} images of {side}x{side} pixels need {num_bytes / 2**30:.0f} GiB; "
                "ask for fewer (num_train, num_test), or load with streamed=True"
            )
        images = np.empty((len(indices), side, side, 3), np.float32)
        # Decoders let other threads run meanwhile.
        with ThreadPoolExecutor() as pool:
            for row, image in enumerate(pool.map(lambda index: read_image(self.paths[index], side), indices)):
                images[row] = image
        return Split(images, self.labels[indices])

    def part(self, *, side: int) -> Part:
        """All of it as a part."""
        return Part(len(self.paths), lambda indices: self.read(indices, side=side), self.labels)


def image_folder(folder: str | Path, *, classes: tuple[str, ...] | None = None) -> ImageFolder:
    """`folder/CLASS/**/*.jpeg` (or jpg, png), classes in sorted order; they must be `classes` if given."""
    folder = Path(folder)
    if not folder.is_dir():
        raise bad_file(folder, expected="a folder with one folder per class", found="no folder")
    found = _class_folders(folder)
    if not found or (classes is not None and found != tuple(sorted(classes))):
        missing = sorted(set(classes or ["one folder per class"]) - set(found))
        raise bad_file(
            folder,
            expected=f"{len(classes) if classes else 'some'} class folders",
            found=f"{len(found)}, without {', '.join(missing[:3])}" if missing else f"{len(found)}",
        )
    classes = classes or found
    listed = [(path, label) for label, name in enumerate(classes) for path in _images(folder / name)]
    paths, labels = zip(*listed, strict=True) if listed else ((), ())
    return ImageFolder(tuple(paths), np.asarray(labels, np.int32), classes)


def imagenet_train(folder: Path) -> ImageFolder:
    """The images in `train/CLASS`."""
    return image_folder(folder / "train")


def imagenet_val(folder: Path) -> ImageFolder:
    """The images in `val/CLASS`; the classes are those of the training images if these are there."""
    train = folder / "train"
    return image_folder(folder / "val", classes=_class_folders(train) if train.is_dir() else None)


def tiny_imagenet_train(folder: Path) -> ImageFolder:
    """The training images of `tiny-imagenet-200` as unpacked, classes in the order of `wnids.txt`."""
    root = _tiny_root(folder)
    return image_folder(root / "train", classes=tuple(_read_words(root / "wnids.txt")))


def tiny_imagenet_val(folder: Path) -> ImageFolder:
    """The validation images of `tiny-imagenet-200`, with the classes of `val_annotations.txt`."""
    root = _tiny_root(folder)
    classes = tuple(_read_words(root / "wnids.txt"))
    numbers = {name: label for label, name in enumerate(classes)}
    table = root / "val" / "val_annotations.txt"
    paths, labels = [], []
    for number, line in enumerate(_read_lines(table), start=1):
        name, _, rest = line.partition("\t")
        label = numbers.get(rest.split("\t")[0])
        # A name with a folder in it would lead out of this one.
        if label is None or name in ("", "..") or Path(name).name != name:
            raise bad_file(table, expected=f"file and class in line {number}", found=repr(line[:60]))
        paths.append(root / "val" / "images" / name)
        labels.append(label)
    return ImageFolder(tuple(paths), np.asarray(labels, np.int32), classes)


def read_image(path: Path, side: int) -> np.ndarray:
    """One image as `(side, side, 3)` floats in [0, 1]; `DataError` if it cannot be decoded."""
    with extra("studies", "reading images from folders"):
        from PIL import Image

    with reading(path, "an image", (OSError, SyntaxError)), Image.open(path) as image:
        if image.width * image.height > MAX_PIXELS:
            raise bad_file(path, expected=f"at most {MAX_PIXELS} pixels", found=f"{image.size}")
        rgb = image.convert("RGB")
    scale = side / min(rgb.size)
    if scale != 1:
        size = (max(side, round(rgb.width * scale)), max(side, round(rgb.height * scale)))
        rgb = rgb.resize(size, Image.Resampling.BILINEAR)
    left, top = (rgb.width - side) // 2, (rgb.height - side) // 2
    return np.asarray(rgb.crop((left, top, left + side, top + side)), np.float32) / np.float32(255)


def _class_folders(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(entry.name for entry in folder.iterdir() if entry.is_dir()))


def _tiny_root(folder: Path) -> Path:
    return folder / "tiny-imagenet-200" if (folder / "tiny-imagenet-200").is_dir() else folder


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)


def _read_lines(path: Path) -> list[str]:
    with reading(path, "a text file"):
        return path.read_text(encoding="utf-8").splitlines()


def _read_words(path: Path) -> list[str]:
    return " ".join(_read_lines(path)).split()
