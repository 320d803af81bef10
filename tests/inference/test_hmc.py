"""HMC: the conjugate posterior, energies in float32 at a million weights, and trouble that is told."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.mcmc.metrics import Metric

from symbnn import density, inference, tree
from symbnn.inference.chains import distributed, relative, report
from symbnn.inference.chains.kernels import Tuning, sample_momentum
from symbnn.inference.chains.report import Tally, verdict
from symbnn.inference.hmc import build_kernel, default_trajectory
from tests.inference.cases import LinearModel, assert_moments, conjugate, linear_model, small_network

HERE = inference.Placement(devices=jax.devices()[:2])
SETTINGS = {"num_chains": 2, "num_burnin": 3, "step_size": 0.1, "num_steps": 4, "placement": HERE}


class BaseRun(NamedTuple):
    target: density.Target
    fit: inference.Fit
    reports: list[inference.Progress]


@pytest.fixture(scope="module")
def base_run() -> BaseRun:
    """Two chains on a small classifier, with which several tests compare."""
    model, batch = small_network()
    target, reports = density.target(model, batch), []
    method = inference.hmc(**SETTINGS, num_samples=8, chunk_size=4, progress=reports.append)
    return BaseRun(target, method(jax.random.key(0), target), reports)


def test_given_step_size_samples_the_conjugate_posterior():
    case = conjugate(temperature=0.5)
    method = inference.hmc(
        num_chains=4, num_samples=600, num_burnin=30, step_size=0.03, num_steps=12, jitter=0.3, placement=HERE
    )
    fit = method(jax.random.key(0), case.target)
    assert_moments(fit, case)
    assert fit.diagnostics["verdict"] == "ok"


@pytest.mark.slow
def test_adapted_step_size_and_mass_sample_the_conjugate_posterior():
    case = conjugate()
    method = inference.hmc(
        num_chains=4,
        num_samples=600,
        num_burnin=200,
        trajectory=1.5,
        jitter=0.3,
        mass="diagonal",
        placement=HERE,
    )
    fit = method(jax.random.key(0), case.target)
    assert_moments(fit, case)
    assert np.all((fit.diagnostics["acceptance"] > 0.6) & (fit.diagnostics["divergences"] == 0))


def test_mclachlans_steps_sample_the_conjugate_posterior():
    case = conjugate(temperature=0.5)
    settings = {"num_chains": 4, "num_samples": 600, "num_burnin": 30, "step_size": 0.03, "num_steps": 10}
    method = inference.hmc(**settings, integrator="mclachlan", jitter=0.3, placement=HERE)
    fit = method(jax.random.key(0), case.target)
    assert_moments(fit, case)
    np.testing.assert_array_equal(fit.diagnostics["num_gradients"], 2 * 10 * 630)


def test_mclachlans_error_is_a_small_part_of_that_of_two_leapfrog_steps():
    """With as many gradients, on a smooth density: a tenth in theory (McLachlan 1995)."""
    random = np.random.default_rng(0)
    energies = jax.jit(one_transition, static_argnums=(0, 4, 5))

    def error(step_size, num_steps, integrator):
        found = []
        for _ in range(8):
            start, momentum = ({"a": random.normal(size=50), "b": random.normal(size=50)} for _ in range(2))
            found.append(float(energies(jnp.float64, start, momentum, step_size, num_steps, integrator)))
        return np.sqrt(np.mean(np.square(found)))

    with jax.enable_x64(True):
        ours, leapfrog = error(0.4, 10, "mclachlan"), error(0.2, 20, "leapfrog")
    assert ours < 0.2 * leapfrog


def test_an_unknown_integrator_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="unknown integrator 'maclachlan'; did you mean 'mclachlan'"):
        inference.hmc(integrator="maclachlan")


def one_transition(dtype, position, momentum, step_size, num_steps, integrator="leapfrog"):
    """Energy error of one trajectory of a Gaussian with a likelihood on part of the weights."""
    position, momentum = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), (position, momentum))
    pull = density.LogDensity(
        lambda params: -0.5 * jnp.sum(jnp.square(params["b"] - 0.5)), density.gaussian_prior().log_probs, 1.0
    )
    mass = jax.tree.map(lambda leaf: jnp.ones((), dtype), position)
    tuning = Tuning(jnp.asarray(step_size, dtype), mass, jnp.ones((), dtype))
    kernel = build_kernel(num_steps=num_steps, integrator=integrator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relative, "sample_momentum", lambda key, position, inverse_mass: momentum)
        state = kernel.init(jax.random.key(0), position, pull)
        return kernel.step(jax.random.key(0), state, tuning, pull)[1].energy_error


def test_acceptance_in_float32_at_a_million_weights():
    """Same starts in float32 and float64: acceptance differs by less than 0.02, each time and on average."""
    random = np.random.default_rng(0)
    energies = jax.jit(one_transition, static_argnums=(0, 4))

    def draw():
        return {"a": random.normal(size=(1000, 999)), "b": random.normal(size=1000)}

    differences = []
    for _ in range(4):
        start, momentum = jax.tree.map(lambda leaf: leaf.astype(np.float32), (draw(), draw()))
        single = float(energies(jnp.float32, start, momentum, 0.08, 10))
        with jax.enable_x64(True):
            double = float(energies(jnp.float64, start, momentum, 0.08, 10))
        differences.append(np.exp(-max(single, 0.0)) - np.exp(-max(double, 0.0)))
    assert np.all(np.abs(differences) < 0.02)
    assert np.abs(np.mean(differences)) < 0.01


def test_the_shifts_of_the_energy_change_nothing_that_blackjax_does():
    """In float64, where they are not needed: BlackJAX's kernel on the plain density, with a plain metric."""
    with jax.enable_x64(True):
        target = conjugate().target
        start = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), target.init(jax.random.key(0)))
        mass = jax.tree.map(lambda leaf: jnp.full((), 0.7), start)

        def kinetic_energy(momentum, position=None):
            return 0.5 * sum(jnp.sum(0.7 * leaf**2) for leaf in jax.tree.leaves(momentum))

        metric = Metric(lambda key, at: sample_momentum(key, at, mass), kinetic_energy, None, None)
        ours, theirs = build_kernel(num_steps=5), blackjax.hmc.build_kernel()
        tuning = Tuning(jnp.asarray(0.07), mass, jnp.ones(()))

        def both(states, key):
            (mine, info), (plain, other) = (
                ours.step(key, states[0], tuning, target.log_density),
                theirs(key, states[1], target.log_density, 0.07, metric, 5),
            )
            pair = (mine.position, info.acceptance, info.log_density, mine.gradient)
            return (mine, plain), (pair, (plain.position, other.acceptance_rate, *plain[1:]))

        first = (
            ours.init(jax.random.key(0), start, target.log_density),
            blackjax.hmc.init(start, target.log_density),
        )
        _, (mine, plain) = jax.jit(
            lambda: jax.lax.scan(both, first, jax.random.split(jax.random.key(1), 60))
        )()
        assert 0.3 < np.mean(mine[1]) < 0.97
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9), mine, plain)


