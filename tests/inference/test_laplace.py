"""Laplace's approximation: exact where the posterior is Gaussian, and the Hessian where G is the Hessian."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from symbnn import density, inference, models, tree
from symbnn.inference import curvature
from symbnn.inference.last_layer import last_layer
from symbnn.posteriors import (
    DiagonalGaussian,
    FixedLeaves,
    GaussianMixture,
    LowRankGaussian,
    LowRankPrecision,
)
from tests.inference.cases import conjugate, small_network

KEY = jax.random.key(0)


def rows(factors) -> np.ndarray:
    return np.asarray(jax.vmap(lambda params: ravel_pytree(params)[0])(factors), np.float64)


def dense_covariance(posterior) -> np.ndarray:
    """The covariance that a Gaussian stands for, formed in the plainest way."""
    if isinstance(posterior, DiagonalGaussian):
        return np.diag(np.asarray(ravel_pytree(posterior.std)[0], np.float64) ** 2)
    factors = rows(posterior.factors)
    if isinstance(posterior, LowRankGaussian):
        return factors.T @ factors
    std = np.asarray(ravel_pytree(posterior.std)[0], np.float64)
    return np.linalg.inv(np.diag(std**-2) + factors.T @ factors)


def at_mode(case, **settings):
    start = {"out": {"kernel": jnp.asarray(case.mean, jnp.float32)[:, None]}}
    return inference.laplace(pretrain_epochs=0, initial=start, **settings)(KEY, case.target).posterior


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("structure", ["full", "low_rank"])
def test_a_linear_gaussian_model_is_exact(structure, temperature):
    case = conjugate(temperature=temperature)
    posterior = at_mode(case, structure=structure, rank=3, chunk_size=7)
    np.testing.assert_allclose(posterior.mean["out"]["kernel"][:, 0], case.mean, rtol=1e-5)
    scale = np.sqrt(np.diag(case.covariance))
    error = (dense_covariance(posterior) - case.covariance) / np.outer(scale, scale)
    assert np.max(np.abs(error)) < 2e-3
    draws = np.asarray(posterior.sample(KEY, 20_000)["out"]["kernel"][..., 0], np.float64)
    assert np.max(np.abs(np.cov(draws.T) - case.covariance) / np.outer(scale, scale)) < 5 * np.sqrt(
        2 / 20_000
    )


def test_the_diagonal_is_that_of_the_precision():
    case = conjugate()
    variances = np.diag(dense_covariance(at_mode(case, chunk_size=6)))
    np.testing.assert_allclose(variances, 1 / np.diag(np.linalg.inv(case.covariance)), rtol=1e-3)


def test_pretraining_finds_the_mode():
    case = conjugate()
    fit = inference.laplace(pretrain_epochs=3000, batch_size=20, optimizer=optax.adam(0.03))(KEY, case.target)
    deviation = np.abs(fit.posterior.mean["out"]["kernel"][:, 0] - case.mean) / np.sqrt(
        np.diag(case.covariance)
    )
    assert np.max(deviation) < 0.05
    assert fit.diagnostics["loss"].shape == (3000,)
    assert fit.diagnostics["num_nonfinite_values"] == 0


def softmax_case():
    """Softmax regression: outputs are linear in the weights, so G is the exact Hessian."""
    model = models.mlp((4,), 3, hidden=())
    random = np.random.default_rng(0)
    data = density.Batch(
        jnp.asarray(random.normal(size=(23, 4)), jnp.float32),
        jnp.asarray(random.integers(3, size=23), jnp.int32),
    )
    weights, unravel = ravel_pytree(model.init(KEY))
    likelihood = density.categorical()

    def outputs(flat, inputs):
        return model.apply(unravel(flat), inputs)

    def loss(flat):
        return -jnp.sum(likelihood.log_prob(outputs(flat, data.inputs), data.targets))

    return outputs, likelihood, weights, data, np.asarray(jax.jit(jax.hessian(loss))(weights), np.float64)


def test_curvature_of_softmax_regression_is_the_hessian():
    outputs, likelihood, weights, data, hessian = softmax_case()

    def at(weights):
        return curvature.Fitted(outputs, likelihood, weights)

    full = jax.jit(lambda w: curvature.full(at(w), data, chunk_size=5))(weights)
    diagonal = jax.jit(lambda w: curvature.diagonal(at(w), data, chunk_size=23))(weights)
    np.testing.assert_allclose(full, hessian, atol=2e-4)
    np.testing.assert_allclose(diagonal, np.diag(hessian), atol=2e-4)


def test_low_rank_is_the_truncated_eigendecomposition():
    outputs, likelihood, weights, data, hessian = softmax_case()
    found = jax.jit(
        lambda w: curvature.low_rank(
            KEY, curvature.Fitted(outputs, likelihood, w), data, rank=4, chunk_size=8
        )
    )
    factors = np.asarray(found(weights), np.float64)
    values, vectors = np.linalg.eigh(hessian)
    expected = (vectors[:, -4:] * values[-4:]) @ vectors[:, -4:].T
    np.testing.assert_allclose(factors.T @ factors, expected, atol=5e-3 * values[-1])


def test_last_layer_is_regression_on_the_features_before_it():
    model = models.mlp((5,), 1, hidden=(4,), activation="tanh")
    _, batch = small_network()
    targets = np.random.default_rng(0).normal(size=(37, 1)).astype(np.float32)
    target = density.target(model, density.Batch(batch.inputs, targets), likelihood=density.gaussian(0.5))
    params = model.init(KEY)
    posterior = inference.laplace(structure="full", leaves="last_layer", pretrain_epochs=0, initial=params)(
        KEY, target
    ).posterior
    assert isinstance(posterior, FixedLeaves)
    hidden = np.tanh(batch.inputs @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    design = np.concatenate([np.ones((37, 1)), hidden], axis=1)
    expected = np.linalg.inv(design.T @ design / 0.25 + np.eye(5))
    scale = np.sqrt(np.diag(expected))
    assert np.max(np.abs(dense_covariance(posterior.free) - expected) / np.outer(scale, scale)) < 2e-3
    drawn = posterior.sample(KEY, 3)
    np.testing.assert_array_equal(drawn["hidden"]["kernel"], np.tile(params["hidden"]["kernel"], (3, 1, 1)))


def test_the_last_layer_is_found_in_the_jaxpr():
    params = {name: jnp.ones((2, 2)) for name in ("first", "gate", "head")} | {"bias": jnp.ones(2)}

    def apply(params, x):
        hidden = jnp.tanh(x @ params["first"]) * jax.nn.sigmoid(x @ params["gate"])
        return jax.jit(lambda h, w, b: 2.0 * (h @ w.T) + b)(hidden, params["head"], params["bias"])

    assert last_layer(apply, params, jnp.ones((1, 2))) == ("bias", "head")
    with pytest.raises(ValueError, match="outputs are not affine in any leaf"):
        last_layer(lambda p, x: jnp.tanh(apply(p, x)), params, jnp.ones((1, 2)))


@pytest.mark.slow
def test_leaves_by_name_and_a_mixture_over_modes():
    model, batch = small_network()
    target = density.target(model, batch)
    members = tree.stack([model.init(jax.random.key(seed)) for seed in range(3)])
    method = inference.laplace(structure="low_rank", rank=3, leaves=("out",), pretrain_epochs=0)
    fit = inference.multimode(method, members=members)(KEY, target)
    assert isinstance(fit.posterior, GaussianMixture)
    assert isinstance(fit.posterior.components.free, LowRankPrecision)
    assert fit.posterior.components.free.mean.keys() == {"out/kernel", "out/bias"}
    drawn = np.asarray(fit.posterior.sample(KEY, 30)["hidden"]["kernel"])
    assert len(np.unique(drawn.reshape(30, -1), axis=0)) == 3
    assert np.isfinite(fit.posterior.log_prob(tree.take(members, 1)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"structure": "diagonl"}, "did you mean 'diagonal'"),
        ({"rank": 0}, "rank"),
        ({"chunk_size": 0}, "chunk_size"),
        ({"pretrain_epochs": -1}, "pretrain_epochs"),
        ({"leaves": ("oot",), "pretrain_epochs": 0}, "unknown leaf 'oot'"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        inference.laplace(**settings)(KEY, conjugate().target)


def test_a_start_beside_the_members_is_refused():
    with pytest.raises(ValueError, match="multimode starts from its members"):
        inference.multimode(inference.laplace(initial={}), members={})


def test_the_prior_must_be_gaussian():
    model, batch = small_network()
    target = density.target(model, batch, prior=density.laplace_prior(1.0))
    with pytest.raises(ValueError, match="laplace needs a Gaussian prior; got laplace_prior"):
        inference.laplace()(KEY, target)
