"""Discovery finds the groups one derives by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import symmetry


def mlp(params, x):
    hidden = jax.nn.relu(x @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    return hidden @ params["out"]["kernel"] + params["out"]["bias"]


@pytest.fixture
def params():
    random = np.random.default_rng(0)
    shapes = {"hidden": {"kernel": (3, 5), "bias": (5,)}, "out": {"kernel": (5, 2), "bias": (2,)}}
    return jax.tree.map(
        lambda shape: jnp.asarray(random.normal(size=shape), jnp.float32),
        shapes,
        is_leaf=lambda s: isinstance(s, tuple),
    )


def test_a_hidden_layer_is_what_one_writes_by_hand(params):
    spec = symmetry.discover(mlp, params, jnp.zeros((4, 3)))
    by_hand = symmetry.from_axes(
        {"hidden/kernel": (None, "hidden"), "hidden/bias": ("hidden",), "out/kernel": ("hidden", None)},
        params,
        scales={"hidden/kernel": (None, "+"), "hidden/bias": ("+",), "out/kernel": ("-", None)},
    )
    assert spec.groups == by_hand.groups
