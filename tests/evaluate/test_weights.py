"""Gaussians over weights against numerical integration; barriers and repairs against their definitions."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from scipy import stats
from scipy.integrate import quad

from symbnn import evaluate, models

RANDOM = np.random.default_rng(0)


class Gaussian(NamedTuple):
    mean: dict
    std: dict


def gaussian(seed):
    random = np.random.default_rng(seed)
    shapes = {"a": (2, 3), "b": (4,)}
    return Gaussian(
        {name: np.float32(random.normal(size=shape)) for name, shape in shapes.items()},
        {name: np.float32(np.exp(0.3 * random.normal(size=shape))) for name, shape in shapes.items()},
    )


def scalars(law):
    return [np.concatenate([part["a"].ravel(), part["b"]]).astype(np.float64) for part in law]


def test_kl_is_the_integral():
    q, p = gaussian(0), gaussian(1)
    total = 0.0
    for mean_q, std_q, mean_p, std_p in zip(*scalars(q), *scalars(p), strict=True):
        first, second = stats.norm(mean_q, std_q), stats.norm(mean_p, std_p)
        total += quad(lambda x: first.pdf(x) * (first.logpdf(x) - second.logpdf(x)), -20, 20)[0]  # noqa: B023
    np.testing.assert_allclose(evaluate.kl(q, p), total, rtol=1e-5)
    assert evaluate.kl(q, q) == 0.0


def test_kl_of_nearly_equal_laws_keeps_its_digits():
    q = Gaussian({"w": np.zeros(1, np.float32)}, {"w": np.float32([1.0])})
    p = Gaussian({"w": np.zeros(1, np.float32)}, {"w": np.float32([1.001])})
    # log r + (r^-2 - 1) / 2 = t^2 - 2 t^3 / 3 + ... with t = log r.
    t = np.log(np.float64(np.float32(1.001)))
    np.testing.assert_allclose(evaluate.kl(q, p), t**2 - 2 * t**3 / 3, rtol=0.05)


def test_wasserstein_is_the_distance_of_quantile_functions():
    q, p = gaussian(0), gaussian(1)
    levels = (np.arange(200_000) + 0.5) / 200_000
    z = stats.norm.ppf(levels)
    squares = [
        np.mean((mean_q + std_q * z - mean_p - std_p * z) ** 2)
        for mean_q, std_q, mean_p, std_p in zip(*scalars(q), *scalars(p), strict=True)
    ]
    np.testing.assert_allclose(evaluate.wasserstein(q, p), np.sqrt(np.sum(squares)), rtol=1e-4)


def test_gaussians_of_different_networks_have_no_distance():
    q = gaussian(0)
    other = Gaussian({"a": q.mean["a"]}, {"a": q.std["a"]})
    with pytest.raises(ValueError, match=r"p\.mean: "):
        evaluate.kl(q, other)


def apply(params, inputs):
    return jax.nn.relu(preactivations(params, inputs)["hidden"]) @ params["out"]["kernel"]


def network(key):
    keys = jax.random.split(key, 3)
    return {
        "hidden": {"kernel": jax.random.normal(keys[0], (4, 6)), "bias": jax.random.normal(keys[1], (6,))},
        "out": {"kernel": jax.random.normal(keys[2], (6, 3))},
    }


@pytest.fixture(scope="module")
def batch():
    inputs = np.float32(RANDOM.normal(size=(37, 4)))
    return inputs, RANDOM.integers(0, 3, 37).astype(np.int32)


def test_barrier_is_the_excess_over_the_line_of_the_ends(batch):
    inputs, labels = batch
    a, b = network(jax.random.key(0)), network(jax.random.key(1))
    result = evaluate.barrier(apply, a, b, batch, points=5, block_inputs=10)
    losses, errors = [], []
    for weight in np.linspace(0, 1, 5):
        logits = np.float64(apply(evaluate.interpolate(a, b, weight), inputs))
        log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        losses.append(-log_probs[np.arange(37), labels].mean())
        errors.append(np.mean(logits.argmax(1) != labels))
    line = np.linspace(0, 1, 5) * (losses[-1] - losses[0]) + losses[0]
    np.testing.assert_allclose(result.loss, losses, rtol=1e-5)
    np.testing.assert_allclose(result.error, errors, atol=1e-6)
    np.testing.assert_allclose(result.loss_excess, losses - line, atol=2e-5)
    np.testing.assert_allclose(result.loss_barrier, np.max(losses - line), atol=2e-5)
    assert result.loss_excess[0] == result.loss_excess[-1] == 0.0


def test_barriers_of_stacked_pairs(batch):
    firsts, seconds = (jax.vmap(network)(jax.random.split(jax.random.key(seed), 3)) for seed in (0, 1))
    stacked = jax.vmap(lambda a, b: evaluate.barrier(apply, a, b, batch, points=3))(firsts, seconds)
    one = [jax.tree.map(lambda leaf: leaf[2], nets) for nets in (firsts, seconds)]
    alone = evaluate.barrier(apply, *one, batch, points=3)
    np.testing.assert_allclose(stacked.loss[2], alone.loss, rtol=1e-5)


def test_barrier_with_other_losses_and_bad_arguments(batch):
    a, b = network(jax.random.key(0)), network(jax.random.key(1))
    targets = np.float32(RANDOM.normal(size=(37, 3)))

    def squared_error(outputs, targets):
        return jnp.sum(jnp.square(outputs - targets), axis=-1)

    result = evaluate.barrier(
        apply, a, b, (batch[0], targets), points=2, loss=squared_error, error=squared_error
    )
    expected = np.mean(np.sum((apply(a, batch[0]) - targets) ** 2, axis=1))
    np.testing.assert_allclose(result.loss[0], expected, rtol=1e-5)
    with pytest.raises(ValueError, match="points: expected at least the two ends, got 1"):
        evaluate.barrier(apply, a, b, batch, points=1)
    with pytest.raises(ValueError, match="params_b: missing leaves"):
        evaluate.barrier(apply, a, {"hidden": b["hidden"]}, batch)
    with pytest.raises(ValueError, match="as many targets as inputs"):
        evaluate.barrier(apply, a, b, (batch[0], batch[1][:5]))


def preactivations(params, inputs):
    return {"hidden": inputs @ params["hidden"]["kernel"] + params["hidden"]["bias"]}


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
