"""MCLMC: the conjugate posterior, adjusted and not, and a start from trained networks."""

from functools import partial

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import density, inference, io
from symbnn.inference.chains.energy_variance import energy_variance
from symbnn.inference.chains.kernels import DIVERGENCE, Info, Tuning
from symbnn.inference.mclmc import adjusted_kernel, unadjusted_kernel
from tests.inference.cases import assert_moments, conjugate, small_network

HERE = inference.Placement(devices=jax.devices()[:2])


@pytest.mark.slow
def test_unadjusted_samples_the_conjugate_posterior():
    """With an energy variance of 5e-4 the bias is far below the standard error."""
    case = conjugate()
    method = inference.mclmc(
        num_chains=4, num_samples=1000, num_burnin=1000, energy_variance=(1e-3, 5e-4), placement=HERE
    )
    fit = method(jax.random.key(0), case.target)
    assert_moments(fit, case)
    assert np.all(fit.diagnostics["divergences"] == 0)
    assert np.all(fit.diagnostics["num_gradients"] == 2 * (1000 + 10 * 1000))


@pytest.mark.slow
def test_adjusted_samples_the_conjugate_posterior():
    case = conjugate()
    method = inference.mclmc(
        num_chains=4,
        num_samples=500,
        num_burnin=300,
        kernel="adjusted",
        length=0.5,
        thinning=4,
        placement=HERE,
    )
    fit = method(jax.random.key(0), case.target)
    assert_moments(fit, case)
    assert np.all(fit.diagnostics["acceptance"] > 0.7)


@pytest.mark.parametrize("step_size", [0.5, 120.0])
def test_adjusted_reports_the_energy_error_and_not_only_what_is_left_of_it_in_the_acceptance(step_size):
    """On a Gaussian both signs occur; a step far too large is told with its size, above any threshold."""
    log_density = density.LogDensity(lambda params: -0.5 * jnp.sum(jnp.square(params["x"])))
    kernel, params = adjusted_kernel(max_num_steps=10), {"x": jnp.ones(20)}
    tuning = Tuning(jnp.asarray(step_size), {"x": jnp.ones(())}, jnp.asarray(2.0))
    state = kernel.init(jax.random.key(0), params, log_density)
    keys = jax.random.split(jax.random.key(1), 50)
    _, info = jax.jit(jax.vmap(lambda key: kernel.step(key, state, tuning, log_density)))(keys)
    expected = np.minimum(1.0, np.exp(-np.asarray(info.energy_error, np.float64)))
    np.testing.assert_allclose(info.acceptance, expected, rtol=1e-4, atol=1e-30)
    if step_size < 1:
        assert np.min(info.energy_error) < 0 < np.max(info.energy_error)
        assert not np.any(info.is_divergent)
    else:
        assert np.all(np.isfinite(info.energy_error)) & np.all(info.is_divergent)
        assert np.min(info.energy_error) > DIVERGENCE


def test_unadjusted_takes_the_step_of_blackjax():
    log_density = density.LogDensity(lambda params: -jnp.sum(jnp.square(params["x"]) ** 2))
    kernel, params = unadjusted_kernel(), {"x": jnp.linspace(-1.0, 1.0, 20)}
    tuning = Tuning(jnp.asarray(0.3), {"x": jnp.ones(())}, jnp.asarray(2.0))
    state = kernel.init(jax.random.key(0), params, log_density)
    theirs = blackjax.mclmc.build_kernel()

    for key in jax.random.split(jax.random.key(1), 20):
        expected, told = theirs(key, state, log_density, 1.0, tuning.length, tuning.step_size)
        state, info = kernel.step(key, state, tuning, log_density)
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), state, expected)
        np.testing.assert_allclose(info.energy_error, told.energy_change, rtol=1e-4, atol=1e-5)
        assert info.acceptance == 1
        assert not info.is_divergent


@pytest.mark.parametrize("what", ["density", "gradient"])
def test_unadjusted_turns_round_where_numbers_are_not_finite(what):
    """Half of the line is forbidden; a gradient alone that is no number would spoil the next step."""

    @jax.custom_jvp
    def wall(x):
        return jnp.where(x > 0, jnp.nan, 0.0) if what == "density" else jnp.zeros(())

    wall.defjvp(
        lambda primals, tangents: (wall(*primals), tangents[0] * jnp.where(primals[0] > 0, jnp.nan, 0))
    )
    log_density = density.LogDensity(lambda x: -0.5 * jnp.sum(x**2) + wall(x[0]))
    kernel, tuning = unadjusted_kernel(), Tuning(jnp.asarray(0.2), jnp.ones(()), jnp.asarray(1.0))
    state = kernel.init(jax.random.key(0), jnp.array([-0.3, 1.0, 1.0]), log_density)
    step = jax.jit(lambda key, state: kernel.step(key, state, tuning, log_density))
    refused = 0
    for key in jax.random.split(jax.random.key(1), 200):
        before = state
        state, info = step(key, state)
        assert all(np.all(np.isfinite(leaf)) for leaf in (*state, info.energy_error))
        assert state.position[0] <= 0
        if info.is_divergent:
            refused += 1
            np.testing.assert_array_equal(state.position, before.position)
            np.testing.assert_array_equal(state.momentum, -before.momentum)
            assert info.acceptance == 0
    assert 0 < refused < 100


