"""Repairs of averaged networks against their definitions, for networks of every library."""

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

from symbnn import evaluate, models, tree
from symbnn.evaluate.corrections.lockstep import trace
from tests.evaluate.networks import BATCH, RANDOM, ResidualNorms, apply, network, preactivations

INPUTS = jnp.asarray(5.0 + 10.0 * RANDOM.normal(size=(48, 6, 6, 2)), jnp.float32)
"""Far from the moments that fresh running statistics claim."""


@pytest.fixture
def batch():
    return BATCH


def moments(params, inputs):
    z = preactivations(params, inputs)["hidden"]
    return jnp.mean(z, axis=0), jnp.std(z, axis=0)


def oracle(train, params, inputs, key):
    """Statistics of one batch in training mode: new = m old + (1 - m) batch, from old = 0 and old = 1."""

    def updated(old):
        start = jax.tree.map(lambda leaf: jnp.full_like(leaf, old), params["batch_stats"])
        return train({**params, "batch_stats": start}, inputs, key)[1]["batch_stats"]

    zero, one = updated(0.0), updated(1.0)
    return {**params, "batch_stats": jax.tree.map(lambda z, o: z / (1.0 - (o - z)), zero, one)}


def test_repair_gives_the_mean_network_the_statistics_of_the_ends(batch):
    inputs = jnp.asarray(batch[0])
    a, b = network(jax.random.key(0)), network(jax.random.key(1))
    middle = evaluate.interpolate(a, b, 0.25)
    ends = zip(moments(a, inputs), moments(b, inputs), strict=True)
    wanted = [0.75 * at_a + 0.25 * at_b for at_a, at_b in ends]
    repaired = evaluate.repair(apply, inputs)(a, b, 0.25, middle)
    np.testing.assert_allclose(moments(repaired, inputs)[0], wanted[0], atol=1e-5)
    np.testing.assert_allclose(moments(repaired, inputs)[1], wanted[1], rtol=1e-5)
    # The outputs' own weights stay.
    np.testing.assert_array_equal(repaired["out"]["kernel"], middle["out"]["kernel"])
    curve = evaluate.barrier(apply, a, b, batch, points=3, correct=evaluate.repair(apply, inputs))
    plain = evaluate.barrier(apply, a, b, batch, points=3)
    np.testing.assert_allclose(curve.loss[jnp.array([0, 2])], plain.loss[jnp.array([0, 2])], rtol=1e-4)


def test_statistics_are_those_of_training_mode():
    model = models.from_module(ResidualNorms(), (6, 6, 2))
    params = model.init(jax.random.key(0))
    found = evaluate.recompute_statistics(model.apply, INPUTS)(params, params, 0.5, params)
    expected = oracle(model.train, params, INPUTS, jax.random.key(1))
    for name, leaf in tree.named_leaves(expected).items():
        np.testing.assert_allclose(tree.named_leaves(found)[name], leaf, rtol=1e-3, atol=1e-4, err_msg=name)
    outputs, _ = model.train(params, INPUTS, jax.random.key(1))
    np.testing.assert_allclose(model.apply(found, INPUTS), outputs, atol=1e-3)


def folded(params, x):
    """A norm as x · r + (b − m · r)."""
    x = x.reshape(len(x), -1) @ params["w"]
    r = params["g"] / jnp.sqrt(params["v"] + 1e-3)
    return jax.nn.relu(x * r + (params["b"] - params["m"] * r)) @ params["out"]


def from_torch_like(params, x):
    """A bias, then a norm without gain: (x + c − m) / √(v + ε)."""
    x = x.reshape(len(x), -1) @ params["w"] + params["b"]
    return jax.nn.relu((x - params["m"]) / jnp.sqrt(params["v"] + 1e-3)) @ params["out"]


def plain_network():
    shapes = {"w": (72, 5), "g": (5,), "m": (5,), "b": (5,), "out": (5, 3)}
    keys = jax.random.split(jax.random.key(0), len(shapes))
    drawn = {name: jax.random.normal(key, shapes[name]) for key, name in zip(keys, shapes, strict=True)}
    return {**drawn, "v": jnp.ones(5)}


