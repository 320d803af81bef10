"""The marginal likelihood: closed forms of linear regression, and what maximises it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

from symbnn import density, inference
from tests.inference.cases import conjugate, linear_model, small_network

KEY = jax.random.key(0)
NOISE = 0.5


def fitted(target, params, **settings):
    return inference.laplace(pretrain_epochs=0, initial=params, **settings)(KEY, target)


def at_mode(case, **settings):
    return fitted(case.target, {"out": {"kernel": jnp.asarray(case.mean, jnp.float32)[:, None]}}, **settings)


@pytest.mark.parametrize("structure", ["full", "low_rank", "kronecker"])
def test_the_evidence_of_linear_regression_is_exact(structure):
    """y ~ N(0, X Xᵀ + noise²): the structures that hold all of the curvature of one output."""
    case = conjugate()
    inputs, targets = (np.asarray(part, np.float64) for part in case.target.data)
    covariance = inputs @ inputs.T + NOISE**2 * np.eye(len(inputs))
    expected = stats.multivariate_normal(np.zeros(len(inputs)), covariance).logpdf(targets[:, 0])
    found = at_mode(case, structure=structure, rank=3, chunk_size=7).diagnostics["log_marginal_likelihood"]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def log_evidence(case, precision, noise):
    """At the fixed mean, in the plainest way."""
    inputs, targets = (np.asarray(part, np.float64) for part in case.target.data)
    posterior = inputs.T @ inputs / noise**2 + precision * np.eye(3)
    return (
        np.sum(stats.norm(inputs @ case.mean, noise).logpdf(targets[:, 0]))
        - 0.5 * (np.linalg.slogdet(posterior)[1] - 3 * np.log(precision))
        - 0.5 * precision * case.mean @ case.mean
    )


@pytest.mark.parametrize("tune", [("prior",), ("noise",), ("prior", "noise")])
def test_tuning_finds_the_maximum(tune):
    case = conjugate()

    def negative(logs):
        given = iter(np.exp(logs))
        precision = next(given) if "prior" in tune else 1.0
        return -log_evidence(case, precision, next(given) if "noise" in tune else NOISE)

    best = optimize.minimize(negative, np.zeros(len(tune)), method="Nelder-Mead", options={"xatol": 1e-7})
    expected = dict(zip(tune, np.exp(best.x), strict=True))
    found = at_mode(case, structure="full", tune=tune).diagnostics
    np.testing.assert_allclose(found["log_marginal_likelihood"], -best.fun, rtol=1e-5)
    assert ("prior_factor" in found, "noise" in found) == ("prior" in tune, "noise" in tune)
    if "prior" in tune:
        np.testing.assert_allclose(found["prior_factor"], expected["prior"] ** -0.5, rtol=1e-3)
    if "noise" in tune:
        np.testing.assert_allclose(found["noise"], expected["noise"], rtol=1e-3)


@pytest.mark.parametrize("structure", [pytest.param("diagonal", marks=pytest.mark.slow), "kronecker"])
def test_a_tuned_posterior_is_that_of_the_tuned_target(structure):
    """One factor for every leaf, and the noise: the same Gaussian as with that prior from the start."""
    model, batch = small_network(num_classes=2)
    params = model.init(KEY)
    errors = 0.2 * np.random.default_rng(0).normal(size=(len(batch.inputs), 2))
    data = density.Batch(batch.inputs, model.apply(params, batch.inputs) + errors)
    tuned = fitted(
        density.target(model, data, likelihood=density.gaussian(NOISE), prior=density.gaussian_prior(2.0)),
        params,
        structure=structure,
        tune=("prior_by_leaf", "noise"),
    )
    factors = {name: float(factor) for name, factor in tuned.diagnostics["prior_factor"].items()}
    assert factors.keys() == {"hidden/kernel", "hidden/bias", "out/kernel", "out/bias"}

    def direct(scale, noise):
        prior = density.gaussian_prior(
            {name: 2.0 * factor * scale.get(name, 1.0) for name, factor in factors.items()}
        )
        target = density.target(model, data, likelihood=density.gaussian(noise), prior=prior)
        return fitted(target, params, structure=structure)

    noise = float(tuned.diagnostics["noise"])
    again = direct({}, noise)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), tuned.posterior, again.posterior
    )
    best = again.diagnostics["log_marginal_likelihood"]
    np.testing.assert_allclose(tuned.diagnostics["log_marginal_likelihood"], best, rtol=1e-5)
    for scale, other in (({"out/kernel": 1.2}, noise), ({"hidden/kernel": 0.8}, noise), ({}, 1.1 * noise)):
        assert direct(scale, other).diagnostics["log_marginal_likelihood"] < best


def test_weights_of_zero_have_no_best_prior_and_stay_finite():
    case = conjugate()
    fit = fitted(case.target, {"out": {"kernel": jnp.zeros((3, 1))}}, structure="full", tune=("prior",))
    assert 0 < fit.diagnostics["prior_factor"] < 1e-4
    assert fit.diagnostics["num_nonfinite_values"] == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tune": ("priors",)}, "unknown tune 'priors'; did you mean 'prior'"),
        ({"tune": ("prior", "prior_by_leaf")}, "not both"),
        ({"tune": "prior_by_leaf", "structure": "full"}, "diagonal or kronecker; got full"),
        ({"tune": "noise"}, r"density.gaussian\(noise\); the target has categorical\(\)"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_training(settings, message):
    model = linear_model(2, 3)
    target = density.target(model, density.Batch(np.ones((4, 2), np.float32), np.arange(4) % 3))
    with pytest.raises(ValueError, match=message):
        inference.laplace(pretrain_epochs=10**9, **settings)(KEY, target)
