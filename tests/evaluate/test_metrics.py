"""A bundle of sums equals the metrics of all inputs at once, whatever the batches and devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from symbnn import evaluate

NAMES = ["accuracy", "nll", "brier", "ece", "mce", "classwise_ece"]


@pytest.fixture(scope="module")
def data():
    key_a, key_b, key_c = jax.random.split(jax.random.key(0), 3)
    probs = jax.nn.softmax(2.0 * jax.random.normal(key_a, (120, 5)))
    reference = jax.nn.softmax(2.0 * jax.random.normal(key_b, (120, 5)))
    return probs, jax.random.randint(key_c, (120,), 0, 5), reference


@pytest.fixture(scope="module")
def expected(data):
    probs, labels, reference = data
    values = {name: getattr(evaluate, name)(probs, labels) for name in NAMES}
    values["entropy"] = jnp.mean(evaluate.entropy_score(probs))
    values["agreement"] = evaluate.agreement(probs, reference)
    return values | {"total_variation": evaluate.total_variation(probs, reference)}


def assert_same(metrics, expected):
    values = metrics.compute()
    assert values.keys() == expected.keys()
    for name, value in values.items():
        np.testing.assert_allclose(value, expected[name], atol=1e-6, err_msg=name)


@pytest.mark.parametrize("batch", [120, 40])
def test_batches(data, expected, batch):
    metrics = evaluate.Metrics.empty(5)
    for start in range(0, 120, batch):
        probs, labels, reference = (part[start : start + batch] for part in data)
        metrics = metrics.update(probs, labels, reference=reference)
    assert_same(metrics, expected)


def test_merge_is_commutative_and_empty_is_neutral(data, expected):
    probs, labels, reference = data
    first = evaluate.Metrics.empty(5).update(probs[:40], labels[:40], reference=reference[:40])
    second = evaluate.Metrics.empty(5).update(probs[40:], labels[40:], reference=reference[40:])
    assert_same(first.merge(second), expected)
    assert_same(second.merge(first).merge(evaluate.Metrics.empty(5)), expected)


def test_weight_zero_leaves_an_input_out(data, expected):
    padded = [jnp.concatenate([part, part[:40]]) for part in data]
    # A left-out input may even have given its label probability zero.
    padded[0] = padded[0].at[-1].set(jnp.array([0.0, 1.0, 0.0, 0.0, 0.0]))
    padded[1] = padded[1].at[-1].set(0)
    weights = jnp.repeat(jnp.array([1.0, 0.0]), jnp.array([120, 40]), total_repeat_length=160)
    metrics = evaluate.Metrics.empty(5).update(*padded[:2], reference=padded[2], weights=weights)
    assert_same(metrics, expected)


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_devices(data, expected, devices):
    mesh = Mesh(np.array(jax.devices()[:devices]), ("data",))

    def local(probs, labels, reference):
        return jax.lax.psum(evaluate.Metrics.empty(5).update(probs, labels, reference=reference), "data")

    split = PartitionSpec("data")
    mapped = jax.shard_map(local, mesh=mesh, in_specs=(split, split, split), out_specs=PartitionSpec())
    assert_same(jax.jit(mapped)(*data), expected)


def test_without_a_reference_there_is_no_agreement(data):
    probs, labels, _ = data
    values = evaluate.Metrics.empty(5).update(probs, labels).compute()
    assert np.isnan(values["agreement"])
    with pytest.raises(ValueError, match="sums to 2"):
        evaluate.Metrics.empty(5).update(2 * probs, labels)


def test_the_size_of_weights_does_not_matter(data, expected):
    probs, labels, reference = data
    weights = jnp.full(len(labels), 1e-3)
    metrics = evaluate.Metrics.empty(5).update(probs, labels, reference=reference, weights=weights)
    assert_same(metrics, expected)


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (-1.0, "weights: expected numbers of at least zero, got -1"),
        (jnp.nan, "weights: expected finite numbers"),
    ],
)
def test_weights_that_are_none_are_refused(data, weight, words):
    probs, labels, _ = data
    with pytest.raises(ValueError, match=words):
        evaluate.Metrics.empty(5).update(probs, labels, weights=jnp.full(120, weight))
