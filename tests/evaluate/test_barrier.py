"""Barriers against their definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import evaluate
from tests.evaluate.networks import BATCH, RANDOM, apply, network


@pytest.fixture
def batch():
    return BATCH


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


def test_the_loss_of_a_sequence_is_the_mean_over_its_places(batch):
    inputs, labels = (np.asarray(array)[:36] for array in batch)
    a, b = network(jax.random.key(0)), network(jax.random.key(1))

    def sequences(params, inputs):
        return apply(params, inputs.reshape(-1, inputs.shape[-1])).reshape(*inputs.shape[:2], -1)

    alone = evaluate.barrier(apply, a, b, (inputs, labels), points=3)
    joined = inputs.reshape(12, 3, -1), labels.reshape(12, 3)
    together = evaluate.barrier(sequences, a, b, joined, points=3)
    np.testing.assert_allclose(together.loss, alone.loss, rtol=1e-5)
    np.testing.assert_allclose(together.error, alone.error, rtol=1e-5)


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
