"""Trees of weights taken apart and put together again."""

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import tree

PARAMS = {"hidden": {"kernel": jnp.ones((3, 2)), "bias": jnp.zeros(2)}, "scale": jnp.asarray(2.0)}


def test_leaves_by_name_make_the_tree_again():
    again = tree.nested(tree.named_leaves(PARAMS))
    assert jax.tree.structure(again) == jax.tree.structure(PARAMS)
    jax.tree.map(np.testing.assert_array_equal, again, PARAMS)


def test_a_vector_is_cut_in_order():
    first, second, third = tree.cut(jnp.arange(7), [(2, 2), (), (2,)])
    np.testing.assert_array_equal(first, [[0, 1], [2, 3]])
    np.testing.assert_array_equal(second, 4)
    np.testing.assert_array_equal(third, [5, 6])


def test_draws_have_the_shapes_and_are_those_of_one_vector():
    key = jax.random.key(0)
    drawn = tree.draw_like(key, PARAMS)
    assert jax.tree.map(jnp.shape, drawn) == jax.tree.map(jnp.shape, PARAMS)
    flat = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(drawn)])
    np.testing.assert_array_equal(flat, jax.random.normal(key, (9,)))
