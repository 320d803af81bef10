"""Small sets on disk."""

import pytest

from symbnn.data.images import IMAGES
from tests.data.files import FORMATS, NUM_TEST, NUM_TRAIN, labels, pixels, write


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