@pytest.mark.slow
def test_a_rejected_proposal_leaves_the_chain_where_it_is():
    model, batch = small_network()
    target = density.target(model, batch)
    chain = target.log_density
    kernel = build_kernel(num_steps=3)
    params = target.init(jax.random.key(0))
    mass = jax.tree.map(lambda leaf: jnp.ones(()), params)
    state = kernel.init(jax.random.key(0), params, chain)
    new, info = jax.jit(
        lambda key: kernel.step(key, state, Tuning(jnp.asarray(1e4), mass, jnp.ones(())), chain)
    )(jax.random.key(1))
    assert bool(info.is_divergent)
    assert float(info.acceptance) == 0.0
    jax.tree.map(np.testing.assert_array_equal, new, state)


def test_default_trajectory_is_a_quarter_period_of_the_prior():
    model, batch = small_network()
    target = density.target(model, batch, prior=density.gaussian_prior(0.3), temperature=0.25)
    assert default_trajectory(target) == pytest.approx(np.pi * 0.3 * 0.5 / 2)


@pytest.mark.slow
def test_default_trajectory_with_a_diagonal_mass_is_a_quarter_period_too():
    """Draws of a narrow posterior are nearly independent; a twentieth of the way they would be copies."""
    _, batch = small_network()
    target = density.target(
        linear_model(5),
        batch._replace(targets=batch.inputs[:, :1]),
        prior=density.gaussian_prior(0.05),
        likelihood=density.gaussian(100.0),
    )
    method = inference.hmc(num_chains=2, num_samples=300, num_burnin=150, mass="diagonal", placement=HERE)
    draws = np.asarray(method(jax.random.key(0), target).posterior.by_chain()["out"]["kernel"])
    centred = draws - draws.mean((0, 1))
    assert draws.std() == pytest.approx(0.05, rel=0.2)
    assert np.mean(centred[:, 1:] * centred[:, :-1]) / np.mean(centred**2) < 0.3


