"""A leaf as plain pieces: one array axis per atom, concatenations and slices taken apart.

`split` and `join` are inverse, and the factors of `split` are `words.pieces`. Everything that acts on weights
by groups (act, matching costs, gauges) works on pieces, so no caller meets a word.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp

from symbnn.symmetry.spec.spec import Factor
from symbnn.symmetry.spec.words import Segments, Slices, Word, atoms, first_cut, slices_of, word_size


class Piece(NamedTuple):
    """An array with one axis per factor."""

    factors: tuple[Factor, ...]
    array: jax.Array


def split(axes: tuple[Word, ...], array: jax.Array) -> list[Piece]:
    """Pieces of an array whose axes are described by words."""
    cut = first_cut(axes)
    if cut is None:
        factors = tuple(factor for word in axes for factor in word)
        return [Piece(factors, array.reshape([factor.size for factor in factors]))]
    array, stop, found = array.reshape(cut.shape), 0, []
    for words, length in zip(cut.parts, cut.lengths, strict=True):
        start, stop = stop, stop + length
        found += split(words, jax.lax.slice_in_dim(array, start, stop, axis=cut.axis))
    return found


def join(axes: tuple[Word, ...], pieces: list[jax.Array]) -> jax.Array:
    """The array whose `split` has these piece arrays."""
    remaining = list(pieces)
    array = _join(axes, remaining)
    if remaining:
        raise ValueError(f"got {len(pieces)} pieces; the axes {axes} have {len(pieces) - len(remaining)}")
    return array


def cut_words(axes: tuple[Word, ...], places: Sequence[slice]) -> tuple[Word, ...] | None:
    """Words of a part of an array; None where the part splits an atom. Axes without a place are whole."""
    if (sliced := slices_of(axes)) is not None:
        return _cut_slices(sliced, axes, [*places, *[slice(None)] * (len(axes) - len(places))])
    cut = [
        _cut_word(word, *place.indices(word_size(word))[:2])
        for word, place in zip(axes, places, strict=False)
    ]
    if any(word is None for word in cut):
        return None
    return (*(word for word in cut if word is not None), *axes[len(places) :])


def words_by_axis(axes: tuple[Word, ...]) -> tuple[Word, ...]:
    """Words of an array that is used whole although its columns are described in slices: axis by axis.

    Along other axes the slices must agree on their groups, or nothing is said; slices along the first axis,
    which are only ever used one by one, stay.
    """
    sliced = slices_of(axes)
    if sliced is None:
        return axes
    parts = tuple(map(words_by_axis, sliced.parts))
    if sliced.axis == 0 and sliced.outer == 1:
        return ((replace(sliced, parts=parts),), *axes[1:])
    words = [_common([part[axis] for part in parts]) for axis in range(len(axes))]
    own = [part[sliced.axis] for part in parts]
    blocks = _common([word[:1] for word in own])
    if sliced.outer == 1:
        words[sliced.axis] = (Segments(tuple(own)),)
    elif word_size(blocks) == sliced.outer and blocks == own[0][:1]:
        words[sliced.axis] = (*blocks, Segments(tuple(word[1:] or (Factor(1),) for word in own)))
    else:
        words[sliced.axis] = (Factor(sum(map(word_size, own))),)
    return tuple(words)


def _common(words: list[Word]) -> Word:
    """The first of several words if they have the same groups; else no more than its length."""
    groups = [[(factor.size, factor.group) for factor in atoms(word)] for word in words]
    return words[0] if all(each == groups[0] for each in groups) else (Factor(word_size(words[0])),)


def _cut_slices(sliced: Slices, axes: tuple[Word, ...], places: list[slice]) -> tuple[Word, ...] | None:
    """Words of a part that is one of the slices."""
    start, stop, _ = places[sliced.axis].indices(word_size(axes[sliced.axis]))
    end = 0
    for words, length in zip(sliced.parts, sliced.lengths(), strict=True):
        begin, end = end, end + length
        if (begin, end) == (start, stop) and sliced.outer == 1:
            places[sliced.axis] = slice(None)
            return cut_words(words, places)
    return None


def _cut_word(word: Word, start: int, stop: int) -> Word | None:
    if (start, stop) == (0, word_size(word)):
        return word
    if all(factor.group is None for factor in atoms(word)):
        return (Factor(stop - start),)
    first = word[0]
    if len(word) > 1 or not isinstance(first, Segments):
        return None
    end = 0
    for inner in first.words:
        begin, end = end, end + word_size(inner)
        if begin <= start and stop <= end:
            return _cut_word(inner, start - begin, stop - begin)
    return None


def _join(axes: tuple[Word, ...], remaining: list[jax.Array]) -> jax.Array:
    cut = first_cut(axes)
    if cut is None:
        array = remaining.pop(0)
    else:
        before, after = cut.shape[: cut.axis], cut.shape[cut.axis + 1 :]
        parts = [
            _join(words, remaining).reshape(*before, length, *after)
            for words, length in zip(cut.parts, cut.lengths, strict=True)
        ]
        array = jnp.concatenate(parts, axis=cut.axis)
    return array.reshape([word_size(word) for word in axes])
