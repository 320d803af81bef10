"""The temperature of least log-loss against scipy's minimiser."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from symbnn import evaluate


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_temperature_is_the_minimum_of_the_nll(scale):
    random = np.random.default_rng(5)
    logits = random.normal(size=(300, 4))
    labels = np.array([random.choice(4, p=np.exp(row) / np.exp(row).sum()) for row in logits])

    def nll(log_temperature):
        scaled = scale * logits / np.exp(log_temperature)
        return np.mean(np.log(np.exp(scaled).sum(1)) - scaled[np.arange(300), labels])

    best = optimize.minimize_scalar(nll, bounds=(-5, 5), method="bounded", options={"xatol": 1e-9}).x
    found = evaluate.fit_temperature(np.float32(scale * logits), labels.astype(np.int32))
    np.testing.assert_allclose(found, np.exp(best), rtol=1e-4)


def test_temperature_of_perfect_predictions_is_the_lowest():
    assert evaluate.fit_temperature(jnp.eye(3), jnp.arange(3)) < 0.05