@pytest.mark.slow
def test_thinned_draws_in_half_precision_are_every_other_draw_rounded(base_run):
    """The key of a transition depends on its number alone, so thinning only skips; storage only rounds."""
    storage = inference.Storage(dtype=jnp.bfloat16)
    method = inference.hmc(**SETTINGS, num_samples=4, thinning=2, storage=storage)
    thinned = method(jax.random.key(0), base_run.target).posterior.by_chain()
    jax.tree.map(
        lambda a, b: np.testing.assert_array_equal(a, b[:, 1::2].astype(jnp.bfloat16)),
        thinned,
        base_run.fit.posterior.by_chain(),
    )


@pytest.mark.slow
def test_predictions_alone_are_those_of_the_draws(base_run):
    target, fit, _ = base_run
    storage = inference.Storage(collect="predictions", inputs=target.data.inputs)
    method = inference.hmc(**SETTINGS, num_samples=8, chunk_size=3, storage=storage)
    predicted = method(jax.random.key(0), target)
    logits = jax.vmap(lambda w: target.model.apply(w, target.data.inputs))(fit.posterior.samples)
    expected = jax.nn.softmax(logits).mean(0)
    np.testing.assert_allclose(predicted.diagnostics["predictions"], expected, rtol=1e-5, atol=1e-6)
    last = tree.take(fit.posterior.by_chain(), (slice(None), -1))
    jax.tree.map(np.testing.assert_array_equal, predicted.posterior.samples, last)


def test_progress_and_diagnostics(base_run):
    target, fit, reports = base_run
    assert [one[:3] for one in reports] == [("burn-in", 3, 3), ("sampling", 4, 8), ("sampling", 8, 8)]
    assert fit.diagnostics["num_gradients"].tolist() == [11 * 4, 11 * 4]
    log_densities = jax.jit(jax.vmap(target.log_density))(fit.posterior.samples).reshape(2, 8)
    np.testing.assert_allclose(fit.diagnostics["log_density"], log_densities, rtol=1e-5)
    assert {"acceptance", "step_size", "seconds"} <= reports[0].statistics.keys()


def test_a_step_size_far_too_large_ends_with_a_message(base_run):
    method = inference.hmc(**{**SETTINGS, "step_size": 1e3}, num_samples=100)
    with pytest.raises(inference.SamplingError, match=r"all \d+ transitions of 2 chains diverged"):
        method(jax.random.key(0), base_run.target)


def test_chains_that_diverge_here_alone_do_not_end_the_run(base_run, monkeypatch):
    """As if those of another process moved: it would wait for this one."""
    monkeypatch.setattr(distributed, "everywhere", lambda flag: False)
    zeros, ten = np.zeros(2), np.full(2, 10.0)
    stuck = Tally(ten, zeros, ten, zeros, zeros)
    report.require_progress(stuck, np.ones(2), is_last=True, everywhere=distributed.everywhere)
    with pytest.raises(inference.SamplingError):
        report.require_progress(stuck, np.ones(2), is_last=True)
    monkeypatch.setattr(distributed, "everywhere", lambda flag: True)
    with pytest.raises(inference.SamplingError, match="transitions of 2 chains diverged"):
        inference.hmc(**SETTINGS, num_samples=1)(jax.random.key(0), base_run.target)


def test_no_energy_error_where_every_transition_diverged():
    total = Tally(*(np.array(row, float) for row in ([10, 10], [8, 0], [1, 10], [36, 0], [10, 10])))
    found = report.diagnostics(total, np.ones(2), np.arange(2))["energy_error"]
    np.testing.assert_array_equal(found, [2.0, np.nan])


def test_chains_in_trouble_are_named():
    zeros = np.zeros(3)
    total = Tally(np.full(3, 100.0), np.array([80.0, 5.0, 80.0]), np.array([0, 0, 7.0]), zeros, zeros)
    sentence = verdict(total, np.full(3, 0.5), np.array([4, 5, 6]))
    assert sentence == (
        "chain 5 accepted 5.0% of its proposals: step size 0.5 is too large; "
        "chain 6: 7 of 100 transitions diverged"
    )


def test_trouble_is_a_warning(base_run, monkeypatch):
    monkeypatch.setattr(report, "LOW_ACCEPTANCE", 1.1)
    with pytest.warns(RuntimeWarning, match="chain 0 accepted"):
        fit = inference.hmc(**SETTINGS, num_samples=8, chunk_size=4)(jax.random.key(0), base_run.target)
    assert "chain 1 accepted" in fit.diagnostics["verdict"]


def test_a_start_without_a_density_is_refused(base_run):
    target = base_run.target
    initial = jax.vmap(target.init)(jax.random.split(jax.random.key(5), 2))
    initial["out"]["bias"] = initial["out"]["bias"].at[1].set(jnp.nan)
    method = inference.hmc(num_chains=2, num_samples=1, step_size=0.1, initial=initial, placement=HERE)
    with pytest.raises(ValueError, match=r"Chains \[1\] start where the log-density"):
        method(jax.random.key(0), target)


