"""A leaf as plain pieces: one array axis per atom, concatenations taken apart.

`split` and `join` are inverse. Everything that acts on weights by groups (act, matching costs, gauges) works
on pieces, so no caller meets a word.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from symbnn.symmetry.spec import Factor, Segments, Word, word_size


class Piece(NamedTuple):
    """An array with one axis per factor."""

    factors: tuple[Factor, ...]
    array: jax.Array


def split(axes: tuple[Word, ...], array: jax.Array) -> list[Piece]:
    """Pieces of an array whose axes are described by words."""
    flat = [factor for word in axes for factor in word]
    array = array.reshape([factor.size for factor in flat])
    for axis, factor in enumerate(flat):
        if isinstance(factor, Segments):
            before, after = _one_factor_words(flat[:axis]), _one_factor_words(flat[axis + 1 :])
            return [
                piece
                for word, part in zip(factor.words, _cut(factor, array, axis), strict=True)
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


def _join(axes: tuple[Word, ...], remaining: list[jax.Array]) -> jax.Array:
    flat = [factor for word in axes for factor in word]
    shape = [word_size(word) for word in axes]
    for axis, factor in enumerate(flat):
        if isinstance(factor, Segments):
            before, after = _one_factor_words(flat[:axis]), _one_factor_words(flat[axis + 1 :])
            parts = [_join((*before, word, *after), remaining) for word in factor.words]
            return jnp.concatenate(parts, axis=axis).reshape(shape)
    return remaining.pop(0).reshape(shape)


def _one_factor_words(factors: list[Factor | Segments]) -> list[Word]:
    return [(factor,) for factor in factors]


def _cut(segments: Segments, array: jax.Array, axis: int) -> list[jax.Array]:
    start, parts = 0, []
    for word in segments.words:
        stop = start + word_size(word)
        parts.append(jax.lax.slice_in_dim(array, start, stop, axis=axis))
        start = stop
    return parts
