"""Libraries are told by the classes of their networks, and nothing else passes for one."""

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn
from flax import nnx

from symbnn import frameworks, models, tree

KEY = jax.random.key(0)
TRANSFORMED = hk.transform(lambda x: hk.Linear(2)(x))


@pytest.mark.parametrize(
    ("network", "library"),
    [
        (nn.Dense(2), "linen"),
        (nn.Dense, "linen"),
        (nnx.Linear(3, 2, rngs=nnx.Rngs(0)), "nnx"),
        (eqx.nn.Linear(3, 2, key=KEY), "equinox"),
        (TRANSFORMED, "haiku"),
        (hk.transform_with_state(lambda x: x), "haiku"),
        (jnp.tanh, None),
        (models.mlp((3,), 2), None),
        (type("Module", (), {})(), None),
        ({"w": 1.0}, None),
    ],
)
def test_a_library_is_told_from_the_class(network, library):
    assert frameworks.library(network) == library


def test_a_function_is_asked_for_in_words():
    with pytest.raises(ValueError, match=r"got a Model: give model.apply"):
        frameworks.check_apply(models.mlp((3,), 2))
    with pytest.raises(ValueError, match=r"got a Haiku transform \(Transformed\).*without_apply_rng"):
        frameworks.check_apply(TRANSFORMED)
    frameworks.check_apply(jnp.tanh)
    frameworks.check_model(models.mlp((3,), 2))


def test_what_a_variable_holds_is_called_as_the_variable():
    network = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    state = nnx.state(network)
    assert tree.leaf_names(state) == ["bias", "kernel"] == tree.leaf_names(network)
    doubled = tree.map_named(lambda name, leaf: 2 * leaf if name == "kernel" else leaf, state)
    assert type(doubled["kernel"]) is nnx.Param
    assert jnp.array_equal(doubled["kernel"][...], 2 * network.kernel[...])

    class Box(eqx.Module):
        value: jax.Array

    # A field of that name in another class is a name like any other.
    assert tree.leaf_names({"a": Box(jnp.ones(1)), "b": nnx.Param({"c": jnp.ones(1)})}) == ["a/value", "b/c"]