def test_a_bad_start_of_another_process_is_told_here_too(base_run, monkeypatch):
    monkeypatch.setattr(distributed, "everywhere", lambda flag: False)
    monkeypatch.setattr(distributed, "together", lambda rows: np.array([*rows, 7, 7]))
    with pytest.raises(ValueError, match=r"Chains \[7\] start where the log-density"):
        inference.hmc(**SETTINGS, num_samples=1)(jax.random.key(0), base_run.target)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_chains": 0}, "num_chains must be a whole number of at least 1; got 0"),
        ({"num_samples": 0}, "num_samples must be a whole number of at least 1; got 0"),
        ({"step_size": -0.1}, "step_size must be positive"),
        ({"num_steps": 3, "trajectory": 1.0}, "not both"),
        ({"num_steps": 0}, "num_steps must be a whole number of at least 1; got 0"),
        (
            {"max_num_steps": 0, "step_size": None},
            "max_num_steps must be a whole number of at least 1; got 0",
        ),
        ({"mass": "dense", "step_size": None}, "mass must be 'identity' or 'diagonal'; got 'dense'"),
        (
            {"mass": "diagonal", "step_size": None, "num_burnin": 19},
            "give num_burnin of at least 20, or mass='identity'; got 19",
        ),
        ({"target_acceptance": 80.0, "step_size": None}, r"target_acceptance must be in \(0, 1\); got 80"),
        ({"num_burnin": 0, "step_size": None}, "give a step_size, or num_burnin of at least 1; got 0"),
        ({"jitter": 1.0}, r"jitter must be in \[0, 1\)"),
        ({"mass": "diagonal"}, "applies only when the step size adapts \\(step_size=None\\)"),
        ({"max_num_steps": 5}, "max_num_steps applies only when the step size adapts"),
        ({"target_acceptance": 0.9}, "target_acceptance applies only when the step size adapts"),
        (
            {"step_size": None, "num_steps": 3, "max_num_steps": 5},
            "max_num_steps applies only when num_steps is None; got both",
        ),
        ({"thinning": 0}, "thinning must be a whole number of at least 1; got 0"),
        ({"chunk_size": 0}, "chunk_size must be a whole number of at least 1; got 0"),
        ({"storage": inference.Storage(collect="stored")}, "add sink=io.ChunkStore"),
        ({"storage": inference.Storage(collect="predictions")}, "must be given together"),
        ({"storage": inference.Storage(dtype=jnp.int8)}, "floating-point"),
        ({"storage": inference.Storage(collect="some")}, "collect must be"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        inference.hmc(**{"step_size": 0.1, **settings})


def test_numbers_that_are_not_whole_are_refused():
    """In a process without the tests' checking of types, which would be first to notice."""
    program = (
        "from symbnn import inference\n"
        "for settings in ({'num_samples': 3.0}, {'num_steps': 2.5}, {'thinning': True}):\n"
        "    try: inference.hmc(step_size=0.1, **settings)\n"
        "    except ValueError as error: print(error)"
    )
    command, root = [sys.executable, "-c", program], Path(__file__).parents[2]
    told = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    assert told.splitlines() == [
        f"{name} must be a whole number of at least 1; got {value}"
        for name, value in {"num_samples": 3.0, "num_steps": 2.5, "thinning": True}.items()
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: tree.take(p, slice(0, 2)), r"'hidden/bias' must be \(3, 4\) of float32.*got \(2, 4\)"),
        (lambda p: jax.tree.map(lambda a: a.astype(jnp.float16), p), "got .* of float16"),
        (lambda p: {"hidden": p["hidden"]}, r"missing leaves \['out/bias', 'out/kernel'\]"),
    ],
)
def test_starts_that_do_not_match_are_refused(base_run, change, message):
    target = base_run.target
    initial = change(jax.vmap(target.init)(jax.random.split(jax.random.key(0), 3)))
    with pytest.raises(ValueError, match=message):
        inference.hmc(num_chains=3, step_size=0.1, initial=initial)(jax.random.key(0), target)


def test_batch_statistics_are_refused():
    _, batch = small_network()

    def init(key):
        return {"params": {"w": jnp.ones((5, 3))}, "batch_stats": {"mean": jnp.zeros(3)}}

    model = LinearModel(init, lambda params, inputs: inputs @ params["params"]["w"], None)
    with pytest.raises(ValueError, match="Networks with BatchNorm have no per-example likelihood"):
        inference.hmc(step_size=0.1)(jax.random.key(0), density.target(model, batch))
