"""A leaf as plain pieces: one array axis per atom, concatenations and slices taken apart.

`split` and `join` are inverse. Everything that acts on weights by groups (act, matching costs, gauges) works
on pieces, so no caller meets a word.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from symbnn.symmetry.spec.spec import Factor, Segments, Slices, Word, atoms, parts, word_size


class Piece(NamedTuple):
    """An array with one axis per factor."""

    factors: tuple[Factor, ...]
    array: jax.Array


def split(axes: tuple[Word, ...], array: jax.Array) -> list[Piece]:
    """Pieces of an array whose axes are described by words."""
    slices = parts(axes)
    if slices != (axes,):
        cut = _cut([words[0] for words in slices], array, 0)
        return [piece for words, part in zip(slices, cut, strict=True) for piece in split(words, part)]
    flat = [factor for word in axes for factor in word]
    array = array.reshape([factor.size for factor in flat])
    for axis, factor in enumerate(flat):
        if isinstance(factor, Segments):
            before, after = _one_factor_words(flat[:axis]), _one_factor_words(flat[axis + 1 :])
            return [
                piece
                for word, part in zip(factor.words, _cut(factor.words, array, axis), strict=True)
                for piece in split((*before, word, *after), part)
            ]
    return [Piece(tuple(flat), array)]  # type: ignore[arg-type]


def join(axes: tuple[Word, ...], pieces: list[jax.Array]) -> jax.Array:
    """The array whose `split` has these piece arrays."""
    remaining = list(pieces)
    array = _join(axes, remaining)
    if remaining:
        raise ValueError(f"{len(remaining)} pieces too many for {axes}")
    return array


def cut_words(axes: tuple[Word, ...], places: Sequence[slice]) -> tuple[Word, ...] | None:
    """Words of a part of an array; None where the part splits an atom. Axes without a place are whole."""
    first, *rest = places or (slice(None),)
    start, stop, _ = first.indices(word_size(axes[0]))
    slices, end = parts(axes), 0
    if slices != (axes,):
        for words in slices:
            begin, end = end, end + word_size(words[0])
            if (begin, end) == (start, stop):
                return cut_words(words, [slice(None), *rest])
        return None
    cut = [
        _cut_word(word, *place.indices(word_size(word))[:2])
        for word, place in zip(axes, places, strict=False)
    ]
    if any(word is None for word in cut):
        return None
    return (*(word for word in cut if word is not None), *axes[len(places) :])


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
    slices = parts(axes)
    if slices != (axes,):
        return jnp.concatenate([_join(words, remaining) for words in slices])
    flat = [factor for word in axes for factor in word]
    shape = [word_size(word) for word in axes]
    for axis, factor in enumerate(flat):
        if isinstance(factor, Segments):
            before, after = _one_factor_words(flat[:axis]), _one_factor_words(flat[axis + 1 :])
            joined = [_join((*before, word, *after), remaining) for word in factor.words]
            return jnp.concatenate(joined, axis=axis).reshape(shape)
    return remaining.pop(0).reshape(shape)


def _one_factor_words(factors: list[Factor | Segments | Slices]) -> list[Word]:
    return [(factor,) for factor in factors]


def _cut(words: Sequence[Word], array: jax.Array, axis: int) -> list[jax.Array]:
    start, cut = 0, []
    for word in words:
        stop = start + word_size(word)
        cut.append(jax.lax.slice_in_dim(array, start, stop, axis=axis))
        start = stop
    return cut
