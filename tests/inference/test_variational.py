"""Mean-field variational inference against closed forms, and against NumPyro's AutoNormal."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro import distributions, infer

from symbnn import density, inference
from symbnn.inference.training.train import problem_of
from symbnn.inference.variational import VariationalLoss, entropy, expected_log_prior
from symbnn.posteriors import DiagonalGaussian
from tests.inference.cases import conjugate, small_network

KEY = jax.random.key(0)


def optimum(case) -> tuple[np.ndarray, np.ndarray]:
    """The mean-field optimum of a Gaussian: its mean, and the inverse diagonal of its precision."""
    return case.mean, np.diag(np.linalg.inv(case.covariance)) ** -0.5


@functools.cache
def fitted(reparametrisation: str, temperature: float) -> DiagonalGaussian:
    case = conjugate(temperature=temperature)
    return inference.variational(
        epochs=3000,
        batch_size=20,
        optimizer=optax.adam(optax.cosine_decay_schedule(0.1, 3000)),
        reparametrisation=reparametrisation,
        num_draws=4,
    )(KEY, case.target).posterior


@pytest.mark.parametrize(
    ("reparametrisation", "temperature"), [("local", 1.0), ("weights", 1.0), ("local", 0.25)]
)
def test_a_linear_model_gets_the_mean_field_optimum(reparametrisation, temperature):
    posterior = fitted(reparametrisation, temperature)
    mean, std = optimum(conjugate(temperature=temperature))
    np.testing.assert_allclose(posterior.std["out"]["kernel"][:, 0], std, rtol=0.05)
    # A mean that is off by a tenth of the posterior's standard deviation would show.
    assert np.max(np.abs(posterior.mean["out"]["kernel"][:, 0] - mean) / std) < 0.1


def test_numpyro_finds_the_same():
    case = conjugate()

    def model():
        kernel = numpyro.sample("kernel", distributions.Normal(jnp.zeros((3, 1)), 1.0).to_event(2))
        numpyro.factor("likelihood", case.target.log_likelihood({"out": {"kernel": kernel}}))

    guide = infer.autoguide.AutoNormal(model, init_scale=0.05)
    optimizer = numpyro.optim.optax_to_numpyro(optax.adam(optax.cosine_decay_schedule(0.1, 3000)))
    elbo = infer.TraceMeanField_ELBO(num_particles=4)
    result = infer.SVI(model, guide, optimizer, elbo).run(KEY, 3000, progress_bar=False)
    ours = fitted("weights", 1.0)
    std = ours.std["out"]["kernel"]
    np.testing.assert_allclose(result.params["kernel_auto_scale"], std, rtol=0.05)
    # Two stochastic optimisers, each within a tenth of a standard deviation of the optimum.
    assert np.max(np.abs(result.params["kernel_auto_loc"] - ours.mean["out"]["kernel"]) / std) < 0.2


def variational_params(params, log_std: float):
    return {"mean": params, "log_std": jax.tree.map(lambda leaf: jnp.full_like(leaf, log_std), params)}


def test_the_loss_is_the_negative_evidence_bound():
    """Over all data and many draws: -ELBO / N, with the KL divergence of two Gaussians."""
    model, batch = small_network()
    target = density.target(model, batch, prior=density.gaussian_prior(0.7))
    weights = variational_params(model.init(KEY), math.log(0.2))

    def estimates(*, is_local: bool) -> np.ndarray:
        loss = VariationalLoss(problem_of(target), is_local, gaussian_prior=True, num_draws=1)
        return np.asarray(jax.jit(jax.vmap(lambda key: loss(weights, {}, target.data, key)[0]))(keys))

    keys = jax.random.split(KEY, 2000)
    samples = DiagonalGaussian(weights["mean"], jax.tree.map(jnp.exp, weights["log_std"])).sample(KEY, 2000)
    log_likelihoods = np.asarray(jax.jit(jax.vmap(target.log_likelihood))(samples), np.float64)
    divergence = sum(
        float(
            jnp.sum(
                distributions.kl_divergence(distributions.Normal(leaf, 0.2), distributions.Normal(0.0, 0.7))
            )
        )
        for leaf in jax.tree.leaves(weights["mean"])
    )
    expected = (divergence - log_likelihoods.mean()) / target.num_data
    local, drawn = estimates(is_local=True), estimates(is_local=False)
    for values in (local, drawn):
        error = np.hypot(values.std(), log_likelihoods.std() / target.num_data) / np.sqrt(2000)
        assert abs(values.mean() - expected) < 5 * error
    # The point of local reparametrisation: inputs have independent noise, so the estimate is steadier.
    assert local.var() < 0.85 * drawn.var()


@pytest.mark.parametrize(
    "prior", [density.gaussian_prior(0.7), density.laplace_prior(0.7)], ids=["gaussian", "laplace"]
)
def test_the_expected_log_prior(prior):
    mean = {"a": jnp.linspace(-1.0, 1.0, 5)}
    std = {"a": jnp.full(5, 0.3)}
    is_gaussian = prior.name.startswith("gaussian")
    assert prior.is_gaussian == is_gaussian
    estimates = jax.vmap(lambda key: expected_log_prior(key, prior, mean, std, exact=is_gaussian))(
        jax.random.split(KEY, 4000)
    )
    samples = DiagonalGaussian(mean, std).sample(jax.random.key(1), 4000)
    draws = jax.vmap(prior.log_prob)(samples)
    assert abs(float(jnp.mean(estimates) - jnp.mean(draws))) < 5 * float(jnp.std(draws)) * math.sqrt(2 / 4000)
    assert (float(jnp.std(estimates)) < 1e-5) == is_gaussian


def test_a_prior_of_any_width_says_whether_it_is_gaussian():
    assert all(density.gaussian_prior(scale).is_gaussian for scale in (1e-3, 1.0, 100.0))
    assert not density.laplace_prior(100.0).is_gaussian


def test_the_entropy_is_scipys():
    log_std = {"a": jnp.array([-1.0, 0.5]), "b": jnp.array(0.0)}
    expected = sum(0.5 * math.log(2 * math.pi * math.e) + value for value in (-1.0, 0.5, 0.0))
    np.testing.assert_allclose(entropy(log_std), expected, rtol=1e-6)


def test_it_starts_where_it_is_told():
    case = conjugate()
    start = {"out": {"kernel": jnp.array([[1.0], [2.0], [3.0]])}}
    fit = inference.variational(
        epochs=1, batch_size=20, optimizer=optax.adam(1e-9), initial=start, initial_std=0.02
    )(KEY, case.target)
    np.testing.assert_allclose(fit.posterior.mean["out"]["kernel"], start["out"]["kernel"], rtol=1e-6)
    np.testing.assert_allclose(fit.posterior.std["out"]["kernel"], 0.02, rtol=1e-5)
    assert fit.diagnostics["loss"].shape == (1,)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reparametrisation": "locall"}, "did you mean 'local'"),
        ({"initial_std": 0.0}, "initial_std must be positive"),
        ({"num_draws": 0}, "num_draws"),
        ({"epochs": 0}, "epochs"),
        ({"initial": {"out": {"kernel": jnp.zeros((2, 1))}}}, "leaf 'out/kernel'"),
        ({"batch_size": 50}, "only 20 data points"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        inference.variational(**settings)(KEY, conjugate().target)
