"""One entry: a data set by name, from a folder, from `SYMBNN_DATA_DIR` or from tensorflow-datasets.

A folder of the set's name is its source if it holds anything but a copy of tensorflow-datasets. It is then
checked, and what is wrong in it is an error: a damaged copy is never silently replaced by the next source.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from symbnn import names
from symbnn.data import bundled, uci
from symbnn.data.base import DataError, Dataset, Part, Parts, Split, empty_part, normalise, statistics
from symbnn.data.catalogue import read_catalogue
from symbnn.data.images import IMAGES, read_images
from symbnn.data.streamed import Streamed
from symbnn.data.text import LENGTH, TEXTS, text_parts

DATA_DIR_VARIABLE = "SYMBNN_DATA_DIR"


def load(
    name: str,
    *,
    data_dir: str | Path | None = None,
    flatten: bool = False,
    num_train: int | None = None,
    num_test: int | None = None,
    seed: int = 0,
    resize: int | None = None,
    normalised: bool = False,
    test_only: bool = False,
    streamed: bool = False,
    test_share: float | None = None,
    length: int | None = None,
) -> Dataset:
    """The data set `name` as arrays.

    Args:
        name: One of `known`; `describe` says what they are.
        data_dir: Parent of the folder `name`; looked at before `SYMBNN_DATA_DIR`.
        flatten: Give inputs as vectors.
        num_train: Training examples, drawn by `seed`; by default all.
        num_test: Test examples, likewise.
        seed: Of subsets, splits and toy sets.
        resize: Side of the images: block averages, or scaled and cropped where images come as files.
        normalised: Give inputs mean 0 and variance 1 per channel over the training part.
        test_only: Leave the training part empty and do not look for its files.
        streamed: Leave inputs on disk (see `Streamed`): for images by class in folders, such as ImageNet.
        test_share: Of the rows of a table (`diabetes`, `uci/...`) that are the test part; by default a tenth.
        length: Characters of a sequence, of texts; 64 by default.
    """
    names.lookup(dict.fromkeys(known()), name, "data set")
    is_image = name == "digits" or name in IMAGES
    if not is_image and (resize is not None or test_only):
        raise ValueError(f"resize and test_only apply to sets of images, which {name} is not")
    if streamed and (not is_image or flatten or normalised):
        raise ValueError("streamed=True gives images as they are; leave flatten and normalised out")
    is_text, is_table = name.startswith("text/"), name == "diabetes" or name.startswith("uci/")
    if is_text and (flatten or normalised):
        raise ValueError(
            f"{name} is a text, whose characters are whole numbers; leave flatten and normalised out"
        )
    if not is_text and length is not None:
        raise ValueError(f"length applies to texts, which {name} is not")
    if not is_table and test_share is not None:
        raise ValueError(f"test_share applies to tables of rows, which {name} is not; leave it out")
    if is_text:
        dataset = _text_dataset(
            name, data_dir, num_train, num_test, seed, LENGTH if length is None else length
        )
    elif name in bundled.TOYS:
        dataset = bundled.toy(name, bundled.TOYS[name], num_train=num_train, num_test=num_test, seed=seed)
    elif is_table:
        dataset = uci.split_table(
            name,
            _table(name, data_dir),
            num_train=num_train,
            num_test=num_test,
            seed=seed,
            test_share=test_share,
        )
    else:
        parts = bundled.digits() if name == "digits" else _image_parts(name, data_dir, resize, test_only)
        dataset = _image_dataset(name, parts, num_train, num_test, seed, resize, streamed)
    if normalised:
        if not len(dataset.train.targets):
            raise ValueError(f"{name}: normalised=True needs the training part; or use data.normalise")
        scale = statistics(dataset.train)
        dataset = dataset._replace(train=normalise(dataset.train, scale), test=normalise(dataset.test, scale))
    return flattened(dataset) if flatten else dataset


def known() -> list[str]:
    """Names of all data sets."""
    tables, texts = (f"uci/{name}" for name in uci.NUM_ROWS), (f"text/{name}" for name in TEXTS)
    return ["digits", *IMAGES, "diabetes", *tables, *texts, *bundled.TOYS]


def describe() -> str:
    """A line about every data set, for help texts."""
    lines = {"digits": "1,297 + 500 digits of 8x8 pixels, bundled"}
    lines |= {name: info.about for name, info in IMAGES.items()}
    lines["diabetes"] = "regression, 442 rows, bundled"
    lines |= {f"uci/{name}": f"regression, {rows:,} rows" for name, rows in uci.NUM_ROWS.items()}
    lines |= {f"text/{name}": text.about for name, text in TEXTS.items()}
    lines |= {name: (draw.__doc__ or "").rstrip(".") for name, draw in bundled.TOYS.items()}
    width = max(map(len, lines))
    return "\n".join(f"{name:{width}}  {about}" for name, about in lines.items())


def flattened(dataset: Dataset) -> Dataset:
    """The data set with inputs as vectors."""
    train, test = (
        split._replace(inputs=split.inputs.reshape(len(split.inputs), int(np.prod(split.inputs.shape[1:]))))
        for split in (dataset.train, dataset.test)
    )
    return dataset._replace(train=train, test=test, input_shape=tuple(train.inputs.shape[1:]))


def _table(name: str, data_dir: str | Path | None) -> Split:
    """All rows of a table, as they are."""
    if name == "diabetes":
        return bundled.diabetes()
    return uci.read_uci(_required_folder(name, data_dir), uci.NUM_ROWS[name.removeprefix("uci/")])


def _image_parts(name: str, data_dir: str | Path | None, resize: int | None, test_only: bool) -> Parts:
    info = IMAGES[name]
    for folder in _folders(name, data_dir):
        return read_images(folder, name, side=resize, test_only=test_only)
    if info.catalogue is None:
        _required_folder(name, data_dir)
    parts = read_catalogue(name, str(info.catalogue), data_dir=data_dir)
    return Parts(empty_part(parts.test), parts.test) if test_only else parts


def _image_dataset(
    name: str,
    parts: Parts,
    num_train: int | None,
    num_test: int | None,
    seed: int,
    resize: int | None,
    streamed: bool,
) -> Dataset:
    take = _stream if streamed else read_part
    train = take(parts.train, subset(parts.train, num_train, [seed, 0], "num_train"), resize)
    test = take(parts.test, subset(parts.test, num_test, [seed, 1], "num_test"), resize)
    num_classes = IMAGES[name].num_classes if name in IMAGES else 10
    return Dataset(name, train, test, num_classes, tuple(test.inputs.shape[1:]))


def _text_dataset(
    name: str,
    data_dir: str | Path | None,
    num_train: int | None,
    num_test: int | None,
    seed: int,
    length: int,
) -> Dataset:
    text = TEXTS[name.removeprefix("text/")]
    parts = text_parts(text, _text_file(name, data_dir) if text.write is None else None, length=length)
    train = parts.train.read(subset(parts.train, num_train, [seed, 0], "num_train"))
    test = parts.test.read(subset(parts.test, num_test, [seed, 1], "num_test"))
    return Dataset(name, train, test, text.num_symbols, (length,))


def subset(part: Part, num: int | None, seed: list[int], name: str) -> np.ndarray:
    """Indices of `num` examples drawn by `seed`, or of all; `ValueError` naming the setting `name`."""
    if num is not None and not 0 < num <= part.num:
        raise ValueError(f"{name} must be between 1 and {part.num}; got {num}")
    return np.arange(part.num) if num is None else np.random.default_rng(seed).permutation(part.num)[:num]


def read_part(part: Part, indices: np.ndarray, resize: int | None) -> Split:
    """These examples of a part, images averaged down to a side of `resize`."""
    split = part.read(indices)
    return split if resize is None else split._replace(inputs=_pool(split.inputs, resize))


def _stream(part: Part, indices: np.ndarray, resize: int | None) -> Split:
    if part.targets is None:
        raise ValueError("streamed=True needs a folder of images by class, as labels must be known unread")
    shape = read_part(part, indices[:1], resize).inputs.shape[1:]
    inputs = Streamed(lambda chosen: read_part(part, indices[chosen], resize).inputs, (len(indices), *shape))
    return Split(inputs, part.targets[indices])


def _pool(images: np.ndarray, side: int) -> np.ndarray:
    num, height, width, channels = images.shape
    if side < 1 or height % side or width % side:
        raise ValueError(f"resize must divide the sides of the images, {height}x{width} pixels; got {side}")
    blocks = images.reshape(num, side, height // side, side, width // side, channels)
    return blocks.mean(axis=(2, 4), dtype=np.float32)


def _folders(name: str, data_dir: str | Path | None) -> Iterator[Path]:
    for parent in (data_dir, os.environ.get(DATA_DIR_VARIABLE)):
        folder = Path(parent or ".") / name
        if parent and folder.is_dir() and any(folder.iterdir()) and not _is_catalogue(folder):
            yield folder


def _text_file(name: str, data_dir: str | Path | None) -> Path:
    paths = [
        Path(parent) / f"{name}.txt" for parent in (data_dir, os.environ.get(DATA_DIR_VARIABLE)) if parent
    ]
    for path in paths:
        if path.exists():
            return path
    raise DataError(
        f"{name}: no file {name}.txt in data_dir ({data_dir}) or {DATA_DIR_VARIABLE} "
        f"({os.environ.get(DATA_DIR_VARIABLE)}); put it there; there is no other source"
    )


def _is_catalogue(folder: Path) -> bool:
    return any(folder.glob("*.*.*/dataset_info.json"))


def _required_folder(name: str, data_dir: str | Path | None) -> Path:
    for folder in _folders(name, data_dir):
        return folder
    raise DataError(
        f"{name}: no folder {name} in data_dir ({data_dir}) or {DATA_DIR_VARIABLE} "
        f"({os.environ.get(DATA_DIR_VARIABLE)}); put its official files there; there is no other source"
    )
