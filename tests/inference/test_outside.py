"""What users bring: a density of their own, a sampler of their own, a method of their own for every mode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import density, inference, io, models, symmetry, tree
from symbnn.inference import Info, Kernel, PositionState, Run
from symbnn.inference.chains import adaptation, driver
from symbnn.inference.hmc import build_kernel as hmc_kernel
from symbnn.posteriors import Empirical
from tests.inference.cases import assert_moments, check_mean, conjugate, small_network

KEY = jax.random.key(0)
HERE = inference.Placement(devices=jax.devices()[:2])
MEAN, STD = np.array([1.0, -2.0]), np.array([0.5, 2.0])


def normal(params):
    return -0.5 * jnp.sum(jnp.square((params["x"] - MEAN) / STD))


TARGET = density.Target(lambda key: {"x": jax.random.normal(key, (2,))}, normal)
SETTINGS = {"num_chains": 2, "placement": HERE}
SAMPLERS = {
    "hmc": lambda: inference.hmc(**SETTINGS, num_samples=800, num_burnin=200, mass="diagonal", jitter=0.2),
    "nuts": lambda: inference.nuts(**SETTINGS, num_samples=600, num_burnin=200),
    "mclmc": lambda: inference.mclmc(**SETTINGS, num_samples=1500, num_burnin=500, kernel="adjusted"),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in SAMPLERS])
def test_a_start_and_a_log_density_are_enough_to_sample(name):
    draws = np.asarray(SAMPLERS[name]()(KEY, TARGET).posterior.by_chain()["x"], np.float64)
    check_mean(draws, MEAN, 4.0)
    check_mean((draws - MEAN) ** 2, STD**2, 4.0)


@pytest.mark.slow
def test_a_plain_log_density_is_what_is_sampled_even_if_the_target_has_parts():
    """Replaced by itself without its parts: up to rounding, the same draws."""
    target = density.target(*small_network())
    settings = {**SETTINGS, "num_samples": 3, "num_burnin": 0, "step_size": 0.01, "num_steps": 3}
    whole = target._replace(log_density=lambda params: target.log_density(params))
    doubled = target._replace(log_density=lambda params: 2 * target.log_density(params))
    first, same, other = (inference.hmc(**settings)(KEY, each) for each in (target, whole, doubled))
    kernels = [fit.posterior.samples["out"]["kernel"] for fit in (first, same, other)]
    np.testing.assert_allclose(kernels[0], kernels[1], rtol=1e-4, atol=1e-5)
    assert np.max(np.abs(kernels[0] - kernels[2])) > 1e-3


@pytest.mark.parametrize(
    "sampler",
    [
        lambda **given: inference.hmc(step_size=0.1, num_steps=2, **given),
        lambda **given: inference.nuts(step_size=0.1, **given),
        lambda **given: inference.mclmc(step_size=0.1, length=1.0, thinning=1, **given),
    ],
    ids=["hmc", "nuts", "mclmc"],
)
def test_weights_that_are_one_array_are_sampled_as_in_a_dictionary(sampler, tmp_path):
    """Also from a store of which a shorter run reads a part."""
    array = density.Target(lambda key: TARGET.init(key)["x"], lambda x: normal({"x": x}))
    given = {**SETTINGS, "num_burnin": 2, "chunk_size": 4, "sink": io.ChunkStore(tmp_path)}
    drawn = sampler(num_samples=6, **given)(KEY, array).posterior.samples
    expected = sampler(num_samples=6, **given | {"sink": None})(KEY, TARGET).posterior.samples["x"]
    np.testing.assert_array_equal(drawn, expected)
    shorter = sampler(num_samples=3, **given)(KEY, array).posterior.samples
    by_chain = np.asarray(drawn).reshape(2, 6, 2)
    np.testing.assert_array_equal(np.asarray(shorter).reshape(2, 3, 2), by_chain[:, :3])


def test_a_temperature_that_is_not_that_of_the_log_density_is_refused():
    target = density.target(*small_network())._replace(temperature=0.1)
    with pytest.raises(ValueError, match=r"says temperature 0.1, but its log_density has 1.0"):
        inference.hmc(num_samples=2, step_size=0.1)(KEY, target)


def test_a_stopped_run_on_a_plain_density_is_recognised(tmp_path):
    settings = {**SETTINGS, "num_samples": 2, "num_burnin": 0, "step_size": 0.1, "num_steps": 2}
    method = inference.hmc(**settings, sink=io.ChunkStore(tmp_path))
    first, again = (method(KEY, TARGET) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, first.posterior, again.posterior)
    with pytest.raises(ValueError, match="belongs to another run: its network"):
        method(KEY, TARGET._replace(log_density=lambda params: normal(params) - params["x"][0] ** 2))


def metropolis():
    """Random-walk Metropolis, as a user would write it."""

    def step(key, state, tuning, log_density):
        key_move, key_accept = jax.random.split(key)
        noise = density.draw_like(key_move, state.position)
        proposal = jax.tree.map(lambda w, e: w + tuning.step_size * e, state.position, noise)
        old, new = log_density(state.position), log_density(proposal)
        acceptance = jnp.minimum(1.0, jnp.exp(new - old))
        accept = jax.random.uniform(key_accept) < acceptance
        position = jax.tree.map(lambda a, b: jnp.where(accept, a, b), proposal, state.position)
        return PositionState(position), Info(acceptance, jnp.where(accept, new, old))

    return Kernel(lambda key, position, log_density: PositionState(position), step)


def test_a_mass_that_is_given_makes_every_scale_one():
    """Steps of 1.2 are unstable where the standard deviation is 0.5, and not when measured against it."""
    run = Run(num_chains=2, num_samples=20, num_burnin=0, placement=HERE)
    kernel = hmc_kernel(num_steps=10)
    with pytest.raises(inference.SamplingError, match="all 40 transitions of 2 chains diverged"):
        driver.run(KEY, TARGET, kernel, adaptation.fixed(step_size=1.2), run)
    tuner = adaptation.fixed(step_size=1.2, inverse_mass={"x": STD**2})
    assert np.mean(driver.run(KEY, TARGET, kernel, tuner, run).diagnostics["acceptance"]) > 0.7


def test_a_sampler_of_ten_lines_samples_the_conjugate_posterior():
    case = conjugate()
    run = Run(num_chains=4, num_samples=2000, num_burnin=500, thinning=5, placement=HERE)
    fit = driver.run(KEY, case.target, metropolis(), adaptation.fixed(step_size=0.08), run)
    assert_moments(fit, case)
    assert fit.diagnostics["verdict"] == "ok"


def sometimes_nan(*, every: int):
    """Metropolis whose acceptance is not a number in some of its transitions."""
    kernel = metropolis()

    def step(key, state, tuning, log_density):
        state, info = kernel.step(key, state, tuning, log_density)
        is_nan = jax.random.randint(key, (), 0, every) == 0
        return state, info._replace(acceptance=jnp.where(is_nan, jnp.nan, info.acceptance))

    return kernel._replace(step=step)


def test_an_acceptance_that_is_not_a_number_is_a_divergence_and_stays_out_of_the_adaptation():
    tuner = adaptation.windows(20, initial_step_size=0.5, mass="identity", target_acceptance=0.5)
    run = Run(num_chains=2, num_samples=30, num_burnin=20, placement=HERE)
    with pytest.warns(RuntimeWarning, match="of 30 transitions diverged"):
        fit = driver.run(KEY, TARGET, sometimes_nan(every=4), tuner, run)
    assert np.all(np.isfinite(fit.diagnostics["step_size"]))
    assert np.all(fit.diagnostics["acceptance"] > 0.1)
    assert np.all(fit.diagnostics["divergences"] > 0)
    with pytest.raises(inference.SamplingError, match="all 40 transitions of 2 chains diverged"):
        driver.run(KEY, TARGET, sometimes_nan(every=1), tuner, run)


def scaled(factor):
    """Metropolis with proposals that are larger by a factor which no setting names."""
    kernel = metropolis()

    def step(key, state, tuning, log_density):
        return kernel.step(key, state, tuning._replace(step_size=factor * tuning.step_size), log_density)

    return kernel._replace(step=step)


def from_point(value):
    return TARGET._replace(init=lambda key: {"x": jnp.full((2,), value)})


@pytest.mark.parametrize(
    ("target", "kernel", "step_size", "named"),
    [
        (from_point(1.0), scaled(1.0), 0.2, "its sampler is"),
        (from_point(1.0), scaled(1.0 + 1e-6), 0.1, "its sampler is"),
        (from_point(1.0 + 1e-6), scaled(1.0), 0.1, "its initial is"),
    ],
)
def test_a_run_is_recognised_by_its_start_its_kernel_and_its_tuner(
    tmp_path, target, kernel, step_size, named
):
    run = Run(num_chains=2, num_samples=2, num_burnin=0, sink=io.ChunkStore(tmp_path), placement=HERE)

    def fit(target, kernel, step_size):
        return driver.run(
            KEY, target, kernel, adaptation.fixed(step_size=step_size), run, name="one name"
        ).posterior

    first, again = (fit(from_point(1.0), scaled(1.0), 0.1) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    with pytest.raises(ValueError, match=f"belongs to another run: {named}"):
        fit(target, kernel, step_size)


@pytest.mark.slow
def test_multimode_runs_any_method_around_every_member():
    target = density.target(*small_network())
    members = jax.vmap(target.init)(jax.random.split(KEY, 3))
    method = inference.hmc(num_chains=2, num_samples=4, num_burnin=0, step_size=1e-4, num_steps=2)
    fit = inference.multimode(method, members=members)(KEY, target)
    assert fit.posterior.num_chains == 6
    assert fit.diagnostics["acceptance"].shape == (3, 2)
    # The steps are tiny, so every chain is still where its member is.
    for chain in range(6):
        here = jax.tree.map(lambda leaf, chain=chain: leaf[chain, -1], fit.posterior.by_chain())
        expected = tree.take(members, chain // 2)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=0.01), here, expected)


def test_multimode_refuses_a_sink_at_its_first_member(tmp_path):
    target = density.target(*small_network())
    members = jax.vmap(target.init)(jax.random.split(KEY, 2))
    method = inference.hmc(
        num_chains=1, num_samples=2, num_burnin=0, step_size=1e-4, sink=io.ChunkStore(tmp_path)
    )
    with pytest.raises(ValueError, match="multimode runs this sampler once per member, but a sink keeps one"):
        inference.multimode(method, members=members)(KEY, target)
    assert not list(tmp_path.iterdir())


def test_multimode_refuses_starts_beside_its_members():
    target = density.target(*small_network())
    members = jax.vmap(target.init)(jax.random.split(KEY, 2))
    method = inference.hmc(
        num_chains=1, num_samples=2, num_burnin=0, step_size=1e-4, initial=tree.take(members, slice(1))
    )
    with pytest.raises(ValueError, match=r"has starts of its own \(initial=\.\.\.\); leave initial out"):
        inference.multimode(method, members=members)(KEY, target)


def test_multimode_takes_a_function():
    target = density.target(*small_network())
    members = jax.vmap(target.init)(jax.random.split(KEY, 3))

    def stay(key, target):
        return inference.Fit(Empirical(tree.stack([target.init(key)])), {"tries": 1})

    fit = inference.multimode(stay, members=members)(KEY, target)
    jax.tree.map(np.testing.assert_array_equal, fit.posterior.samples, members)
    np.testing.assert_array_equal(fit.diagnostics["tries"], [1, 1, 1])


def test_multimode_takes_members_that_a_posterior_keeps_and_diagnostics_of_any_shape():
    target = density.target(*small_network())
    members = jax.vmap(target.init)(jax.random.split(KEY, 3))

    def stay(key, target):
        network = target.init(key)
        known = {"path": np.ones(int(10 * abs(network["out"]["bias"][0]))), "note": "ok", "tree": {"a": 1.0}}
        return inference.Fit(Empirical.from_chains(tree.stack([tree.stack([network] * 4)] * 2)), known)

    for given in (Empirical(members), inference.Fit(Empirical(members), {}), members):
        fit = inference.multimode(stay, members=given)(KEY, target)
        assert fit.posterior.num_chains == 6
        jax.tree.map(
            lambda found, expected: np.testing.assert_array_equal(found, np.repeat(expected, 8, axis=0)),
            fit.posterior.samples,
            members,
        )
    assert [len(path) for path in fit.diagnostics["path"]] == [
        int(10 * abs(bias)) for bias in members["out"]["bias"][:, 0]
    ]
    np.testing.assert_array_equal(fit.diagnostics["tree"]["a"], np.ones(3))
    assert list(fit.diagnostics["note"]) == ["ok"] * 3


class Foreign:
    """A posterior that JAX does not know as a tree."""

    def sample(self, key, num):
        raise AssertionError

    def log_prob(self, params):
        raise AssertionError


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda samples: samples, r"must return an inference\.Fit\(posterior, diagnostics\); got a dict"),
        (lambda samples: inference.Fit(samples, {}), "multimode joins posteriors .* got a dict"),
        (lambda samples: inference.Fit(Foreign(), {}), "multimode joins posteriors .* got a Foreign"),
    ],
)
def test_multimode_says_what_a_method_must_return(result, message):
    target = density.target(*small_network())
    members = jax.vmap(target.init)(jax.random.split(KEY, 2))
    with pytest.raises(ValueError, match=message):
        inference.multimode(lambda key, target: result(tree.stack([target.init(key)])), members=members)(
            KEY, target
        )


@pytest.mark.parametrize("extra", [lambda leaf: leaf[None], lambda leaf: leaf[:, None]])
def test_multimode_refuses_members_with_chains_and_draws(extra):
    target = density.target(*small_network())
    members = jax.tree.map(extra, jax.vmap(target.init)(jax.random.split(KEY, 2)))
    method = inference.laplace(pretrain_epochs=0)
    with pytest.raises(ValueError, match=r"posteriors\.Empirical\.from_chains\(samples\)"):
        inference.multimode(method, members=members)(KEY, target)


ONE_DRAW = {
    "ensemble": inference.ensemble(num_members=2, epochs=1, batch_size=10),
    "hmc": inference.hmc(**SETTINGS, num_samples=1, num_burnin=0, step_size=0.01, num_steps=1),
}


@pytest.mark.parametrize("name", ["ensemble", pytest.param("hmc", marks=pytest.mark.slow)])
def test_one_draw_a_chain_of_one_layer_is_no_chains(name):
    """Weights (outputs, inputs) and biases (outputs,): all leaves begin with the networks and the outputs."""

    def apply(params, inputs):
        return inputs @ params["weight"].T + params["bias"]

    def init(key):
        return {"weight": jax.random.normal(key, (5, 3)), "bias": jnp.zeros(5)}

    spec = symmetry.from_axes({}, jax.eval_shape(init, KEY))
    inputs = np.asarray(jax.random.normal(KEY, (20, 3)))
    data = density.Batch(inputs, np.arange(20, dtype=np.int32) % 5)
    target = density.target(models.Model(init, apply, spec), data)
    assert ONE_DRAW[name](KEY, target).posterior.by_chain()["weight"].shape == (2, 1, 5, 3)