def equinox_network():
    class Network(eqx.Module):
        convolution: eqx.nn.Conv2d
        norm: eqx.nn.BatchNorm
        out: eqx.nn.Linear

        def __call__(self, x, state):
            x, state = self.norm(self.convolution(x.transpose(2, 0, 1)), state)
            return self.out(jax.nn.relu(x).mean((1, 2))), state

    keys = jax.random.split(jax.random.key(0))
    made, state = eqx.nn.make_with_state(
        lambda: Network(
            eqx.nn.Conv2d(2, 5, 3, key=keys[0]),
            eqx.nn.BatchNorm(5, "batch", mode="batch"),
            eqx.nn.Linear(5, 3, key=keys[1]),
        )
    )()
    _, state = jax.vmap(made, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(INPUTS, state)
    arrays, static = eqx.partition((eqx.nn.inference_mode(made), state), eqx.is_inexact_array)

    def apply(params, x):
        network, old = eqx.combine(params, static)
        return jax.vmap(lambda one: network(one, old)[0])(x)

    return apply, arrays


def haiku_network():
    def forward(x, is_training):
        x = hk.Conv2D(5, 3)(x)
        x = hk.BatchNorm(True, True, 0.9)(x, is_training)
        return hk.Linear(3)(jax.nn.relu(x).mean((1, 2)))

    made = hk.transform_with_state(forward)
    params, state = made.init(jax.random.key(0), INPUTS, True)
    _, state = made.apply(params, state, None, INPUTS, True)
    both = {"params": params, "state": state}
    return lambda both, x: made.apply(both["params"], both["state"], None, x, False)[0], both


def nnx_network():
    class Network(nnx.Module):
        def __init__(self):
            self.convolution = nnx.Conv(2, 5, (3, 3), rngs=nnx.Rngs(0))
            self.norm = nnx.BatchNorm(5, rngs=nnx.Rngs(1))
            self.out = nnx.Linear(5, 3, rngs=nnx.Rngs(2))

        def __call__(self, x):
            return self.out(jax.nn.relu(self.norm(self.convolution(x))).mean((1, 2)))

    made = Network()
    made.eval()
    graph, state = nnx.split(made)
    return lambda params, x: nnx.merge(graph, params)(x), nnx.to_pure_dict(state) and state


NETWORKS = {
    "folded": lambda: (folded, plain_network()),
    "without gain": lambda: (from_torch_like, plain_network()),
    "equinox": equinox_network,
    "haiku": haiku_network,
    "nnx": nnx_network,
}


@pytest.mark.parametrize("library", NETWORKS)
def test_a_norm_of_any_library_has_moments_zero_and_one_with_new_statistics(library):
    apply, params = NETWORKS[library]()
    found = evaluate.recompute_statistics(apply, INPUTS)(params, params, 0.5, params)
    (site,) = (site for site in trace(apply, params, INPUTS).sites if site.norm)
    changed = {
        name
        for (name, new), old in zip(tree.named_leaves(found).items(), jax.tree.leaves(params), strict=True)
        if not np.array_equal(new, old)
    }
    assert changed == {site.norm.mean, site.norm.variance}
    # Measured again, with the network itself: the statistics are a fixed point.
    again = evaluate.recompute_statistics(apply, INPUTS)(found, found, 0.5, found)
    for old, new in zip(jax.tree.leaves(found), jax.tree.leaves(again), strict=True):
        np.testing.assert_allclose(old, new, rtol=1e-5, atol=1e-5)
    # After one update with momentum 0.99, Equinox multiplies by 100 what it keeps.
    kept = 0.01 if library == "equinox" else 1.0
    leaves = tree.named_leaves(found)
    mean, variance = (np.asarray(leaves[name]) / kept for name in (site.norm.mean, site.norm.variance))
    values = np.asarray(NORMALISED[library](params), np.float64).reshape(-1, 5)
    np.testing.assert_allclose(mean.reshape(-1), values.mean(0), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(variance.reshape(-1), values.var(0), rtol=1e-3)


def convolved(kernel, bias, padding):
    made = jax.lax.conv_general_dilated(
        INPUTS, jnp.asarray(kernel), (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return made + jnp.asarray(bias).reshape(-1)


def by_end(params, *ends):
    leaves = tree.named_leaves(params)
    return [next(leaf for name, leaf in leaves.items() if end in name) for end in ends]


NORMALISED = {
    "folded": lambda params: INPUTS.reshape(48, -1) @ params["w"],
    "without gain": lambda params: INPUTS.reshape(48, -1) @ params["w"] + params["b"],
    "equinox": lambda params: convolved(
        by_end(params, "convolution/weight")[0].transpose(2, 3, 1, 0),
        by_end(params, "convolution/bias")[0],
        "VALID",
    ),
    "haiku": lambda params: convolved(*by_end(params, "conv2_d/w", "conv2_d/b"), "SAME"),
    "nnx": lambda params: convolved(*by_end(params, "convolution/kernel", "convolution/bias"), "SAME"),
}
"""What the norm sees, by hand."""


class Normalised(nn.Module):
    """Dense, BatchNorm, Dense."""

    @nn.compact
    def __call__(self, inputs, train=False):
        hidden = nn.BatchNorm(use_running_average=not train, momentum=0.99, name="norm")(nn.Dense(6)(inputs))
        return nn.Dense(3, name="out")(nn.relu(hidden))


def test_an_averaged_network_with_batch_norm_is_judged_with_its_own_statistics(batch):
    model = models.from_module(Normalised(), (4,))
    inputs = 5.0 + 10.0 * jnp.asarray(batch[0])[:32]
    a, b = model.init(jax.random.key(0)), model.init(jax.random.key(1))
    judged = (inputs, batch[1][:32])
    correct = evaluate.recompute_statistics(model.apply, inputs)
    curve = evaluate.barrier(model.apply, a, b, judged, points=3, correct=correct)
    # In training mode the network normalises by this very batch: the recomputed statistics do the same.
    outputs, _ = model.train(evaluate.interpolate(a, b, 0.5), inputs, jax.random.key(3))
    expected = np.mean(evaluate.cross_entropy(outputs, jnp.asarray(judged[1])))
    np.testing.assert_allclose(curve.loss[1], expected, rtol=1e-4)
    stale = evaluate.barrier(model.apply, a, b, judged, points=3)
    assert abs(stale.loss[1] - expected) > 0.1


def test_repair_of_a_norm_changes_its_gain_and_shift(batch):
    model = models.from_module(Normalised(), (4,))
    inputs = jnp.asarray(batch[0])
    a, b = model.init(jax.random.key(0)), model.init(jax.random.key(1))
    a["params"]["norm"]["scale"], a["params"]["norm"]["bias"] = jnp.full(6, 2.0), jnp.full(6, 0.5)
    a, b = (evaluate.recompute_statistics(model.apply, inputs)(one, one, 0.0, one) for one in (a, b))
    middle = evaluate.interpolate(a, b, 0.5)
    found = evaluate.repair(model.apply, inputs)(a, b, 0.5, middle)
    # The ends' pre-activations have deviations 2 and 1, means 0.5 and 0.
    np.testing.assert_allclose(found["params"]["norm"]["scale"], 1.5, rtol=1e-3)
    np.testing.assert_allclose(found["params"]["norm"]["bias"], 0.25, atol=1e-5)


def test_products_of_data_and_gains_of_other_sizes_are_no_weights():
    """Scores of attention with a position bias; a gain that all units share cannot repair each of them."""
    keys = jax.random.split(jax.random.key(0), 4)
    params = {
        "query": jax.random.normal(keys[0], (4, 5)),
        "positions": jax.random.normal(keys[1], (6, 6)),
        "kernel": jax.random.normal(keys[2], (4, 5)),
        "gain": jnp.float32(2.0),
        "bias": jax.random.normal(keys[3], (5,)),
    }

    def attention(params, x):
        queries = x @ params["query"]
        scores = queries @ queries.transpose(0, 2, 1) + params["positions"]
        values = params["gain"] * (x @ params["kernel"]) + params["bias"]
        return jax.nn.softmax(scores) @ jnp.tanh(values)

    inputs = jax.random.normal(jax.random.key(1), (3, 6, 4))
    sites = {site.weight: site for site in trace(attention, params, inputs).sites}
    assert sites.keys() == {"query", "kernel"}
    assert (sites["kernel"].shift, sites["kernel"].gain, sites["kernel"].scale) == ("bias", None, None)


def test_what_cannot_be_corrected_is_refused_in_one_line(batch):
    params = network(jax.random.key(0))
    inputs = jnp.asarray(batch[0])
    with pytest.raises(ValueError, match="no normalisation by running statistics was found"):
        evaluate.recompute_statistics(apply, inputs)(params, params, 0.5, params)

    def bare(params, x):
        return jax.nn.relu(x @ params["hidden"]["kernel"]) @ params["out"]["kernel"]

    with pytest.raises(ValueError, match="'hidden/kernel' cannot be repaired"):
        evaluate.repair(bare, inputs)(params, params, 0.5, params)

    def tied(params, x):
        hidden = jax.nn.relu(x @ params["hidden"]["kernel"] + params["hidden"]["bias"])
        return (hidden + params["hidden"]["bias"]) @ params["out"]["kernel"]

    with pytest.raises(ValueError, match="'hidden/kernel' cannot be repaired"):
        evaluate.repair(tied, inputs)(params, params, 0.5, params)
