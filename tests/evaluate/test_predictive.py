"""Streaming changes memory, never the result: blocks, devices, host arrays and posteriors give one answer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from symbnn import evaluate
from symbnn.evaluate.stream import map_blocks
from symbnn.posteriors import DiagonalGaussian, Empirical

SAMPLES, INPUTS, CLASSES = 12, 23, 4


def apply(params, inputs):
    return jax.nn.relu(inputs @ params["hidden"] + params["bias"]) @ params["out"]


@pytest.fixture(scope="module")
def samples():
    random = np.random.default_rng(0)
    shapes = {"hidden": (5, 7), "bias": (7,), "out": (7, CLASSES)}
    return {
        name: jnp.asarray(random.normal(size=(SAMPLES, *shape)), jnp.float32)
        for name, shape in shapes.items()
    }


@pytest.fixture(scope="module")
def inputs():
    return np.random.default_rng(1).normal(size=(INPUTS, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def logits(samples, inputs):
    """All outputs at once in float64: (samples, inputs, classes)."""
    double = {name: np.asarray(leaf, np.float64) for name, leaf in samples.items()}
    hidden = np.maximum(np.einsum("nd,sdh->snh", inputs, double["hidden"]) + double["bias"][:, None], 0)
    return np.einsum("snh,shc->snc", hidden, double["out"])


def softmax(logits):
    exponential = np.exp(logits - logits.max(-1, keepdims=True))
    return exponential / exponential.sum(-1, keepdims=True)


@pytest.mark.parametrize(("block_samples", "block_inputs"), [(1, 10), (5, 1), (5, 10), (12, 23), (100, 1000)])
def test_block_sizes_do_not_matter(samples, inputs, logits, block_samples, block_inputs):
    probs = evaluate.predict(apply, samples, inputs, block_samples=block_samples, block_inputs=block_inputs)
    np.testing.assert_allclose(probs, softmax(logits).mean(0), atol=1e-6)


@pytest.mark.parametrize(("block_samples", "block_inputs"), [(5, 10), (12, 23), (1, 4)])
def test_members_come_in_the_order_of_the_samples(samples, inputs, logits, block_samples, block_inputs):
    probs = evaluate.predict(
        apply, samples, inputs, members=True, block_samples=block_samples, block_inputs=block_inputs
    )
    np.testing.assert_allclose(probs, softmax(logits), atol=1e-6)


def test_samples_in_host_memory_are_streamed(samples, inputs, logits):
    on_host = jax.tree.map(np.asarray, samples)
    probs = evaluate.predict(apply, on_host, inputs, block_samples=5, block_inputs=10)
    np.testing.assert_allclose(probs, softmax(logits).mean(0), atol=1e-6)


@pytest.mark.parametrize(
    ("devices", "kind"), [(1, AxisType.Auto), (2, AxisType.Auto), (4, AxisType.Auto), (4, AxisType.Explicit)]
)
def test_sharded_samples_stay_where_they_are(samples, inputs, logits, devices, kind):
    mesh = jax.make_mesh((devices,), ("chains",), axis_types=(kind,), devices=jax.devices()[:devices])
    sharded = jax.device_put(samples, NamedSharding(mesh, PartitionSpec("chains")))
    settings = {"block_samples": 2, "block_inputs": 10}
    probs = evaluate.predict(apply, sharded, inputs, **settings)
    np.testing.assert_allclose(probs, softmax(logits).mean(0), atol=1e-6)
    members = evaluate.predict(apply, sharded, inputs, members=True, **settings)
    np.testing.assert_allclose(members, softmax(logits), atol=1e-6)


@pytest.mark.parametrize("law", ["gaussian", "empirical"])
def test_a_posterior_is_drawn_alike_whatever_the_blocks(samples, inputs, law):
    mean = jax.tree.map(lambda leaf: leaf[0], samples)
    std = jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.5), mean)
    posterior = DiagonalGaussian(mean, std) if law == "gaussian" else Empirical(samples)
    key = jax.random.key(3)
    draws = [posterior.sample(jax.random.fold_in(key, index), 1) for index in range(11)]
    stacked = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *draws)
    expected = evaluate.predict(apply, stacked, inputs)
    for block_samples in (4, 11):
        probs = evaluate.predict(
            apply, posterior, inputs, key=key, num_samples=11, block_samples=block_samples
        )
        np.testing.assert_allclose(probs, expected, atol=1e-6)


class OnDisk:
    """Two chains of six draws in chunks of four draws and of two."""

    num_chains, num_samples = 2, SAMPLES // 2

    def __init__(self, samples):
        self.samples = samples

    def sample(self, key, num):
        raise AssertionError("all draws are wanted, none at random")

    def chunks(self):
        for rows in (slice(0, 4), slice(4, 6)):
            yield {
                name: np.asarray(leaf).reshape(2, 6, *leaf.shape[1:])[:, rows]
                for name, leaf in self.samples.items()
            }


@pytest.mark.parametrize("law", [Empirical, OnDisk])
@pytest.mark.parametrize("block_samples", [3, 8])
def test_without_a_key_all_kept_networks_are_averaged(samples, inputs, logits, law, block_samples):
    probs = evaluate.predict(apply, law(samples), inputs, block_samples=block_samples)
    np.testing.assert_allclose(probs, softmax(logits).mean(0), atol=1e-6)


def test_compiled_once_per_shape(samples, inputs):
    traces = []

    def counted(params, inputs):
        traces.append(inputs.shape)
        return apply(params, inputs)

    def run(inputs):
        return evaluate.predict(counted, samples, inputs, block_samples=5, block_inputs=10)

    run(inputs)
    first = len(traces)
    run(inputs + 1.0)
    evaluate.predict(
        counted, jax.tree.map(lambda leaf: leaf[:10], samples), inputs, block_samples=5, block_inputs=10
    )
    assert len(traces) == first
    # Once to see that it does not convolve; 23 inputs are three blocks of eight.
    assert set(traces) == {(10, 5), (8, 5)}
    run(inputs[:16])
    # Another program, but of blocks of the same shape: that they do not convolve is known.
    assert len(traces) == 2 * first - 1


def test_uncertainty_is_the_entropy_decomposition(samples, inputs, logits):
    result = evaluate.predict_uncertainty(apply, samples, inputs, block_samples=5, block_inputs=10)
    members = softmax(logits)
    mean = members.mean(0)
    total = -(mean * np.log(mean)).sum(-1)
    aleatoric = -(members * np.log(members)).sum(-1).mean(0)
    np.testing.assert_allclose(result.probs, mean, atol=1e-6)
    np.testing.assert_allclose(result.total, total, atol=2e-6)
    np.testing.assert_allclose(result.aleatoric, aleatoric, atol=2e-6)
    np.testing.assert_allclose(result.epistemic, total - aleatoric, atol=2e-6)


def test_predict_inside_jit(samples, inputs, logits):
    probs = jax.jit(lambda samples: evaluate.predict(apply, samples, inputs, block_samples=5))(samples)
    np.testing.assert_allclose(probs, softmax(logits).mean(0), atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": np.zeros((0, 5), np.float32)}, "at least one along axis 0"),
        ({"block_samples": 0}, "block_samples: expected a positive integer"),
        ({"num_samples": 3}, "samples are all used, so leave both out"),
        ({"samples": DiagonalGaussian(jnp.zeros(3), jnp.ones(3))}, "give key and num_samples"),
        ({"samples": OnDisk(None), "num_samples": 3}, "all stored draws are averaged"),
        ({"samples": {"a": jnp.zeros((3, 2)), "b": jnp.zeros((4, 2))}}, "'b' has shape"),
    ],
)
def test_bad_arguments_say_what_is_wrong(samples, inputs, change, message):
    arguments = {"samples": samples, "inputs": inputs} | change
    with pytest.raises(ValueError, match=message):
        evaluate.predict(apply, arguments.pop("samples"), arguments.pop("inputs"), **arguments)


def test_one_output_without_a_likelihood_is_refused(samples, inputs):
    with pytest.raises(ValueError, match="softmax of one is always 1: for a regression give likelihood="):
        evaluate.predict(lambda params, x: apply(params, x)[:, :1], samples, inputs)


@pytest.mark.parametrize(
    ("count", "size", "rows"), [(23, 10, 8), (23, 23, 23), (23, 100, 23), (23, 1, 1), (11, 10, 6)]
)
def test_blocks_of_rows_are_as_short_as_their_number_allows(count, size, rows):
    seen = set()

    def doubled(part):
        seen.add(part.shape[0])
        return 2 * part

    values = jnp.arange(float(count))
    np.testing.assert_array_equal(map_blocks(doubled, (values,), size), 2 * values)
    assert seen == {rows}
