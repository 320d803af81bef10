"""Real-valued predictions: closed forms against scipy, streamed mixtures against all samples at once."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from symbnn import evaluate

RANDOM = np.random.default_rng(0)
MEMBERS, INPUTS = 7, 11


@pytest.fixture(scope="module")
def mixture():
    means = RANDOM.normal(size=(MEMBERS, INPUTS))
    stds = np.exp(0.5 * RANDOM.normal(size=(MEMBERS, INPUTS)))
    return tuple(np.float32(part) for part in (means, stds, RANDOM.normal(size=INPUTS)))


def double(parts):
    return (part.astype(np.float64) for part in parts)


def test_rmse():
    a, b = np.float32(RANDOM.normal(size=(2, 5, 3)))
    np.testing.assert_allclose(evaluate.rmse(a, b), np.sqrt(np.mean((a - b) ** 2)), rtol=1e-6)


def test_mixture_nll_and_distribution_function(mixture):
    means, stds, targets = double(mixture)
    density = stats.norm.pdf(targets, means, stds).mean(0)
    np.testing.assert_allclose(evaluate.mixture_nll(*mixture), -np.log(density).mean(), atol=1e-6)
    cdf = stats.norm.cdf(targets, means, stds).mean(0)
    np.testing.assert_allclose(evaluate.mixture_cdf(*mixture), cdf, atol=1e-6)


def test_crps_of_samples_is_the_double_loop(mixture):
    samples, _, targets = mixture
    x = samples.astype(np.float64)
    distance = np.abs(x - targets).mean(0)
    pairs = np.abs(x[:, None] - x[None]).sum((0, 1))
    np.testing.assert_allclose(
        evaluate.crps(samples, targets), np.mean(distance - 0.5 * pairs / MEMBERS**2), atol=1e-6
    )
    fair = np.mean(distance - 0.5 * pairs / (MEMBERS * (MEMBERS - 1)))
    np.testing.assert_allclose(evaluate.crps(samples, targets, fair=True), fair, atol=1e-6)


def test_crps_of_a_mixture_is_the_integral(mixture):
    means, stds, targets = double(mixture)

    def squared_gap(x, column):
        return (stats.norm.cdf(x, means[:, column], stds[:, column]).mean() - (x >= targets[column])) ** 2

    each = [
        quad(squared_gap, -30, 30, args=(column,), points=[targets[column]], limit=200)[0]
        for column in range(3)
    ]
    first = [part[..., :3] for part in mixture]
    np.testing.assert_allclose(evaluate.mixture_crps(*first), np.mean(each), atol=1e-6)


def test_crps_of_a_gaussian_is_gneitings():
    mean, std, targets = np.float32([[0.5, -1.0]]), np.float32([[2.0, 0.1]]), np.float32([1.0, -1.3])
    z = (targets - mean[0]) / std[0]
    expected = std[0] * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(evaluate.mixture_crps(mean, std, targets), expected.mean(), atol=1e-6)


def test_quantile_calibration():
    uniform = np.float32((np.arange(10_000) + 0.5) / 10_000)
    assert evaluate.quantile_calibration(uniform) < 2e-4
    # Every target at the median lies in every central interval: gaps 1 - q, mean 1/2.
    np.testing.assert_allclose(evaluate.quantile_calibration(np.full(9, 0.5, np.float32)), 0.5, atol=1e-6)
    cdf = np.float32(RANDOM.uniform(size=37))
    levels = np.linspace(0.05, 0.95, 15)
    gaps = [abs(np.mean(np.abs(2 * cdf - 1) <= level) - level) for level in levels]
    np.testing.assert_allclose(evaluate.quantile_calibration(cdf), np.mean(gaps), atol=1e-6)


def linear(params, inputs):
    return inputs @ params["kernel"] + params["bias"]


@pytest.fixture(scope="module")
def networks():
    return {
        "kernel": jnp.asarray(RANDOM.normal(size=(9, 3, 4)), jnp.float32),
        # A large common offset: raw second moments would lose all digits of the variance.
        "bias": jnp.asarray(1e3 * np.array([1, 1, 0, 0]) + RANDOM.normal(size=(9, 4)) * 0.3, jnp.float32),
    }


@pytest.mark.parametrize("block_samples", [2, 9])
def test_streamed_mixture(networks, block_samples):
    inputs = np.float32(RANDOM.normal(size=(13, 3)))
    targets = np.float32(1e3 + RANDOM.normal(size=(13, 2)))
    outputs = np.stack([np.asarray(linear({k: v[s] for k, v in networks.items()}, inputs)) for s in range(9)])
    means, stds = outputs[..., :2].astype(np.float64), np.exp(outputs[..., 2:].astype(np.float64))
    result = evaluate.predict_regression(
        linear, networks, inputs, targets=targets, block_samples=block_samples, block_inputs=5
    )
    np.testing.assert_allclose(result.mean, means.mean(0), rtol=1e-6)
    np.testing.assert_allclose(result.epistemic, means.var(0), rtol=1e-3)
    np.testing.assert_allclose(result.aleatoric, (stds**2).mean(0), rtol=1e-5)
    np.testing.assert_allclose(result.variance, means.var(0) + (stds**2).mean(0), rtol=1e-3)
    log_density = stats.norm.logpdf(targets, means, stds).sum(-1)
    expected = np.log(np.mean(np.exp(log_density - log_density.max(0)), axis=0)) + log_density.max(0)
    np.testing.assert_allclose(result.log_density, expected, rtol=1e-3, atol=1e-2)


def test_known_noise_and_no_targets(networks):
    inputs = np.float32(RANDOM.normal(size=(4, 3)))
    result = evaluate.predict_regression(linear, networks, inputs, noise=0.5)
    assert result.mean.shape == (4, 4)
    assert result.log_density is None
    np.testing.assert_allclose(result.aleatoric, 0.25, atol=1e-6)
    with pytest.raises(ValueError, match=r"targets: expected shape \(4, outputs\), got \(4,\)"):
        evaluate.predict_regression(linear, networks, inputs, targets=np.zeros(4, np.float32))
