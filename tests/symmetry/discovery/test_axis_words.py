"""Unified words describe one axis: any element permutes it the same way through either word."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symbnn.symmetry.discovery.axis_words import (
    MAX_SEGMENTS,
    Atom,
    Cause,
    cut,
    fresh,
    pin,
    resolve,
    unify,
)
from symbnn.symmetry.spec import Segments, atoms, word_size

CAUSE = Cause("does not fit")


SEEDS = st.integers(0, 2**32 - 1)


def random_word(random: np.random.Generator, size: int):
    """A word of a given length: atoms, products and sums, nested."""
    divisors = [k for k in range(2, size) if size % k == 0]
    kind = random.choice(["atom", "product", "sum"]) if size > 1 else "atom"
    if kind == "product" and divisors:
        first = int(random.choice(divisors))
        return (*random_word(random, first), *random_word(random, size // first))
    if kind == "sum":
        first = int(random.integers(1, size))
        return (Segments((random_word(random, first), random_word(random, size - first))),)
    return fresh(size)


def permuted(word, permutations, random):
    """Positions of the axis after each atom is permuted by its own permutation; pinned atoms do not move."""
    positions = np.zeros(1, int)
    for factor in word:
        if isinstance(factor, Segments):
            starts = np.cumsum([0, *map(word_size, factor.words)])
            parts = [permuted(w, permutations, random) for w in factor.words]
            inner = np.concatenate([start + part for start, part in zip(starts, parts, strict=False)])
        else:
            identity = np.arange(factor.size)
            inner = permutations.setdefault(
                factor, identity if factor.causes else random.permutation(factor.size)
            )
        positions = (positions[:, None] * factor.size + inner).reshape(-1)
    return positions


@settings(max_examples=300, deadline=None)
@given(seed=SEEDS, size=st.sampled_from([1, 2, 6, 8, 12, 24, 30]))
def test_unified_words_permute_alike(seed, size):
    random, permutations = np.random.default_rng(seed), {}
    words = [random_word(random, size) for _ in range(3)]
    unify(words[0], words[1], CAUSE)
    unify(words[1], words[2], CAUSE)
    results = [permuted(resolve(w), permutations, random) for w in words]
    assert [len(result) for result in results] == [size] * 3
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[1], results[2])
    assert sorted(results[0]) == list(range(size))


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, size=st.sampled_from([2, 6, 12, 30]))
def test_a_word_unified_with_itself_is_unchanged(seed, size):
    w = random_word(np.random.default_rng(seed), size)
    before = resolve(w)
    unify(w, w, CAUSE)
    assert resolve(w) == before
    assert not any(atom.causes for atom in atoms(before))


@settings(max_examples=200, deadline=None)
@given(seed=SEEDS, size=st.sampled_from([2, 6, 12, 30]))
def test_cut_parts_concatenate_to_the_whole(seed, size):
    random = np.random.default_rng(seed)
    w, position = random_word(random, size), int(random.integers(1, size))
    if not cut(w, position):
        return
    (total,) = resolve(w)
    ends = np.cumsum([word_size(segment) for segment in total.words])
    assert position in ends
    assert ends[-1] == size


def sizes(word):
    return [factor.size for factor in resolve(word)]


def test_an_atom_is_refined_to_a_product():
    a = fresh(12)
    unify(a, (*fresh(3), *fresh(4)), CAUSE)
    assert sizes(a) == [3, 4]


def test_an_atom_is_refined_to_a_sum():
    a = fresh(12)
    unify(a, (Segments((fresh(3), fresh(9))),), CAUSE)
    (total,) = resolve(a)
    assert [word_size(w) for w in total.words] == [3, 9]


def test_sums_are_cut_at_each_others_boundaries():
    a, b = (Segments((fresh(3), fresh(9))),), (Segments((fresh(5), fresh(7))),)
    unify(a, b, CAUSE)
    assert [word_size(w) for w in resolve(a)[0].words] == [3, 2, 7]
    assert resolve(a) == resolve(b)


def test_a_product_is_cut_only_between_its_rows():
    rows = (*fresh(4), *fresh(3))
    assert cut(rows, 6)
    assert [word_size(w) for w in resolve(rows)[0].words] == [6, 6]
    assert not cut((*fresh(4), *fresh(3)), 5)


def test_a_sum_is_distributed_over_what_follows():
    a, b, c = fresh(2), fresh(3), fresh(5)
    assert resolve((Segments((a, b)), *c)) == (Segments(((*a, *c), (*b, *c))),)


def test_axes_of_length_one_vanish():
    assert resolve((*fresh(1), *fresh(4), *fresh(1))) != ()
    assert sizes((*fresh(1), *fresh(4), *fresh(1))) == [4]
    assert fresh(1) == ()


def test_incompatible_factorisations_are_pinned():
    a, b = (*fresh(2), *fresh(3)), (*fresh(3), *fresh(2))
    unify(a, b, CAUSE)
    assert all(atom.causes == (CAUSE,) for atom in atoms((*resolve(a), *resolve(b))))


def test_pins_are_inherited_by_parts_and_shared_by_classes():
    a, b = fresh(12), fresh(12)
    pin(a, CAUSE)
    unify(a, b, CAUSE)
    unify(b, (*fresh(3), *fresh(4)), CAUSE)
    assert [atom.causes for atom in atoms(resolve(b))] == [(CAUSE,), (CAUSE,)]


def test_too_many_segments_are_pinned():
    size = 2 * MAX_SEGMENTS
    a = (Segments(tuple(fresh(1) for _ in range(size))),)
    b = (*fresh(size // 2), *fresh(2))
    unify(a, b, CAUSE)
    assert all(atom.causes for atom in atoms(resolve(b)))


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="lengths 3 and 4"):
        unify(fresh(3), fresh(4), CAUSE)


def test_atoms_are_told_apart_by_identity():
    assert Atom(3) != Atom(3)
