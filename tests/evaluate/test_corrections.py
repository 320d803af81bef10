"""Repairs of averaged networks against their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from symbnn import evaluate, models
from tests.evaluate.networks import BATCH, RANDOM, apply, network, preactivations


@pytest.fixture
def batch():
    return BATCH


def moments(params, inputs):
    z = preactivations(params, inputs)["hidden"]
    return jnp.mean(z, axis=0), jnp.std(z, axis=0)


def test_repair_gives_the_mean_network_the_statistics_of_the_ends(batch):
    inputs = jnp.asarray(batch[0])
    a, b = network(jax.random.key(0)), network(jax.random.key(1))
    middle = evaluate.interpolate(a, b, 0.25)
    ends = zip(moments(a, inputs), moments(b, inputs), strict=True)
    wanted = [0.75 * at_a + 0.25 * at_b for at_a, at_b in ends]
    repaired = evaluate.repair(preactivations, inputs)(a, b, 0.25, middle)
    np.testing.assert_allclose(moments(repaired, inputs)[0], wanted[0], atol=1e-5)
    np.testing.assert_allclose(moments(repaired, inputs)[1], wanted[1], rtol=1e-5)
    curve = evaluate.barrier(apply, a, b, batch, points=3, correct=evaluate.repair(preactivations, inputs))
    plain = evaluate.barrier(apply, a, b, batch, points=3)
    np.testing.assert_allclose(curve.loss[jnp.array([0, 2])], plain.loss[jnp.array([0, 2])], rtol=1e-4)


def test_batch_statistics_are_averaged_over_blocks():
    momentum = 0.9
    inputs = jnp.asarray(3.0 + 2.0 * RANDOM.normal(size=(64, 4)), jnp.float32)

    def train(params, inputs, key):
        new = {"mean": jnp.mean(inputs, axis=0), "var": jnp.var(inputs, axis=0)}
        old = params["batch_stats"]
        running = jax.tree.map(lambda o, n: momentum * o + (1 - momentum) * n, old, new)
        return inputs, {**params, "batch_stats": running}

    stale = {"params": {}, "batch_stats": {"mean": jnp.full(4, 7.0), "var": jnp.full(4, 7.0)}}
    correct = evaluate.recompute_statistics(train, inputs, jax.random.key(0), block_inputs=16)
    found = correct(stale, stale, 0.5, stale)["batch_stats"]
    blocks = np.asarray(inputs).reshape(4, 16, 4)
    np.testing.assert_allclose(found["mean"], blocks.mean((0, 1)), rtol=1e-4)
    np.testing.assert_allclose(found["var"], blocks.var(1).mean(0), rtol=1e-4)


class Normalised(nn.Module):
    """Dense, BatchNorm, Dense."""

    @nn.compact
    def __call__(self, inputs, train=False):
        hidden = nn.BatchNorm(use_running_average=not train, momentum=0.99, name="norm")(nn.Dense(6)(inputs))
        return nn.Dense(3, name="out")(nn.relu(hidden))


def test_an_averaged_network_with_batch_norm_is_judged_with_its_own_statistics(batch):
    model = models.from_module(Normalised(), (4,))
    # Far from the unit variance that fresh running statistics claim.
    inputs = 5.0 + 10.0 * jnp.asarray(batch[0])[:32]
    a, b = model.init(jax.random.key(0)), model.init(jax.random.key(1))
    correct = evaluate.recompute_statistics(model.train, inputs, jax.random.key(2), block_inputs=32)
    judged = (inputs, batch[1][:32])
    curve = evaluate.barrier(model.apply, a, b, judged, points=3, correct=correct)
    # In training mode the network normalises by this very batch: the recomputed statistics do the same.
    outputs, _ = model.train(evaluate.interpolate(a, b, 0.5), inputs, jax.random.key(3))
    expected = np.mean(evaluate.cross_entropy(outputs, jnp.asarray(judged[1])))
    np.testing.assert_allclose(curve.loss[1], expected, rtol=1e-4)
    stale = evaluate.barrier(model.apply, a, b, judged, points=3)
    assert abs(stale.loss[1] - expected) > 0.1
