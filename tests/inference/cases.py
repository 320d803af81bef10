"""Small targets with known answers, shared by the tests of the samplers."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.diagnostics import effective_sample_size

from symbnn import density


class LinearModel(NamedTuple):
    """As much of a `Model` as a target needs: outputs = inputs @ weights."""

    init: Any
    apply: Any
    train: Any


class Conjugate(NamedTuple):
    """Linear-Gaussian regression with its exact posterior."""

    target: density.Target
    mean: np.ndarray
    covariance: np.ndarray


def linear_model(num_inputs: int, num_outputs: int = 1, dtype: Any = jnp.float32) -> LinearModel:
    def init(key):
        return {"out": {"kernel": jax.random.normal(key, (num_inputs, num_outputs), dtype)}}

    def apply(params, inputs):
        return inputs @ params["out"]["kernel"]

    return LinearModel(init, apply, lambda params, inputs, key: (apply(params, inputs), params))


@functools.cache
def conjugate(num_inputs: int = 3, num_data: int = 20, temperature: float = 1.0) -> Conjugate:
    """Correlated inputs, noise 0.5, prior N(0, 1): the posterior precision is (XᵀX / 0.25 + I) / T."""
    random = np.random.default_rng(0)
    inputs = random.normal(size=(num_data, num_inputs)) @ random.normal(size=(num_inputs, num_inputs))
    targets = inputs @ random.normal(size=num_inputs) + 0.5 * random.normal(size=num_data)
    batch = density.Batch(inputs.astype(np.float32), targets[:, None].astype(np.float32))
    target = density.target(
        linear_model(num_inputs),
        batch,
        likelihood=density.gaussian(0.5),
        temperature=temperature,
        chunk_size=8,
    )
    covariance = np.linalg.inv(inputs.T @ inputs / 0.25 + np.eye(num_inputs))
    return Conjugate(target, covariance @ inputs.T @ targets / 0.25, temperature * covariance)


def assert_moments(fit: Any, case: Conjugate, *, num_errors: float = 4.0) -> None:
    """Mean and covariance within `num_errors` standard errors, counted with the effective sample size."""
    draws = np.asarray(fit.posterior.by_chain()["out"]["kernel"], np.float64)[..., 0]
    centred = draws - case.mean
    check_mean(draws, case.mean, num_errors)
    for i in range(draws.shape[-1]):
        for j in range(i + 1):
            product = centred[..., i] * centred[..., j]
            check_mean(product[..., None], case.covariance[i, j][None], num_errors)


def check_mean(values: np.ndarray, expected: np.ndarray, num_errors: float) -> None:
    sizes = np.asarray(effective_sample_size(jnp.asarray(values, jnp.float32)))
    assert np.all(sizes > 100), f"too few effective samples to tell: {sizes}"
    errors = values.std((0, 1)) / np.sqrt(sizes)
    distance = np.abs(values.mean((0, 1)) - expected) / errors
    assert np.all(distance < num_errors), f"{distance} standard errors away"


def small_network(num_data: int = 37, num_inputs: int = 5, num_hidden: int = 4, num_classes: int = 3) -> Any:
    """(model, batch) of a one-hidden-layer classifier with random data."""
    random = np.random.default_rng(1)

    def init(key):
        first, second = jax.random.split(key)
        return {
            "hidden": {
                "bias": jnp.zeros(num_hidden),
                "kernel": jax.random.normal(first, (num_inputs, num_hidden)) / 2,
            },
            "out": {
                "bias": jnp.zeros(num_classes),
                "kernel": jax.random.normal(second, (num_hidden, num_classes)) / 2,
            },
        }

    def apply(params, inputs):
        hidden = jax.nn.relu(inputs @ params["hidden"]["kernel"] + params["hidden"]["bias"])
        return hidden @ params["out"]["kernel"] + params["out"]["bias"]

    model = LinearModel(init, apply, lambda params, inputs, key: (apply(params, inputs), params))
    inputs = random.normal(size=(num_data, num_inputs)).astype(np.float32)
    return model, density.Batch(inputs, random.integers(num_classes, size=num_data).astype(np.int32))
