"""Words: what an axis of an array is made of.

A word is a row-major product of factors, slowest first. A factor is an atom, positions that one group
relabels, or `Segments`, words laid end to end (concatenation). A hidden layer that is flattened after a
convolution has the word (height·width)·channels; the input of a layer after a skip connection has the word
(encoder + decoder). An array that holds several layers and is only ever read slice by slice (`W[0]`, `W[1]`)
has `Slices`: words of their own for every slice. So has one whose columns hold several layers (fused queries,
keys and values).

What an atom is depends on who writes the word: `Factor` in a spec, a class of positions while discovery still
finds out what belongs together. All that a word asks of it is a `size`.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

Word = tuple[Any, ...]
"""Atoms, `Segments` or `Slices`."""


@dataclass(frozen=True)
class Segments:
    """Words laid end to end along one axis."""

    words: tuple[Word, ...]

    @property
    def size(self) -> int:
        """Total length."""
        return sum(map(word_size, self.words))


@dataclass(frozen=True)
class Slices:
    """Slices of an array along an axis, each with words of its own for all axes.

    It is the only factor of the first axis; the words of the other axes then say no more than their lengths.
    Where the slices are interleaved, the axis is first read as `outer` blocks, and each slice has a part of
    every block: `W[::2]` and `W[1::2]` are slices of blocks of two.
    """

    parts: tuple[tuple[Word, ...], ...]
    axis: int = 0
    outer: int = 1

    @property
    def size(self) -> int:
        """Length of the array's first axis."""
        lengths = [word_size(part[0]) for part in self.parts]
        return lengths[0] if self.axis else sum(lengths)

    def lengths(self) -> tuple[int, ...]:
        """How much of a block every slice takes."""
        return tuple(word_size(part[self.axis]) // self.outer for part in self.parts)

    def cut(self, shape: tuple[int, ...]) -> "Cut":
        """Where an array of that shape falls into the slices."""
        before, length, after = shape[: self.axis], shape[self.axis], shape[self.axis + 1 :]
        viewed = (*before, self.outer, length // self.outer, *after)
        return Cut(viewed, self.axis + 1, self.parts, self.lengths())


class Cut(NamedTuple):
    """Where an array falls into parts: reshaped to `shape`, it is their concatenation along `axis`."""

    shape: tuple[int, ...]
    axis: int
    parts: tuple[tuple[Word, ...], ...]
    """The words of every part."""
    lengths: tuple[int, ...]
    """Of the parts, along the axis."""


def word_size(word: Word) -> int:
    """Length of the axis that a word describes."""
    return math.prod(factor.size for factor in word)


def slices_of(axes: tuple[Word, ...]) -> Slices | None:
    """The slices that an array has words of their own for, if it has any."""
    first = axes[0][0] if axes and axes[0] else None
    return first if isinstance(first, Slices) else None


def slices(axes: tuple[Word, ...]) -> tuple[tuple[Word, ...], ...]:
    """The words of every slice of an array, and of slices of slices; of the whole where it has none."""
    sliced = slices_of(axes)
    return (axes,) if sliced is None else tuple(words for part in sliced.parts for words in slices(part))


def atoms(word: Word) -> Iterator[Any]:
    """The atoms of a word, depth first."""
    for factor in word:
        if isinstance(factor, Segments | Slices):
            inner = (factor.words,) if isinstance(factor, Segments) else factor.parts
            for each in (word for words in inner for word in words):
                yield from atoms(each)
        else:
            yield factor


def map_atoms(function: Callable[[Any], Any], word: Word) -> Word:
    """The word with every atom replaced by what the function makes of it."""

    def mapped(factor: Any) -> Any:
        if isinstance(factor, Segments):
            return Segments(tuple(map_atoms(function, inner) for inner in factor.words))
        if isinstance(factor, Slices):
            parts = tuple(tuple(map_atoms(function, w) for w in part) for part in factor.parts)
            return replace(factor, parts=parts)
        return function(factor)

    return tuple(map(mapped, word))


def first_cut(axes: tuple[Word, ...]) -> Cut | None:
    """The first slices or segments of an array; None where every factor is an atom."""
    if (sliced := slices_of(axes)) is not None:
        return sliced.cut(tuple(map(word_size, axes)))
    flat = [factor for word in axes for factor in word]
    for axis, factor in enumerate(flat):
        if isinstance(factor, Segments):
            before, after = [(f,) for f in flat[:axis]], [(f,) for f in flat[axis + 1 :]]
            shape = tuple(f.size for f in flat)
            parts = tuple((*before, word, *after) for word in factor.words)
            return Cut(shape, axis, parts, tuple(map(word_size, factor.words)))
    return None


def pieces(axes: tuple[Word, ...]) -> Iterator[tuple[Any, ...]]:
    """The atoms of an array, once for every choice of slice and segments: one array axis each."""
    cut = first_cut(axes)
    if cut is None:
        yield tuple(factor for word in axes for factor in word)
        return
    for part in cut.parts:
        yield from pieces(part)
