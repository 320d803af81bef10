"""The image sets: what they are, how many there must be, which reader reads their files."""

from pathlib import Path
from typing import NamedTuple

from symbnn.data import archives, cifar, folders, idx
from symbnn.data.base import Part, Parts, bad_file, empty_part


class Info(NamedTuple):
    """An image set; `catalogue` is its name in tensorflow-datasets."""

    about: str
    num_classes: int
    num_train: int
    num_test: int
    catalogue: str | None


IMAGES: dict[str, Info] = {
    "mnist": Info("60,000 + 10,000 digits of 28x28 pixels; idx", 10, 60_000, 10_000, "mnist"),
    "fashion_mnist": Info("60,000 + 10,000 clothes, 28x28; idx", 10, 60_000, 10_000, "fashion_mnist"),
    "kmnist": Info("60,000 + 10,000 kanji, 28x28; npz", 10, 60_000, 10_000, "kmnist"),
    "notmnist": Info("10,000 letters A to J, 28x28, test only; idx", 10, 0, 10_000, None),
    "cifar10": Info("50,000 + 10,000 photographs, 32x32; binary", 10, 50_000, 10_000, "cifar10"),
    "cifar100": Info("50,000 + 10,000 photographs, 32x32; binary", 100, 50_000, 10_000, "cifar100"),
    "svhn": Info("73,257 + 26,032 house numbers, 32x32; mat", 10, 73_257, 26_032, "svhn_cropped"),
    "tiny_imagenet": Info("100,000 + 10,000 photographs, 64x64; folders", 200, 100_000, 10_000, None),
    "imagenet": Info("1,281,167 + 50,000 photographs; folders train, val", 1000, 1_281_167, 50_000, None),
}
IMAGENET_SIDE = 224


def read_images(folder: Path, name: str, *, side: int | None, test_only: bool) -> Parts:
    """Both parts of the image set `name` in `folder`; the training part is empty if it is not wanted."""
    info = IMAGES[name]
    if name in ("tiny_imagenet", "imagenet"):
        return _folder_parts(folder, name, info, side, test_only)
    test = _read_part(folder, name, info, "test")
    if test_only or not info.num_train:
        return Parts(empty_part(test), test)
    return Parts(_read_part(folder, name, info, "train"), test)


def _read_part(folder: Path, name: str, info: Info, part: str) -> Part:
    num = info.num_train if part == "train" else info.num_test
    if name == "kmnist":
        return archives.read_kmnist_part(folder, part, num=num)
    if name == "svhn":
        return archives.read_svhn_part(folder, part, num=num)
    if name == "cifar10":
        files = cifar.CIFAR10_TRAIN if part == "train" else ("test_batch.bin",)
        return cifar.read_cifar_part(folder, files, num=num, num_classes=info.num_classes)
    if name == "cifar100":
        return cifar.read_cifar_part(folder, (f"{part}.bin",), num=num, num_classes=info.num_classes)
    return idx.read_mnist_part(folder, "train" if part == "train" else "t10k", num=num)


def _folder_parts(folder: Path, name: str, info: Info, side: int | None, test_only: bool) -> Parts:
    if name == "tiny_imagenet":
        read_train, read_test = folders.tiny_imagenet_train, folders.tiny_imagenet_val
        side = 64  # `resize` then averages blocks, as for any other small image
    else:
        read_train, read_test = folders.imagenet_train, folders.imagenet_val
        side = side or IMAGENET_SIDE
    test = _checked(folder / "val", read_test(folder), info, info.num_test).part(side=side)
    if test_only:
        return Parts(empty_part(test), test)
    return Parts(_checked(folder / "train", read_train(folder), info, info.num_train).part(side=side), test)


def _checked(path: Path, listed: folders.ImageFolder, info: Info, num: int) -> folders.ImageFolder:
    if len(listed.classes) != info.num_classes or len(listed.paths) != num:
        raise bad_file(
            path,
            expected=f"{num} images of {info.num_classes} classes",
            found=f"{len(listed.paths)} of {len(listed.classes)}",
            advice="unpack the official archive again",
        )
    return listed
