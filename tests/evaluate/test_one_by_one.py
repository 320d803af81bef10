"""Networks that convolve: applied one at a time on CPUs, with the numbers of any other way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from symbnn import evaluate
from symbnn.evaluate import one_by_one
from symbnn.posteriors import DiagonalGaussian
from symbnn.programs import has_convolution

SAMPLES, INPUTS, CLASSES = 6, 23, 3
DIMENSIONS = ("NHWC", "HWIO", "NHWC")


def convolve(params, inputs):
    """A convolution, the mean over positions, a matrix."""
    hidden = jax.lax.conv_general_dilated(
        inputs, params["kernel"], (1, 1), "SAME", dimension_numbers=DIMENSIONS
    )
    return jax.nn.relu(hidden).mean((1, 2)) @ params["out"]


@jax.custom_batching.custom_vmap
def refusing(params, inputs):
    """The same, which may not be applied side by side."""
    return convolve(params, inputs)


@refusing.def_vmap
def _(axis_size, in_batched, params, inputs):
    raise AssertionError(f"{axis_size} networks were applied side by side")


@pytest.fixture(scope="module")
def samples():
    random = np.random.default_rng(0)
    shapes = {"kernel": (3, 3, 2, 4), "out": (4, CLASSES)}
    return {
        name: jnp.asarray(random.normal(size=(SAMPLES, *shape)), jnp.float32)
        for name, shape in shapes.items()
    }


@pytest.fixture(scope="module")
def inputs():
    return np.random.default_rng(1).normal(size=(INPUTS, 6, 6, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def members(samples, inputs):
    """Probabilities of every network, written out: shifted images times kernel in float64."""
    images = np.pad(inputs.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    patches = np.stack([images[:, i : i + 6, j : j + 6] for i in range(3) for j in range(3)], axis=3)
    kernels = np.asarray(samples["kernel"], np.float64).reshape(SAMPLES, 9, 2, 4)
    hidden = np.maximum(np.einsum("nhwpc,spcd->snhwd", patches, kernels), 0).mean((2, 3))
    logits = np.einsum("snd,sdk->snk", hidden, np.asarray(samples["out"], np.float64))
    exponential = np.exp(logits - logits.max(-1, keepdims=True))
    return exponential / exponential.sum(-1, keepdims=True)


@pytest.mark.parametrize(("block_samples", "block_inputs"), [(1, 10), (4, 1), (4, 10), (6, 23), (100, 1000)])
def test_no_two_networks_side_by_side_and_blocks_do_not_matter(
    samples, inputs, members, block_samples, block_inputs
):
    settings = {"block_samples": block_samples, "block_inputs": block_inputs}
    probs = evaluate.predict(refusing, samples, inputs, **settings)
    np.testing.assert_allclose(probs, members.mean(0), atol=1e-6)
    each = evaluate.predict(refusing, samples, inputs, members=True, **settings)
    np.testing.assert_allclose(each, members, atol=1e-6)
    found = evaluate.predict_uncertainty(refusing, samples, inputs, **settings)
    np.testing.assert_allclose(found.aleatoric, -(members * np.log(members)).sum(-1).mean(0), atol=1e-6)


@pytest.mark.parametrize("devices", [1, 2])
def test_sharded_networks_stay_on_their_devices(samples, inputs, members, devices):
    mesh = jax.make_mesh((devices,), ("draws",), devices=jax.devices()[:devices])
    sharded = jax.device_put(samples, NamedSharding(mesh, PartitionSpec("draws")))
    settings = {"block_samples": 2, "block_inputs": 10}
    np.testing.assert_allclose(
        evaluate.predict(refusing, sharded, inputs, **settings), members.mean(0), atol=1e-6
    )
    each = evaluate.predict(refusing, sharded, inputs, members=True, **settings)
    np.testing.assert_allclose(each, members, atol=1e-6)


def test_draws_of_a_posterior_are_those_of_any_block_size(samples, inputs):
    mean = jax.tree.map(lambda leaf: leaf[0], samples)
    posterior = DiagonalGaussian(mean, jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.5), mean))
    key = jax.random.key(3)
    draws = [posterior.sample(jax.random.fold_in(key, index), 1) for index in range(5)]
    expected = evaluate.predict(
        convolve, jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *draws), inputs
    )
    for block_samples in (2, 5):
        probs = evaluate.predict(
            refusing, posterior, inputs, key=key, num_samples=5, block_samples=block_samples
        )
        np.testing.assert_allclose(probs, expected, atol=1e-6)


def test_compiled_once_per_shape(samples, inputs):
    traces = []

    def counted(params, inputs):
        traces.append(inputs.shape)
        return convolve(params, inputs)

    def run(inputs, num=SAMPLES):
        some = jax.tree.map(lambda leaf: leaf[:num], samples)
        return evaluate.predict(counted, some, inputs, block_samples=4, block_inputs=10)

    run(inputs)
    first = len(traces)
    run(inputs + 1.0)
    run(inputs, 5)
    assert len(traces) == first
    # Once to see that it convolves, once for every device's share of a block.
    assert sorted(set(traces)) == [(10 // jax.device_count(), 6, 6, 2), (10, 6, 6, 2)]
    run(inputs[:20])
    assert len(traces) <= 2 * first


@pytest.mark.parametrize("num", [1, 7, 23])
def test_images_of_a_block_lie_on_all_devices(samples, inputs, members, num):
    shapes = set()

    def seen(params, inputs):
        shapes.add(inputs.shape[0])
        return convolve(params, inputs)

    probs = evaluate.predict(seen, samples, inputs[:num])
    np.testing.assert_allclose(probs, members[:, :num].mean(0), atol=1e-6)
    assert shapes == {num, max(num // jax.device_count(), 1)}


def test_a_device_has_at_most_one_block_of_images_at_a_time(samples):
    sizes = set()

    def counted(params, inputs):
        sizes.add(inputs.shape[0])
        return convolve(params, inputs)

    many = np.zeros((jax.device_count() * one_by_one.BLOCK_IMAGES + 1, 6, 6, 2), np.float32)
    one_by_one.summaries(
        counted,
        lambda outputs, weights: outputs[0],
        10_000,
        None,
        samples,
        np.ones(SAMPLES),
        jnp.asarray(many),
    )
    assert sizes == {one_by_one.BLOCK_IMAGES}


def test_no_network_is_applied_twice_where_the_last_block_overlaps(samples, inputs, monkeypatch):
    """Five networks in blocks of four: the second block repeats three of the first, with weight zero."""
    applied, of_one = [], one_by_one._of_one

    def counted(apply, mesh, network, some):
        applied.append(float(network["out"][0, 0]))
        return of_one(apply, mesh, network, some)

    monkeypatch.setattr(one_by_one, "_of_one", counted)
    some = jax.tree.map(lambda leaf: leaf[:5], samples)
    evaluate.predict(convolve, some, inputs[:16], block_samples=4, block_inputs=INPUTS)
    assert applied == [float(value) for value in some["out"][:, 0, 0]]


def test_only_what_convolves_goes_one_by_one(samples, inputs):
    def dense(params, inputs):
        return inputs.mean((1, 2)) @ params["kernel"][0, 0] @ params["out"]

    def hidden_in_a_loop(params, inputs):
        start = jnp.zeros((inputs.shape[0], CLASSES))
        return jax.lax.fori_loop(0, 2, lambda _, total: total + jax.jit(convolve)(params, inputs), start)

    one = jax.tree.map(lambda leaf: leaf[0], samples)
    for function, expected in ((convolve, True), (dense, False), (hidden_in_a_loop, True)):
        assert has_convolution(jax.make_jaxpr(function)(one, inputs).jaxpr) == expected
        assert one_by_one.is_wanted(function, samples, jnp.asarray(inputs), 10) == expected
