"""What `wrap` refuses, and what takes no network before it is wrapped: one line each."""

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn
from flax import nnx

from symbnn import density, evaluate, models, symmetry
from tests.models.wrapping.networks import (
    INPUTS,
    KEY,
    EquinoxNormed,
    NnxMLP,
    function_mlp,
    haiku_mlp,
    list_of_tuples,
)

MLP = eqx.nn.MLP(3, 2, 4, 1, key=KEY)
LABELS = jnp.arange(5) % 2


class Pair(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(x), x


class Random(nnx.Module):
    def __init__(self, rngs):
        self.layer, self.rngs = nnx.Linear(3, 2, rngs=rngs), rngs

    def __call__(self, x):
        return self.layer(x) + self.rngs.noise.normal(())


class Counting(nnx.Module):
    def __init__(self, rngs):
        self.layer, self.calls = nnx.Linear(3, 2, rngs=rngs), nnx.Variable(jnp.zeros(()))

    def __call__(self, x):
        self.calls[...] += 1
        return self.layer(x)


class Silent(eqx.Module):
    weight: jax.Array


def noisy(x):
    return hk.dropout(hk.next_rng_key(), 0.5, hk.Linear(2)(x))


def wrap(network, example=INPUTS, **settings):
    return lambda: models.wrap(network, example, **settings)


CASES = {
    "class": (wrap(nn.Dense), r"network is the class Dense; give an instance, as Dense\(\.\.\.\)"),
    "no network": (wrap(3.0), "network must be .* got a float"),
    "model": (wrap(models.mlp((3,), 2)), "got a Model"),
    "no call": (wrap(Silent(jnp.ones(2))), r"an Equinox module \(Silent\) without a method __call__"),
    "not finite": (wrap(eqx.tree_at(lambda m: m.layers[0].bias, MLP, jnp.full(4, jnp.nan))), "not finite"),
    "no axes": (wrap(nn.Dense(2), jnp.ones(())), r"a batch of inputs, \(batch, ...\); got shape \(\)"),
    "no batch, linen": (
        wrap(nn.Dense(2), jnp.ones(3)),
        r"applied to a batch of shape \(3,\).*must be a batch",
    ),
    "no batch, nnx": (wrap(NnxMLP(nnx.Rngs(0)), jnp.ones(3)), r"for a single input give example\[None\]"),
    "no batch, equinox": (wrap(MLP, jnp.ones(3)), r"for a single input give example\[None\]"),
    "no batch, haiku": (wrap(hk.transform(haiku_mlp), jnp.ones(3)), "example must be a batch"),
    "other inputs": (wrap(MLP, jnp.ones((5, 7))), r"applied to a batch of shape \(5, 7\) \(TypeError"),
    "several inputs": (wrap(MLP, (INPUTS, INPUTS)), "must be one array, a batch of inputs; got a tuple"),
    "several outputs": (wrap(Pair()), r"gives a tuple; it must give one array, \(batch, outputs\)"),
    "no class axis": (
        wrap(eqx.nn.MLP(3, "scalar", 4, 1, key=KEY)),
        r"gives outputs of shape \(5,\) for an example of shape \(5, 3\)",
    ),
    "random haiku": (wrap(hk.transform(noisy)), "function noisy draws random numbers in evaluation"),
    "random haiku without rng": (wrap(hk.without_apply_rng(hk.transform(noisy))), "noisy cannot be applied"),
    "random linen": (
        wrap(nn.Sequential([nn.Dense(2), nn.Dropout(0.5, deterministic=False)])),
        "draws random",
    ),
    "random nnx": (wrap(Random(nnx.Rngs(0))), "module Random draws random numbers in evaluation"),
    "another variable": (wrap(Counting(nnx.Rngs(0))), "changes 'calls' when it is called"),
    "state left behind": (
        wrap(eqx.nn.make_with_state(EquinoxNormed)(KEY)[0]),
        r"give both, as eqx.nn.make_with_state gives them: \(module, state\)",
    ),
    "no weights": (wrap(eqx.nn.Identity()), "Identity has no weights"),
    "function without init": (wrap(function_mlp), r"function_mlp needs init: a function init\(key\)"),
    "init of another network": (
        wrap(MLP, init=lambda key: eqx.nn.MLP(3, 2, 5, 1, key=key)),
        r"init\(key\): leaf 'layers/0/bias' has shape \(5,\); expected \(4,\)",
    ),
    "init that fails": (wrap(MLP, init=lambda: MLP), "cannot be initialised .TypeError"),
    "shapes of nnx": (
        lambda: models.wrap(nnx.eval_shape(lambda: NnxMLP(nnx.Rngs(0))), INPUTS),
        "shapes but no weights; give init",
    ),
    "params of another network": (
        lambda: models.wrap(MLP, INPUTS).params(eqx.nn.MLP(3, 2, 5, 1, key=KEY)),
        r"network: leaf 'layers/0/bias' has shape \(5,\); expected \(4,\)",
    ),
    "network of other params": (
        lambda: models.wrap(MLP, INPUTS).network({"weight": jnp.ones(2)}),
        "params: missing leaves .*, unknown leaves",
    ),
    "target, equinox": (
        lambda: density.target(MLP, density.Batch(INPUTS, LABELS)),
        r"must be a models.Model; got an Equinox module \(MLP\): wrap .* models.wrap\(network, example\)",
    ),
    "target, linen": (
        lambda: density.target(nn.Dense(2), density.Batch(INPUTS, LABELS)),
        "got a linen module",
    ),
    "target, function": (
        lambda: density.target(function_mlp, density.Batch(INPUTS, LABELS)),
        "got a function",
    ),
    "predict": (
        lambda: evaluate.predict(MLP, {"w": jnp.ones((2, 3))}, INPUTS),
        r"apply must be a function of weights and inputs; got an Equinox module \(MLP\).*eqx.partition",
    ),
    "predict, a whole module for samples": (
        lambda: evaluate.predict(models.wrap(MLP, INPUTS).apply, MLP, INPUTS),
        "leaf 'activation' is a .*eqx.filter",
    ),
    "uncertainty": (
        lambda: evaluate.predict_uncertainty(NnxMLP(nnx.Rngs(0)), {"w": jnp.ones((2, 3))}, INPUTS),
        "got an nnx module",
    ),
    "discover, equinox": (lambda: symmetry.discover(MLP, {}, INPUTS), r"got an Equinox module \(MLP\)"),
    "discover, nnx": (lambda: symmetry.discover(NnxMLP(nnx.Rngs(0)), {}, INPUTS), "got an nnx module"),
    "discover, linen": (
        lambda: symmetry.discover(nn.Dense(2), {}, INPUTS),
        "got a linen module .*module.apply",
    ),
    "discover, whole module": (
        lambda: symmetry.discover(lambda module, x: jax.vmap(module)(x), MLP, INPUTS),
        r"leaf 'activation' of params is .* eqx.partition.* models.wrap\(network, example\)",
    ),
    "verify": (
        lambda: symmetry.verify(models.mlp((3,), 2).spec, MLP, {}, INPUTS, KEY),
        "got an Equinox module",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_line_says_what_to_do(name):
    call, message = CASES[name]
    with pytest.raises(ValueError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 420


def test_what_a_network_of_another_library_says_is_its_cause():
    with pytest.raises(ValueError, match="cannot be applied") as raised:
        models.wrap(MLP, jnp.ones((5, 7)))
    assert isinstance(raised.value.__cause__, TypeError)
    assert len(list_of_tuples(KEY)) == 2
