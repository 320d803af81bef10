"""Distances between Gaussians over weights against numerical integration."""

from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from symbnn import evaluate


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


def test_what_only_one_of_two_knows_is_infinitely_far():
    known, unknown = (Gaussian({"a": np.zeros(2)}, {"a": np.array([1.0, std])}) for std in (0.0, 1.0))
    assert evaluate.kl(unknown, known) == np.inf
    assert evaluate.kl(known, unknown) == np.inf
    assert evaluate.kl(known, known) == 0
