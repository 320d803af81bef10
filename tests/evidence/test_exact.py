"""Exact posteriors in short: the quadrature against the prior's own draws, and HMC against the quadrature."""

import jax
import numpy as np
import pytest

from symbnn import inference, tree
from tests.evidence.evidence_exact import score
from tests.evidence.evidence_posteriordb import Size, ours
from tests.evidence.exact import PLACES, exact, target


@pytest.mark.parametrize(("num_units", "spacing"), [(1, 0.1), (2, 0.5)])
def test_quadrature_is_what_weighted_draws_of_the_prior_say(num_units, spacing):
    problem = target(num_units)
    draws = jax.vmap(problem.init)(jax.random.split(jax.random.key(0), 40_000))
    likelihoods = np.exp(np.asarray(jax.jit(jax.vmap(problem.log_likelihood))(draws), np.float64))
    error = likelihoods.std() / likelihoods.mean() / np.sqrt(len(likelihoods))
    found = exact(num_units, spacing)
    assert abs(found.log_evidence - np.log(likelihoods.mean())) < 4 * error
    best = np.argsort(likelihoods)[-2000:]
    outputs = jax.vmap(lambda params: problem.model.apply(params, PLACES)[:, 0])(tree.take(draws, best))
    weights = likelihoods[best] / likelihoods[best].sum()
    number = 1 / np.sum(weights**2)
    distances = np.abs(weights @ np.asarray(outputs) - found.mean) / found.std
    # The 2,000 likeliest of 40,000 hold nearly all of the weight.
    assert likelihoods[best].sum() > 0.97 * likelihoods.sum()
    assert np.max(distances) < 4 / np.sqrt(number) + 0.05


def test_quadrature_does_not_depend_on_its_grid():
    coarse, fine = exact(1, 0.1), exact(1, 0.05)
    assert coarse.log_evidence == pytest.approx(fine.log_evidence, abs=1e-5)
    np.testing.assert_allclose(coarse.mean, fine.mean, atol=1e-4)
    assert fine.slope_cdf[-1] == pytest.approx(1.0)
    assert fine.offset_cdf[0] < 1e-3 < 1 - 1e-3 < fine.offset_cdf[-1]


def test_hmc_finds_the_exact_posterior_of_one_unit():
    problem, size = target(1), Size(num_chains=32, num_samples=100, num_burnin=150)
    # A given step size: a program without adaptation compiles in half the time.
    draw = ours(inference.hmc, step_size=0.12, num_steps=16, jitter=0.5)
    found, _ = score(draw(jax.random.key(0), problem, size), problem, exact(1, 0.1), 0.0)
    assert found.ess > 300
    assert found.bias < 4 / np.sqrt(found.ess)
    assert abs(found.spread - 1) < 0.15
    assert max(found.slope, found.offset) < 0.1
