"""Texts by characters: sequences, and at every place of one the character that follows.

A text is cut into sequences of equal length, one after the other; the last tenth of it is the test part. Its
symbols are its different characters, numbered in the order of their codes.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from symbnn.data.base import Part, Parts, Split, bad_file, reading

TEST_SHARE = 0.1
LENGTH = 64
"""Characters of a sequence, unless told otherwise."""
UNITS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


class Text(NamedTuple):
    """What is known of a text; one with `write` needs no file."""

    about: str
    num_characters: int
    num_symbols: int
    write: Callable[[], str] | None = None


def text_parts(text: Text, path: Path | None, *, length: int) -> Parts:
    """Sequences of a text, which is in the file `path` if it has one."""
    if length < 1:
        raise ValueError(f"length must be at least 1 character; got {length}")
    content = _read(text, path) if text.write is None else text.write()
    symbols, numbers = np.unique(np.array(list(content)), return_inverse=True)
    assert len(symbols) == text.num_symbols
    num_test = round(TEST_SHARE * len(numbers))
    for part, size in (("training", len(numbers) - num_test), ("test", num_test)):
        if size <= length:
            raise ValueError(f"length must be below that of the {part} part, {size} characters; got {length}")
    return Parts(_part(numbers[:-num_test], length), _part(numbers[-num_test:], length))


def numbers_in_words() -> str:
    """The numbers from zero to 999 in words, one a line."""
    return "".join(f"{_in_words(number)}\n" for number in range(1_000))


def _read(text: Text, path: Path | None) -> str:
    assert path is not None
    with reading(path, f"{text.num_characters:,} characters of text"):
        content = path.read_text(encoding="utf-8")
    found = len(content), len(set(content))
    if found != (text.num_characters, text.num_symbols):
        raise bad_file(
            path,
            expected=f"{text.num_characters:,} characters, {text.num_symbols} different ones",
            found=f"{found[0]:,}, {found[1]} different ones",
        )
    return content


def _part(numbers: np.ndarray, length: int) -> Part:
    num = (len(numbers) - 1) // length
    inputs, targets = (
        numbers[start : start + num * length].reshape(num, length).astype(np.int32) for start in (0, 1)
    )
    return Part(num, lambda indices: Split(inputs[indices], targets[indices]), targets)


def _in_words(number: int) -> str:
    if number >= 100:
        rest = f" {_in_words(number % 100)}" if number % 100 else ""
        return f"{UNITS[number // 100]} hundred{rest}"
    if number >= 20:
        return TENS[number // 10 - 2] + (f" {UNITS[number % 10]}" if number % 10 else "")
    return UNITS[number]


TEXTS: dict[str, Text] = {
    "shakespeare": Text("plays of Shakespeare by characters, 1.1 million of them", 1_115_394, 65),
    "numbers": Text(
        "the numbers from zero to 999 in words, by characters, bundled", 21_955, 20, numbers_in_words
    ),
}
