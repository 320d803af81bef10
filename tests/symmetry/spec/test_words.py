"""Words and pieces: what they describe, and that arrays come apart and together as they say."""

import jax.numpy as jnp
import numpy as np
import pytest

from symbnn.symmetry.spec import (
    Factor,
    Group,
    Leaf,
    Segments,
    Slices,
    SymmetrySpec,
    atoms,
    join,
    map_atoms,
    pieces,
    slices,
    split,
    word_size,
    words_by_axis,
)
from tests.symmetry.specs import concatenated_spec, everything_spec

A, B, C = Factor(2, "a"), Factor(3, "b"), Factor(4, "c")
SLICED = Leaf("sliced", (3, 6), ((Slices((((Factor(1),), (A, B)), ((A,), (Factor(6),)))),), (Factor(6),)))
NESTED = Leaf("nested", (14, 5), ((A, Segments(((B,), (C,)))), (Segments(((A,), (B,))),)))
COLUMNS = Leaf("columns", (3, 6), ((Slices((((B,), (A,)), ((Factor(3),), (C,))), axis=1),), (Factor(6),)))
TURNS = Slices((((A, B), (B,)), ((A, C), (B,))), outer=2)
INTERLEAVED = Leaf("interleaved", (14, 3), ((TURNS,), (Factor(3),)))
TWICE = Leaf("twice", (3, 6), ((Slices((COLUMNS.axes,)),), (Factor(6),)))
LEAVES = [*everything_spec().leaves, *concatenated_spec().leaves, SLICED, NESTED]
LEAVES += [COLUMNS, INTERLEAVED, TWICE]


def numbered(leaf):
    return jnp.arange(float(np.prod(leaf.shape, dtype=int))).reshape(leaf.shape)


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
def test_split_and_join_are_inverse(leaf):
    found = split(leaf.axes, numbered(leaf))
    np.testing.assert_array_equal(join(leaf.axes, [piece.array for piece in found]), numbered(leaf))


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
def test_pieces_are_those_of_a_split_array(leaf):
    found = split(leaf.axes, numbered(leaf))
    assert [piece.factors for piece in found] == list(pieces(leaf.axes))
    assert [piece.array.shape for piece in found] == [tuple(f.size for f in one) for one in pieces(leaf.axes)]


def test_pieces_are_all_choices_of_segments():
    assert list(pieces(NESTED.axes)) == [(A, B, A), (A, B, B), (A, C, A), (A, C, B)]


def test_split_cuts_where_the_segments_end():
    (left, right) = split(((Segments(((A,), (B,))),),), jnp.arange(5))
    np.testing.assert_array_equal(left.array, [0, 1])
    np.testing.assert_array_equal(right.array, [2, 3, 4])


def test_too_many_pieces_are_refused():
    with pytest.raises(ValueError, match="got 2 pieces"):
        join(((A,),), [jnp.zeros(2), jnp.zeros(2)])


def test_a_word_is_as_long_as_its_factors():
    assert word_size((A, Segments(((B,), (C, A))))) == 2 * (3 + 4 * 2)


def test_atoms_come_depth_first():
    assert list(atoms((A, Segments(((B, C), (A,))), C))) == [A, B, C, A, C]


def test_interleaved_slices_take_turns():
    first, second = split(INTERLEAVED.axes, numbered(INTERLEAVED))
    np.testing.assert_array_equal(first.array[:, :, 0], [[0, 3, 6], [21, 24, 27]])
    np.testing.assert_array_equal(second.array[:, :, 0], [[9, 12, 15, 18], [30, 33, 36, 39]])


def test_slices_that_do_not_tile_are_refused():
    short = Slices((((B,), (A,)), ((B,), (B,))), axis=1)
    with pytest.raises(ValueError, match="its words"):
        SymmetrySpec((Group("a", 2), Group("b", 3)), (Leaf("short", (3, 6), ((short,), (Factor(6),))),))


def test_words_of_columns_used_as_a_whole():
    assert words_by_axis(COLUMNS.axes) == ((Factor(3),), (Segments(((A,), (C,))),))
    assert words_by_axis(INTERLEAVED.axes) == ((A, Segments(((B,), (C,)))), (B,))
    assert words_by_axis(NESTED.axes) == NESTED.axes


def test_slices_of_an_array_without_any_are_the_whole():
    assert slices(NESTED.axes) == (NESTED.axes,)
    assert len(slices(SLICED.axes)) == 2


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
def test_mapped_words_keep_their_form(leaf):
    for word in leaf.axes:
        sizes = map_atoms(lambda factor: Factor(factor.size), word)
        assert list(atoms(sizes)) == [Factor(factor.size) for factor in atoms(word)]
        assert word_size(sizes) == word_size(word)
