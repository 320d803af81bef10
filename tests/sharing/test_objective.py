"""Gradients and divergences of the bound against closed forms and Monte Carlo."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn.sharing import Objective
from symbnn.sharing.objective import member_counts, plane_kl
from symbnn.sharing.stochastic import gaussian_kl
from tests.sharing.shared import OUTLIERS, make, plain_members


def test_the_gradient_of_a_centre_is_the_sum_over_its_members():
    shared = make()
    key = jax.random.key(3)
    slopes = jax.random.normal(jax.random.key(4), (shared.layout.num_weights,))

    def loss(means):
        return jnp.sum(slopes * dataclasses.replace(shared, means=means).draw(key))

    found = np.asarray(jax.grad(loss)(shared.means))[:, 0]
    blends = {8: {2: 0.75, 1: 0.25}, 25: {1: 0.5, 0: 0.5}}
    for component in range(3):
        expected = float(slopes[np.array(plain_members(shared, component))].sum())
        expected += sum(float(slopes[i]) * share.get(component, 0.0) for i, share in blends.items())
        assert found[component] == pytest.approx(expected, rel=1e-5)
        step = jnp.zeros_like(shared.means).at[component, 0].set(1e-2)
        difference = (loss(shared.means + step) - loss(shared.means - step)) / 2e-2
        assert found[component] == pytest.approx(float(difference), rel=1e-3)


def test_closed_divergence_equals_monte_carlo_and_vanishes_between_equals():
    mean, variance, prior_mean, prior_variance = 0.02, 0.03**2, 0.0, 0.1**2
    draws = mean + np.sqrt(variance) * np.random.default_rng(0).normal(size=200_000)

    def log_normal(mean, variance):
        return -0.5 * ((draws - mean) ** 2 / variance + np.log(variance))

    each = log_normal(mean, variance) - log_normal(prior_mean, prior_variance)
    error = each.std() / np.sqrt(len(draws))
    found = gaussian_kl(mean, variance, prior_mean, prior_variance)
    assert float(found) == pytest.approx(each.mean(), abs=5 * error)
    assert float(gaussian_kl(mean, variance, mean, variance)) == pytest.approx(0.0, abs=1e-7)


def test_divergence_in_the_plane():
    shared = make()
    np.testing.assert_allclose(
        plane_kl(shared.means, shared.factors, shared.means, shared.factors), 0.0, atol=1e-6
    )
    # Without slant the coordinates are independent and their divergences add.
    factors = shared.factors.at[:, 1].set(0.0)
    prior_means, prior_factors = shared.means + 0.01, 2.0 * factors
    found = plane_kl(shared.means, factors, prior_means, prior_factors)
    parts = [
        gaussian_kl(shared.means[:, i], factors[:, j] ** 2, prior_means[:, i], prior_factors[:, j] ** 2)
        for i, j in ((0, 0), (1, 2))
    ]
    np.testing.assert_allclose(found, parts[0] + parts[1], rtol=1e-4)


def test_multiplicities_differ_by_the_number_of_shared_weights():
    shared = make(
        outlier_indices=jnp.zeros((0,), jnp.uint32), outlier_means=jnp.zeros(0), outlier_stds=jnp.zeros(0)
    )

    def total(multiplicity: str) -> float:
        objective = Objective(multiplicity=multiplicity)
        return float(objective.divergence_of(shared, objective.tables(shared)))

    num = member_counts(shared).sum()
    assert num == shared.layout.num_weights
    assert total("per_weight") == pytest.approx(num * total("paper"), rel=1e-5)
    each = gaussian_kl(shared.means[:, 0], shared.variances(), 0.0, 0.01)
    assert total("per_component") == pytest.approx(float(each.sum()), rel=1e-5)


@pytest.mark.parametrize("divergence", ["marginal", "plane"])
def test_anchored_priors_start_without_divergence(divergence):
    objective = Objective(prior="anchored", divergence=divergence)
    assert float(objective.divergence_of(make(), objective.tables(make()))) == pytest.approx(0.0, abs=1e-5)


def test_pretrained_priors_sit_on_the_deterministic_weights():
    shared = make()
    weights = np.linspace(-1, 1, shared.layout.num_weights)
    tables = Objective(prior="pretrained").tables(shared, weights)
    own = [i for i in range(shared.layout.num_weights) if i % 3 == 0 and i not in OUTLIERS]
    assert float(tables.means[0]) == pytest.approx(weights[own].mean(), abs=1e-6)
    np.testing.assert_allclose(tables.outlier_means, weights[OUTLIERS], rtol=1e-6)
    with pytest.raises(ValueError, match="needs the weights of the deterministic network"):
        Objective(prior="pretrained").tables(shared)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="unknown multiplicity 'per_weigth'; did you mean 'per_weight'"):
        Objective(multiplicity="per_weigth")
    with pytest.raises(ValueError, match="'plane' needs the prior 'anchored'"):
        Objective(divergence="plane")
