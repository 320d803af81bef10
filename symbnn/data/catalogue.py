"""tensorflow-datasets as a source: read without TensorFlow, from array_record files."""

from pathlib import Path
from typing import Any

import numpy as np

from symbnn.data.base import DataError, Part, Parts, image_part
from symbnn.extras import extra


def read_catalogue(name: str, catalogue_name: str, *, data_dir: str | Path | None) -> Parts:
    """The set `catalogue_name` of tensorflow-datasets, downloaded there if it is not yet prepared."""
    with extra("studies", f"{name}, which no folder of data_dir or SYMBNN_DATA_DIR holds,"):
        import tensorflow_datasets as tfds

    try:
        train, test = tfds.data_source(
            catalogue_name,
            split=["train", "test"],
            data_dir=data_dir,
            builder_kwargs={"file_format": "array_record"},
        )
    except Exception as error:  # the library raises whatever its downloaders, parsers and builders raise
        raise DataError(
            f"{name}: no folder of that name in data_dir or SYMBNN_DATA_DIR, and tensorflow-datasets cannot "
            f"provide {catalogue_name!r} ({type(error).__name__}: {error}); put the official files into a "
            f"folder {name} and name its parent by data_dir or SYMBNN_DATA_DIR"
        ) from error
    return Parts(_part(train), _part(test))


def _part(source: Any) -> Part:
    def read(indices: np.ndarray) -> Any:
        examples = [source[int(index)] for index in indices]
        images = np.stack([np.asarray(example["image"]) for example in examples])
        labels = np.asarray([example["label"] for example in examples])
        return image_part(images, labels).read(np.arange(len(examples)))

    return Part(len(source), read)
