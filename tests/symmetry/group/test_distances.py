"""Number of transpositions, permutations with a given number of them, Kendall's τ."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from symbnn import symmetry
from symbnn.symmetry.spec import Factor, Index, Leaf

permutations = st.sampled_from([1, 2, 3, 8, 33]).flatmap(lambda n: st.permutations(range(n)))


def number_of_cycles(permutation) -> int:
    unseen, cycles = set(range(len(permutation))), 0
    while unseen:
        cycles += 1
        unit = unseen.pop()
        while permutation[unit] in unseen:
            unit = permutation[unit]
            unseen.remove(unit)
    return cycles


@settings(max_examples=30, deadline=None)
@given(permutation=permutations)
def test_transpositions_are_units_minus_cycles(permutation):
    expected = len(permutation) - number_of_cycles(permutation)
    assert symmetry.number_of_transpositions(np.array(permutation)) == expected


@pytest.mark.parametrize("n", range(1, 8))
def test_transpositions_are_the_least_number_of_swaps(n):
    """Breadth first through all permutations, one swap a step: the depth is the answer."""
    depth = {tuple(range(n)): 0}
    frontier = list(depth)
    while frontier:
        reached = []
        for permutation in frontier:
            for i, j in itertools.combinations(range(n), 2):
                swapped = list(permutation)
                swapped[i], swapped[j] = swapped[j], swapped[i]
                if tuple(swapped) not in depth:
                    depth[tuple(swapped)] = depth[permutation] + 1
                    reached.append(tuple(swapped))
        frontier = reached
    counted = jax.jit(symmetry.number_of_transpositions)(jnp.array(list(depth)))
    np.testing.assert_array_equal(counted, list(depth.values()))


def test_transpositions_jit_vmap_and_sum_over_layers():
    drawn = jax.vmap(lambda key: jax.random.permutation(key, 9))(jax.random.split(jax.random.key(0), 5))
    single = jnp.stack([symmetry.number_of_transpositions(row) for row in drawn])
    np.testing.assert_array_equal(jax.jit(jax.vmap(symmetry.number_of_transpositions))(drawn), single)
    element = symmetry.Element({"a": drawn[0], "b": drawn[1:3]}, {}, {})
    assert symmetry.number_of_transpositions(element) == single[:3].sum()
    assert symmetry.number_of_transpositions(element.permutations) == single[:3].sum()


@pytest.mark.parametrize("n", [1, 2, 7, 512])
def test_random_permutations_have_exactly_the_transpositions_asked_for(n):
    counts = jnp.arange(n)
    drawn = jax.vmap(lambda k, key: symmetry.random_permutation(key, n, transpositions=k))(
        counts, jax.random.split(jax.random.key(n), n)
    )
    np.testing.assert_array_equal(jnp.sort(drawn, axis=-1), jnp.broadcast_to(counts, (n, n)))
    np.testing.assert_array_equal(symmetry.number_of_transpositions(drawn), counts)


def test_random_permutations_reach_every_permutation():
    """All 11 permutations of 4 units with two transpositions: (abc) 8 of them, (ab)(cd) 3."""
    all_keys = jax.random.split(jax.random.key(0), 400)
    drawn = jax.vmap(lambda key: symmetry.random_permutation(key, 4, transpositions=2))(all_keys)
    assert len({tuple(row) for row in np.asarray(drawn)}) == 11


@pytest.mark.parametrize("transpositions", [-1, 5])
def test_transpositions_out_of_range_are_refused(transpositions):
    with pytest.raises(ValueError, match=rf"\[0, 4\] for 5 units; got {transpositions}"):
        symmetry.random_permutation(jax.random.key(0), 5, transpositions=transpositions)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31 - 1), n=st.sampled_from([2, 3, 12]))
def test_kendall_tau_is_scipys_of_the_ranks(seed, n):
    random = np.random.default_rng(seed)
    a, b = random.permutation(n), random.permutation(n)
    expected = kendalltau(np.argsort(a), np.argsort(b)).statistic
    np.testing.assert_allclose(symmetry.kendall_tau(a, b), expected, atol=1e-6)
    assert symmetry.kendall_tau(a, a) == 1
    assert symmetry.kendall_tau(a, a[::-1]) == -1


def test_kendall_tau_refuses_unequal_orders():
    with pytest.raises(ValueError, match="one shape"):
        symmetry.kendall_tau(np.arange(3), np.arange(4))


def test_stacked_elements_give_one_number_per_network():
    params = {"w": jnp.zeros((3, 6)), "u": jnp.zeros((6, 5)), "v": jnp.zeros((5, 2))}
    spec = symmetry.from_axes({"w": (None, "h"), "u": ("h", "k"), "v": ("k", None)}, params)
    elements = jax.vmap(lambda key: symmetry.random_element(spec, key))(
        jax.random.split(jax.random.key(0), 4)
    )
    counts = symmetry.number_of_transpositions(elements)
    one = [symmetry.number_of_transpositions(jax.tree.map(lambda a, i=i: a[i], elements)) for i in range(4)]
    np.testing.assert_array_equal(counts, one)


def test_stacked_elements_of_scanned_layers_give_one_number_per_network():
    """Every group has its own permutation for each of the scanned layers."""
    factor = Factor(5, "h")
    leaf = Leaf("w", (4, 3, 5), ((Factor(4, "layer"),), (Factor(3),), (factor,)))
    spec = symmetry.SymmetrySpec((symmetry.Group("h", 5, over=("layer",)),), (leaf,), (Index("layer", 4),))
    elements = jax.vmap(lambda key: symmetry.random_element(spec, key))(
        jax.random.split(jax.random.key(0), 3)
    )
    one = [symmetry.number_of_transpositions(row).sum() for row in elements.permutations["h"]]
    np.testing.assert_array_equal(symmetry.number_of_transpositions(elements, spec=spec), one)
    first = jax.tree.map(lambda leaf: leaf[0], elements)
    assert symmetry.number_of_transpositions(first, spec=spec) == one[0]
