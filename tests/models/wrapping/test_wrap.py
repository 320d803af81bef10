"""A wrapped network computes what its own library computes, in both modes, and gives its weights back."""

import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

from symbnn import models, tree
from tests.io.same import same
from tests.models.wrapping.networks import (
    INPUTS,
    KEY,
    LinenMLP,
    NnxNormed,
    normed_cases,
    plain_cases,
)

PLAIN, NORMED = plain_cases(), normed_cases()
EVERY_KIND = pytest.mark.parametrize("name", PLAIN)
EVERY_NORMED = pytest.mark.parametrize("name", NORMED)


def wrapped(name, **settings):
    case = PLAIN[name]
    return case, models.wrap(case.network, INPUTS, **({"init": case.init} | settings))


@EVERY_KIND
def test_outputs_and_weights_are_those_of_the_library(name):
    case, model = wrapped(name)
    own = case.own()
    params = model.params(own)
    outputs = case.apply(own, INPUTS)
    np.testing.assert_allclose(model.apply(params, INPUTS), outputs, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(model.train(params, INPUTS, KEY)[0], outputs, rtol=1e-6, atol=1e-6)
    same(model.params(model.network(params)), params)
    np.testing.assert_allclose(case.apply(model.network(params), INPUTS), outputs, rtol=1e-6, atol=1e-6)
    assert model.input_shape == (3,)
    assert case.weight in tree.named_leaves(params)
    assert [(group.size, group.num_scales) for group in model.spec.groups] == [(4, 1)], model.spec.explain()


@EVERY_KIND
def test_every_key_draws_other_weights(name):
    """With `init`, and without it where the library gives none; all draws are in one program."""
    case, model = wrapped(name)
    redrawn = wrapped(name, init=case.own())[1]
    for each in (model, redrawn):
        drawn = tree.named_leaves(jax.jit(jax.vmap(each.init))(jax.random.split(KEY, 3)))[case.weight]
        flat = np.asarray(drawn).reshape(3, -1)
        assert len(np.unique(flat, axis=0)) == 3
        assert np.unique(flat).size == flat.size


def test_without_init_weights_keep_the_moments_of_the_instance():
    network = eqx.nn.Linear(300, 400, key=KEY)
    model = models.wrap(network, jnp.zeros((2, 300)))
    params = model.init(jax.random.key(7))
    # PyTorch's law, uniform on 1 / sqrt(300): its standard deviation is that over sqrt(3).
    np.testing.assert_allclose(np.std(params["weight"]), 1 / 30, rtol=0.01)
    np.testing.assert_allclose(np.std(params["bias"]), 1 / 30, rtol=0.15)
    assert np.abs(np.corrcoef(np.ravel(params["weight"]), np.ravel(network.weight))[0, 1]) < 0.02
    constant = models.wrap(nnx.Linear(3, 2, rngs=nnx.Rngs(0)), INPUTS)
    np.testing.assert_array_equal(constant.init(KEY)["bias"], np.zeros(2))


@EVERY_NORMED
def test_batch_statistics_and_dropout(name):
    network, init = NORMED[name]
    model = models.wrap(network, INPUTS, init=init)
    params = model.init(KEY)
    assert params.keys() == {"params", "batch_stats"}
    train = jax.jit(model.train)
    one, updated = train(params, INPUTS, KEY)
    np.testing.assert_array_equal(one, train(params, INPUTS, KEY)[0])
    assert not np.allclose(one, train(params, INPUTS, jax.random.key(5))[0]), "dropout is off in training"
    assert jax.tree.structure(updated) == jax.tree.structure(params)
    same(updated["params"], params["params"])
    for _ in range(200):
        params = train(params, INPUTS, KEY)[1]
    # After 200 updates at momentum 0.9 the running statistics are those of the batch.
    first, second = MATRICES[name](params["params"])
    hidden = INPUTS @ first
    centred = (hidden - hidden.mean(0)) / jnp.sqrt(hidden.var(0) + 1e-5)
    expected = jax.nn.relu(centred) @ second
    np.testing.assert_allclose(jax.jit(model.apply)(params, INPUTS), expected, rtol=2e-3, atol=2e-3)


MATRICES = {
    "linen": lambda weights: (weights["hidden"]["kernel"], weights["out"]["kernel"]),
    "nnx": lambda weights: (weights["hidden"]["kernel"], weights["out"]["kernel"]),
    "equinox": lambda weights: (weights["hidden"]["weight"].T, weights["out"]["weight"].T),
    "haiku": lambda weights: (weights["linear"]["w"], weights["linear_1"]["w"]),
}


def test_a_batch_norm_of_equinox_that_keeps_its_own_state():
    """Without `make_with_state` the state is still inside the module; of mode `ema` also."""
    with pytest.warns(UserWarning, match="defaults to 'ema'"):
        network = eqx.nn.Sequential([eqx.nn.Linear(3, 4, key=KEY), eqx.nn.BatchNorm(4, "batch")])
    model = models.wrap(network, INPUTS)
    params = model.train(model.init(KEY), INPUTS, KEY)[1]
    outputs = model.apply(params, INPUTS)
    np.testing.assert_allclose(outputs.mean(0), np.zeros(4), atol=1e-5)
    np.testing.assert_allclose(outputs.var(0), np.ones(4), rtol=1e-3)


def test_equinox_modules_on_a_batch_are_recognised_or_asked_about():
    class Batched(eqx.Module):
        layer: eqx.nn.Linear

        def __call__(self, x):
            return jax.vmap(self.layer)(x)

    class Either(eqx.Module):
        weight: jax.Array

        def __call__(self, x):
            return x @ self.weight

    class Ambiguous(eqx.Module):
        weight: jax.Array

        def __call__(self, x):
            return (x - x.mean(0)) @ self.weight

    layer = eqx.nn.Linear(3, 2, key=KEY)
    for network in (layer, Batched(layer)):
        model = models.wrap(network, INPUTS)
        np.testing.assert_allclose(
            model.apply(model.params(network), INPUTS), jax.vmap(layer)(INPUTS), rtol=1e-5
        )
    weight = jax.random.normal(KEY, (3, 2))
    model = models.wrap(Either(weight), INPUTS)
    np.testing.assert_allclose(model.apply({"weight": weight}, INPUTS), INPUTS @ weight, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="different results; say which is meant by batched=True"):
        models.wrap(Ambiguous(weight), INPUTS)
    model = models.wrap(Ambiguous(weight), INPUTS, batched=True)
    expected = (INPUTS - INPUTS.mean(0)) @ weight
    np.testing.assert_allclose(model.apply({"weight": weight}, INPUTS), expected, rtol=1e-5, atol=1e-5)


def test_a_function_of_one_example_is_mapped_over_the_batch():
    model = models.wrap(lambda params, x: x @ params, INPUTS, init=jnp.ones((3, 2)), batched=False)
    np.testing.assert_allclose(model.apply(jnp.ones((3, 2)), INPUTS), INPUTS @ jnp.ones((3, 2)), rtol=1e-6)


def test_whole_numbers_reach_the_network_as_such():
    """Tokens: `density.target` casts its data to the network's type, the network gets whole numbers back."""
    network = nn.Sequential([nn.Embed(7, 3), lambda x: x.mean(1), nn.Dense(2)])
    model = models.wrap(network, jnp.zeros((2, 4), jnp.int32))
    tokens = np.random.default_rng(0).integers(0, 7, (5, 4))
    params = model.init(KEY)
    outputs = model.apply(params, tokens.astype(np.float32))
    np.testing.assert_allclose(outputs, network.apply({"params": params}, tokens), rtol=1e-6)


def test_shapes_alone_and_numpy_are_examples_too():
    for example in (jax.ShapeDtypeStruct((5, 3), jnp.float32), np.zeros((1, 3)), INPUTS):
        assert models.wrap(LinenMLP(), example).input_shape == (3,)


def test_a_key_that_evaluation_asks_for_but_does_not_use():
    class Keyed(eqx.Module):
        layer: eqx.nn.Linear
        dropout: eqx.nn.Dropout

        def __call__(self, x, key):
            first, _ = jax.random.split(key)
            return self.dropout(self.layer(x), key=first)

    network = Keyed(eqx.nn.Linear(3, 2, key=KEY), eqx.nn.Dropout(0.5))
    model = models.wrap(network, INPUTS)
    params = model.params(network)
    np.testing.assert_allclose(model.apply(params, INPUTS), jax.vmap(network.layer)(INPUTS), rtol=1e-5)
    outputs = model.train(params, INPUTS, KEY)[0]
    assert len(np.unique(np.asarray(outputs == 0), axis=0)) > 1, "every example has its own mask"


def test_the_given_network_is_left_alone():
    network = NnxNormed(nnx.Rngs(0))
    before = jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(network, (nnx.Param, nnx.BatchStat))))
    model = models.wrap(network, INPUTS)
    model.train(model.params(network), INPUTS, KEY)
    after = nnx.to_pure_dict(nnx.state(network, (nnx.Param, nnx.BatchStat)))
    jax.tree.map(np.testing.assert_array_equal, before, after)
    assert network.dropout.deterministic is False
    other = model.network(model.init(KEY))
    assert other is not network
    assert other.dropout.deterministic is False
    np.testing.assert_array_equal(network.hidden.kernel[...], before["hidden"]["kernel"])


def test_tied_weights_are_one_leaf():
    class Tied(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(3, 3, use_bias=False, rngs=rngs)
            self.second = self.first

        def __call__(self, x):
            return self.second(jnp.tanh(self.first(x)))

    network = Tied(nnx.Rngs(0))
    model = models.wrap(network, INPUTS)
    assert list(tree.named_leaves(model.params(network))) == ["first/kernel"]
    np.testing.assert_allclose(model.apply(model.params(network), INPUTS), network(INPUTS), rtol=1e-5)


def test_nothing_is_imported_that_is_not_installed():
    code = """
import sys
sys.modules["equinox"] = sys.modules["haiku"] = sys.modules["flax.nnx"] = None
import jax, jax.numpy as jnp
from flax import linen as nn
from symbnn import models
models.wrap(nn.Dense(2), jnp.ones((2, 3)))
print(models.wrap(lambda params, x: x @ params, jnp.ones((2, 3)), init=jnp.eye(3)).input_shape)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.stdout.strip() == "(3,)", found.stderr
