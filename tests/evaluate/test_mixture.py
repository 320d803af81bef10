"""Predictions under any likelihood: streamed mixtures against all samples at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import density, evaluate

RANDOM = np.random.default_rng(0)
INPUTS = np.float32(RANDOM.normal(size=(13, 3)))


def linear(params, inputs):
    return inputs @ params["kernel"] + params["bias"]


@pytest.fixture(scope="module")
def networks():
    return {
        "kernel": jnp.asarray(RANDOM.normal(size=(9, 3, 4)), jnp.float32),
        # A large common offset: raw second moments would lose all digits of the variance.
        "bias": jnp.asarray(1e3 * np.array([1, 1, 0, 0]) + RANDOM.normal(size=(9, 4)) * 0.3, jnp.float32),
    }


@pytest.fixture(scope="module")
def outputs(networks):
    each = [linear(jax.tree.map(lambda leaf, s=s: leaf[s], networks), INPUTS) for s in range(9)]
    return np.stack(each).astype(np.float64)


def predict(networks, likelihood, **settings):
    return evaluate.predict(linear, networks, INPUTS, likelihood=likelihood, block_inputs=5, **settings)


@pytest.mark.parametrize("block_samples", [2, 9])
def test_learned_noise_gives_the_moments_of_the_mixture(networks, outputs, block_samples):
    means, stds = outputs[..., :2], np.exp(outputs[..., 2:])
    result = predict(networks, density.heteroscedastic(), block_samples=block_samples)
    np.testing.assert_allclose(result.mean, means.mean(0), rtol=1e-6)
    np.testing.assert_allclose(result.epistemic, means.std(0), rtol=1e-3)
    np.testing.assert_allclose(result.aleatoric, np.sqrt((stds**2).mean(0)), rtol=1e-5)
    np.testing.assert_allclose(result.std, np.sqrt(means.var(0) + (stds**2).mean(0)), rtol=1e-3)


def test_known_noise_is_the_aleatoric_part(networks, outputs):
    result = predict(networks, density.gaussian(0.5), block_samples=4)
    np.testing.assert_allclose(result.mean, outputs.mean(0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(result.aleatoric, 0.5, rtol=1e-6)
    np.testing.assert_allclose(result.std**2, 0.25 + outputs.var(0), rtol=1e-3)


def test_members_are_gaussians_that_the_mixture_metrics_take(networks, outputs):
    each = predict(networks, density.heteroscedastic(), members=True, block_samples=4)
    np.testing.assert_allclose(each.mean, outputs[..., :2], rtol=1e-6)
    np.testing.assert_allclose(each.std, np.exp(outputs[..., 2:]), rtol=1e-4)
    assert np.all(each.epistemic == 0)
    cdf = evaluate.mixture_cdf(each.mean[..., 0], each.std[..., 0], each.mean[..., 0].mean(0))
    assert np.all((cdf > 0.0) & (cdf < 1.0))


def test_zero_or_one_targets_have_the_mean_sigmoid(networks, outputs):
    probs = predict(networks, density.bernoulli(), block_samples=2)
    np.testing.assert_allclose(probs, (1 / (1 + np.exp(-outputs))).mean(0), atol=1e-6)


def test_classes_are_the_default_bit_for_bit(networks):
    for settings in ({}, {"members": True}):
        named = predict(networks, density.categorical(), **settings)
        np.testing.assert_array_equal(predict(networks, None, **settings), named)


def test_one_likelihood_compiles_once(networks):
    traces = []

    def counted(params, inputs):
        traces.append(1)
        return linear(params, inputs)

    likelihood = density.gaussian(0.5)
    for shift in (0.0, 1.0):
        evaluate.predict(counted, networks, INPUTS + shift, likelihood=likelihood, block_samples=3)
        # Once to see whether the program convolves, once to compile it; never again.
        assert len(traces) == 2


def test_half_precision_is_averaged_in_single(networks):
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), networks)
    assert predict(half, density.gaussian(0.5)).mean.dtype == jnp.float32
