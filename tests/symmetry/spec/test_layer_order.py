"""The order of layers, and which leaves are biases and weights."""

import jax
import jax.numpy as jnp
import pytest

from symbnn import symmetry
from symbnn.symmetry.spec.layer_order import depth_order, is_bias, is_weight
from tests.networks import mlp_params, mlp_spec
from tests.symmetry.cases import CASES, discovered

SIZES = (3, 4, 5, 6, 2)


@pytest.mark.parametrize("scales", [False, True])
def test_groups_of_a_chain_come_from_input_to_output(scales):
    spec = mlp_spec(SIZES, mlp_params(SIZES, jax.random.key(0)), scales=scales)
    assert depth_order(spec) == ("h0", "h1", "h2")


def test_added_vectors_are_biases():
    spec = mlp_spec(SIZES, mlp_params(SIZES, jax.random.key(0)), scales=True)
    assert all(is_bias(leaf) == leaf.name.endswith("bias") for leaf in spec.leaves)


def test_a_matrix_named_b_is_not_a_bias():
    params = {"a": jnp.zeros((3, 4)), "b": jnp.zeros((4, 5)), "c": jnp.zeros((5, 2))}
    spec = symmetry.discover(
        lambda p, x: jax.nn.relu(jax.nn.relu(x @ p["a"]) @ p["b"]) @ p["c"], params, jnp.zeros((1, 3))
    )
    assert not any(is_bias(leaf) for leaf in spec.leaves)


def test_running_variances_are_not_weights():
    spec = discovered(CASES["residual"]())
    assert {leaf.name for leaf in spec.leaves if not is_weight(leaf)} == {
        "bn/var",
        "block/bn1/var",
        "block/bn2/var",
    }


def test_a_gain_around_one_is_a_weight():
    params = {"w": jnp.zeros((3, 4)), "gain": jnp.zeros(4), "v": jnp.zeros((4, 2))}
    spec = symmetry.discover(
        lambda p, x: (jax.nn.relu(x @ p["w"]) * (1 + p["gain"])) @ p["v"], params, jnp.zeros((1, 3))
    )
    assert all(is_weight(leaf) for leaf in spec.leaves)
