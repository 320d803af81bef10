"""NUTS: the conjugate posterior, and an energy that stays small at many weights."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.mcmc.metrics import gaussian_euclidean

from symbnn import inference
from symbnn.inference.chains.relative import centred_metric
from tests.inference.cases import assert_moments, conjugate


@pytest.mark.slow
def test_samples_the_conjugate_posterior():
    case = conjugate()
    placement = inference.Placement(devices=jax.devices()[:2])
    method = inference.nuts(num_chains=4, num_samples=500, num_burnin=200, placement=placement)
    fit = method(jax.random.key(0), case.target)
    assert_moments(fit, case)
    assert fit.diagnostics["verdict"] == "ok"
    assert np.all(np.abs(fit.diagnostics["acceptance"] - 0.85) < 0.13)
    log_densities = jax.vmap(case.target.log_density)(fit.posterior.samples)
    np.testing.assert_allclose(fit.diagnostics["log_density"].ravel(), log_densities, rtol=1e-4)


def test_metric_is_the_euclidean_one_less_its_mean():
    random = np.random.default_rng(0)
    shapes = {"a": (3, 2), "b": (4,)}
    draw = {name: jnp.asarray(random.normal(size=shape), jnp.float32) for name, shape in shapes.items()}
    variances = jax.tree.map(lambda leaf: jnp.exp(leaf), draw)
    flat = jnp.concatenate([variances["a"].ravel(), variances["b"]])
    ours, theirs = centred_metric(draw, variances), gaussian_euclidean(flat)
    np.testing.assert_allclose(ours.kinetic_energy(draw), theirs.kinetic_energy(draw) - 10 / 2, rtol=1e-5)
    left, right = draw, jax.tree.map(lambda leaf: leaf[::-1], draw)
    for total in (jax.tree.map(jnp.add, left, right), jax.tree.map(lambda a, b: -a - b, left, right)):
        assert ours.check_turning(left, right, total) == theirs.check_turning(left, right, total)
    for inverse in (True, False):
        scaled = [metric.scale(draw, left, inv=inverse, trans=False) for metric in (ours, theirs)]
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), *scaled)


def test_a_burn_in_too_short_for_the_default_masses_is_told(caplog):
    with caplog.at_level(logging.WARNING, logger="symbnn"):
        inference.nuts(num_burnin=19, mass="identity")
        inference.nuts(num_burnin=20)
        assert not caplog.messages
        inference.nuts(num_burnin=19)
    assert caplog.messages == ["nuts: masses stay at 1, a burn-in of 19 is too short (20)"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_doublings": 0}, "max_doublings must be a whole number of at least 1; got 0"),
        ({"step_size": 0.0}, "step_size must be positive"),
        ({"step_size": 0.1, "mass": "diagonal"}, "mass applies only when the step size adapts"),
        ({"num_samples": 0}, "num_samples must be a whole number of at least 1; got 0"),
        ({"num_burnin": 0}, "give a step_size, or num_burnin of at least 1; got 0"),
        ({"mass": "diagonal", "num_burnin": 19}, "num_burnin of at least 20, or mass='identity'; got 19"),
        ({"mass": "dense"}, "mass must be 'identity' or 'diagonal'"),
        ({"target_acceptance": 1.0}, r"target_acceptance must be in \(0, 1\)"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        inference.nuts(**settings)
