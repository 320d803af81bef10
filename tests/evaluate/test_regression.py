"""Metrics of real-valued predictions against scipy and loops."""

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