def test_step_size_settles_where_the_energy_has_the_wanted_variance():
    """On a toy with Var ΔE / d = c ε⁶ the tuner must find ε = (wanted / c)^(1/6)."""
    constant, dimension = 7.0, 10
    params = {"w": jnp.zeros(dimension)}
    tuner = energy_variance(
        600, step_size=None, initial_step_size=1e-3, length=1.0, initial_length=1.0, variance=(0.5, 0.1)
    )

    @jax.jit
    def run(key):
        def body(index, carry):
            tuning, state = carry
            scale = jnp.sqrt(dimension * constant * tuning.step_size**6)
            error = scale * jax.random.normal(jax.random.fold_in(key, index))
            info = Info(jnp.ones(()), jnp.zeros(()), jnp.asarray(False), error)
            return tuner.update(index, state, tuning, params, info)

        return jax.lax.fori_loop(0, 600, body, tuner.init(params))[0].step_size

    expected = (0.1 / constant) ** (1 / 6)
    assert abs(float(run(jax.random.key(0))) / expected - 1) < 0.1


@pytest.mark.slow
def test_chains_start_from_an_ensemble_and_stay_near_it():
    model, batch = small_network()
    target = density.target(model, batch)
    ensemble = jax.vmap(model.init)(jax.random.split(jax.random.key(0), 2))
    method = inference.mclmc(
        num_chains=2,
        num_samples=2,
        num_burnin=0,
        step_size=1e-4,
        length=1.0,
        initial=ensemble,
        placement=HERE,
    )
    fit = method(jax.random.key(0), target)
    draws = fit.posterior.by_chain()
    distances = jax.tree.map(lambda a, b: float(jnp.max(jnp.abs(a - b[:, None]))), draws, ensemble)
    assert 0 < max(jax.tree.leaves(distances)) <= 20 * 1e-4 * 1.01


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"step_size": 0.0}, "step_size must be positive"),
        ({"length": -1.0}, "length must be positive"),
        ({"kernel": "corrected"}, "'unadjusted' or 'adjusted'"),
        ({"energy_variance": (0.5, 0.0)}, "two positive numbers"),
        (
            {"energy_variance": (0.5, 0.1), "step_size": 0.1},
            "energy_variance applies only when",
        ),
        ({"energy_variance": (0.5, 0.1), "kernel": "adjusted"}, "only to kernel='unadjusted'"),
        ({"kernel": "adjusted", "num_burnin": 0}, "num_burnin of at least 1; got 0"),
        ({"kernel": "adjusted", "target_acceptance": 0.0}, r"target_acceptance must be in \(0, 1\); got 0"),
        ({"num_burnin": 2}, "give both, or num_burnin of at least 3; got 2"),
        ({"num_burnin": 1, "length": 1.0}, "give both, or num_burnin of at least 2; got 1"),
        ({"max_num_steps": 0}, "max_num_steps must be a whole number of at least 1; got 0"),
        ({"target_acceptance": 0.9}, "only to kernel='adjusted'"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        inference.mclmc(**settings)


def test_a_chain_that_stands_still_in_the_burn_in_keeps_its_length(tmp_path):
    """The second chain starts where no step is finite: it has no spread, and no energy error."""

    def log_density(params):
        is_inside = (jnp.abs(params["x"]) < 100) | (params["x"] == 1000)
        return jnp.where(is_inside, -0.5 * jnp.square(params["x"]), jnp.nan).sum()

    target = density.Target(init=lambda key: {"x": jnp.zeros(4)}, log_density=log_density)
    initial = {"x": jnp.array([[1.0] * 4, [1000.0] * 4])}
    sink, sizes = io.ChunkStore(tmp_path), {"num_chains": 2, "num_samples": 4, "num_burnin": 3}
    method = inference.mclmc(**sizes, initial=initial, placement=HERE, sink=sink)
    with pytest.warns(RuntimeWarning, match="chain 1 accepted 0.0%"):
        fit = method(jax.random.key(0), target)
    lengths = sink.read(1)["state/tuning/length"]
    # Of a start without a prior: π √d / 2.
    assert 0 < lengths[0] < lengths[1] == pytest.approx(np.pi)
    assert np.isfinite(fit.diagnostics["energy_error"]).tolist() == [True, False]


def test_settings_of_one_way_to_run_go_together():
    inference.mclmc(step_size=0.1, length=1.0)
    inference.mclmc(energy_variance=(0.3, 0.1))
    inference.mclmc(kernel="adjusted", target_acceptance=0.8)
