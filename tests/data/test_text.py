"""Texts by characters: sequences that follow one another, and files that are not what they should be."""

import numpy as np
import pytest

from symbnn import data
from symbnn.data.text import TEXTS, Text


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("SYMBNN_DATA_DIR", raising=False)
    monkeypatch.setitem(TEXTS, "shakespeare", Text("a short one", 100, 4))
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "shakespeare.txt").write_text("abcd" * 25)
    return tmp_path


def test_the_target_of_a_character_is_the_next_one(folder):
    dataset = data.load("text/shakespeare", data_dir=folder, length=4)
    assert dataset.num_classes == 4
    assert dataset.input_shape == (4,)
    assert (len(dataset.train.inputs), len(dataset.test.inputs)) == (22, 2)
    np.testing.assert_array_equal(dataset.train.inputs, np.tile([0, 1, 2, 3], (22, 1)))
    np.testing.assert_array_equal(dataset.train.targets, np.tile([1, 2, 3, 0], (22, 1)))
    np.testing.assert_array_equal(dataset.test.inputs, (np.tile(np.arange(4), (2, 1)) + 90) % 4)
    fewer = data.load("text/shakespeare", data_dir=folder, length=4, num_train=5, num_test=1)
    assert (len(fewer.train.inputs), len(fewer.test.targets)) == (5, 1)


def test_numbers_in_words_need_no_file(monkeypatch):
    monkeypatch.delenv("SYMBNN_DATA_DIR", raising=False)
    text = TEXTS["numbers"]
    lines = text.write().splitlines()
    assert (lines[0], lines[13], lines[40], lines[99]) == ("zero", "thirteen", "forty", "ninety nine")
    assert (lines[100], lines[217], len(lines)) == ("one hundred", "two hundred seventeen", 1000)
    assert (len(text.write()), len(set(text.write()))) == (text.num_characters, text.num_symbols)
    dataset = data.load("text/numbers", length=16)
    assert dataset.train.inputs.max() == dataset.num_classes - 1
    assert dataset.train.inputs.dtype == dataset.train.targets.dtype == np.int32


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"abcd" * 24, "expected 100 characters, 4 different ones; found 96, 4 different ones"),
        (b"abce" * 24 + b"abcd", "found 100, 5 different ones"),
        (b"\xff" * 100, "expected 100 characters of text; found .*utf-8"),
    ],
)
def test_a_wrong_file_is_named(folder, content, message):
    (folder / "text" / "shakespeare.txt").write_bytes(content)
    with pytest.raises(data.DataError, match=rf"shakespeare\.txt: .*{message}"):
        data.load("text/shakespeare", data_dir=folder)


def test_a_missing_file_and_settings_that_do_not_fit_are_refused(folder, tmp_path):
    (folder / "text" / "shakespeare.txt").unlink()
    with pytest.raises(data.DataError, match=r"no file text/shakespeare\.txt in data_dir .*put it there"):
        data.load("text/shakespeare", data_dir=folder)
    with pytest.raises(ValueError, match="length must be at least 1 character; got 0"):
        data.load("text/numbers", length=0)
    with pytest.raises(ValueError, match="length must be below that of the test part, 2196 characters"):
        data.load("text/numbers", length=5_000)
    with pytest.raises(ValueError, match="length applies to texts, which digits is not"):
        data.load("digits", length=5)
    with pytest.raises(ValueError, match="text/numbers is a text, whose characters are whole numbers"):
        data.load("text/numbers", flatten=True)
