"""Stochastic-gradient MCMC: the right law where it is known, the right gradient, the right schedule."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import density, inference, io
from symbnn.inference import dynamics
from symbnn.inference.dynamics import (
    Chains,
    ChainState,
    Dynamics,
    Steps,
    estimated_gradient,
    run_compiled,
    run_on_host,
)
from symbnn.inference.sgmcmc import SCHEDULES
from symbnn.inference.training.train import problem_of
from tests.inference.cases import assert_moments, conjugate, small_network

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    "settings",
    [
        # Euler's bias of a variance is step · precision / 2: at most a few per cent, below what shows.
        pytest.param(
            {"algorithm": "sgld", "step_size": 1e-4, "thinning": 50}, id="sgld", marks=pytest.mark.slow
        ),
        # Here it is friction · step / 2.
        pytest.param(
            {"algorithm": "sghmc", "step_size": 2e-3, "friction": 5.0, "thinning": 40},
            id="sghmc",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_gaussian_posterior_is_sampled(settings):
    case = conjugate()
    method = inference.sgmcmc(num_samples=1000, num_burnin=3000, batch_size=20, **settings)
    many = inference.multimode(method, members=inference.ensemble(num_members=4, epochs=1, batch_size=20))
    fit = many(KEY, without_minibatch_noise(case.target))
    assert fit.posterior.num_chains == 4
    assert_moments(fit, case, num_errors=5.0)


def without_minibatch_noise(target: density.Target) -> density.Target:
    """The same posterior from twenty equal data points, each a share of the sufficient statistics.

    With XᵀX = RᵀR and Rᵀz = Xᵀy the likelihood is N(z; R w, 0.25); minibatches are then all alike.
    """
    inputs, targets = (np.asarray(array, np.float64) for array in target.data)
    root = np.linalg.cholesky(inputs.T @ inputs).T
    summary = np.linalg.solve(root.T, inputs.T @ targets)

    def apply(params, x):
        outputs = jnp.asarray(root, jnp.float32) @ params["out"]["kernel"]
        return jnp.broadcast_to(outputs.reshape(1, 3), (x.shape[0], 3))

    model = target.model._replace(apply=apply, train=lambda params, x, key: (apply(params, x), params))
    data = density.Batch(np.zeros((20, 3), np.float32), np.tile(summary.T, (20, 1)).astype(np.float32))
    return density.target(model, data, likelihood=density.gaussian(0.5 * np.sqrt(20)))


def test_the_gradient_is_unbiased():
    model, batch = small_network()
    target = density.target(model, batch, temperature=0.5)
    params = model.init(KEY)
    keys = jax.random.split(KEY, 3000)
    chain = Chains({}, KEY, target.data)
    draw = jax.vmap(lambda key: estimated_gradient(problem_of(target), 8, key, params, chain))
    estimates = jax.jit(draw)(keys)
    exact = jax.jit(jax.grad(target.log_density))(params)
    for estimate, expected in zip(jax.tree.leaves(estimates), jax.tree.leaves(exact), strict=True):
        error = np.asarray(estimate).std(0) / np.sqrt(3000) + 1e-4
        assert np.max(np.abs(np.asarray(estimate).mean(0) - expected) / error) < 5


def test_the_host_steps_as_the_compiled_loop_does():
    """Both loops see the same minibatches and noise, for every chain its own."""
    model, batch = small_network()
    target = density.target(model, batch)
    starts = jax.vmap(model.init)(jax.random.split(KEY, 2))
    state = ChainState(starts, jax.tree.map(jnp.zeros_like, starts), jnp.zeros(2, jnp.int32))
    chains = Chains({}, jax.random.split(jax.random.key(1), 2), target.data)
    numbers = np.arange(6).reshape(2, 3)
    steps = Steps(numbers, np.full((2, 3), 1e-3, np.float32), np.ones((2, 3), np.float32))
    found = [
        run(problem_of(target), Dynamics("sghmc", 10.0, 8), chains, state, steps)
        for run in (run_compiled, run_on_host)
    ]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), *found)
    assert not np.allclose(*jax.tree.leaves(found[0][1])[0])


def test_cycles_start_with_large_steps_and_without_noise():
    sizes, temperatures = SCHEDULES["cosine"](0.1, 30, 40)
    assert sizes[0] == 0.1
    assert np.all(np.diff(sizes) < 0)
    assert sizes[-1] < 0.001
    assert np.all(temperatures[:30] == 0)
    assert np.all(temperatures[30:] == 1)


def test_a_cyclical_run_keeps_draws_of_every_cycle():
    model, batch = small_network()
    method = inference.sgmcmc(
        algorithm="sgld",
        schedule="cosine",
        num_cycles=3,
        num_samples=6,
        num_burnin=20,
        thinning=5,
        step_size=1e-3,
    )
    reports = []
    target = density.target(model, density.Batch(np.tile(batch.inputs, (4, 1)), np.tile(batch.targets, 4)))
    fit = method(KEY, target)
    again = inference.sgmcmc(
        algorithm="sgld",
        schedule="cosine",
        num_cycles=3,
        num_samples=6,
        num_burnin=20,
        thinning=5,
        step_size=1e-3,
        progress=reports.append,
    )(KEY, target)
    jax.tree.map(np.testing.assert_array_equal, fit, again)
    draws = np.asarray(fit.posterior.samples["out"]["kernel"]).reshape(6, -1)
    assert len(np.unique(draws, axis=0)) == 6
    assert [report.done for report in reports] == list(range(1, 10))


def test_another_prior_or_step_of_the_same_name_is_another_run(tmp_path, monkeypatch):
    model, batch = small_network()
    prior = density.gaussian_prior()

    def fit(prior):
        method = inference.sgmcmc(
            num_samples=1,
            num_burnin=0,
            thinning=1,
            step_size=1e-3,
            batch_size=8,
            sink=io.ChunkStore(tmp_path),
        )
        return method(KEY, density.target(model, batch, prior=prior)).posterior

    jax.tree.map(np.testing.assert_array_equal, fit(prior), fit(density.gaussian_prior()))
    wider = prior._replace(log_probs=density.gaussian_prior(2.0).log_probs)
    with pytest.raises(ValueError, match="belongs to another run: its step is"):
        fit(wider)
    monkeypatch.setitem(dynamics.ALGORITHMS, "sghmc", dynamics.ALGORITHMS["sgld"])
    with pytest.raises(ValueError, match="belongs to another run: its step is"):
        fit(prior)


def test_divergence_is_counted_and_said():
    with pytest.warns(RuntimeWarning, match="sgmcmc: 1 of 1 members"):
        fit = inference.sgmcmc(num_samples=2, step_size=1e10, num_burnin=50, batch_size=20)(
            KEY, conjugate().target
        )
    assert fit.diagnostics["num_nonfinite"] > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algorithm": "sgdl"}, "did you mean 'sgld'"),
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
        ({"num_samples": 0}, "num_samples"),
        ({"num_samples": 5, "num_cycles": 2}, "num_cycles must divide num_samples; got 2 and 5"),
        ({"step_size": -1.0}, "step_size and friction must be positive"),
        ({"batch_size": 21}, "only 20 data points"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        inference.sgmcmc(**({"num_samples": 4, "step_size": 1e-3} | settings))(KEY, conjugate().target)
