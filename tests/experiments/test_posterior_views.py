"""What the pictures of a posterior are drawn from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import STUDIES
from experiments.common.problem import perceptron
from experiments.posterior_views import study as views
from symbnn import tree


def test_principal_directions_are_those_of_the_covariance():
    random = np.random.default_rng(0)
    weights = random.normal(size=(200, 6)) * np.array([5.0, 3.0, 1.0, 0.5, 0.2, 0.1]) + 7.0
    places, share = views.principal(weights)
    eigenvalues = np.linalg.eigvalsh(np.cov(weights.T, bias=True))[::-1]
    np.testing.assert_allclose(places.var(axis=0), eigenvalues[:2])
    np.testing.assert_allclose(share, eigenvalues[:2].sum() / eigenvalues.sum())
    np.testing.assert_allclose(places.mean(axis=0), 0, atol=1e-12)


def test_the_clearest_pair_is_far_from_zero_and_never_constant():
    random = np.random.default_rng(0)
    weights = random.normal(size=(100, 5)) + np.array([0.0, 9.0, 0.0, -5.0, 0.0])
    weights[:, 4] = 1.0
    assert views.clearest_pair(weights) == (1, 3)


@pytest.mark.slow
def test_a_surface_goes_through_its_three_networks():
    config = STUDIES["posterior_views"].configs["debug"][1]
    problem = perceptron(config)
    networks = jax.vmap(problem.model.init)(jax.random.split(jax.random.key(0), 3))
    inputs, targets = (jnp.asarray(part[:20]) for part in problem.data.train)
    log_prob = problem.target.likelihood.log_prob
    losses = views.plane_losses(
        problem.model.apply, log_prob, networks, jnp.array([0.0, 0.5, 1.0]), inputs, targets
    )
    expected = [
        -jnp.mean(log_prob(problem.model.apply(tree.take(networks, i), inputs), targets)) for i in range(3)
    ]
    np.testing.assert_allclose([losses[0, 0], losses[0, 2], losses[2, 0]], expected, rtol=1e-5)
    middle = jax.tree.map(lambda leaf: (leaf[1] + leaf[2]) / 2, networks)
    expected_middle = -jnp.mean(log_prob(problem.model.apply(middle, inputs), targets))
    np.testing.assert_allclose(losses[1, 1], expected_middle, rtol=1e-5)
