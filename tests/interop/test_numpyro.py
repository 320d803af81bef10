"""NumPyro models as targets: the density is NumPyro's, and our samplers find the posterior that is known."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist
from numpyro import infer

from symbnn import inference, interop
from tests.inference.cases import check_mean

KEY = jax.random.key(0)
HERE = inference.Placement(devices=jax.devices()[:2])
random = np.random.default_rng(0)
INPUTS = random.normal(size=(20, 2)) @ np.array([[1.0, 0.4], [0.0, 0.7]])
OUTPUTS = INPUTS @ np.array([1.0, -0.5]) + 0.5 * random.normal(size=20)


def regression(inputs, outputs=None, noise=0.5):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.deterministic("twice", 2 * weights)
    numpyro.sample("outputs", dist.Normal(inputs @ weights, noise), obs=outputs)


def bounded(outputs):
    rate = numpyro.sample("rate", dist.Gamma(3.0, 2.0))
    with numpyro.plate("points", len(outputs)):
        numpyro.sample("outputs", dist.Exponential(rate), obs=outputs)


WAITING = np.asarray(random.exponential(0.5, size=15), np.float32)


@functools.cache
def linear() -> tuple:
    covariance = np.linalg.inv(INPUTS.T @ INPUTS / 0.25 + np.eye(2))
    target = interop.numpyro_target(regression, jnp.asarray(INPUTS), outputs=jnp.asarray(OUTPUTS))
    return target, covariance @ INPUTS.T @ OUTPUTS / 0.25, covariance


def test_the_density_is_minus_numpyros_potential_energy():
    target, mean, _ = linear()
    params = {"weights": jnp.asarray(mean, jnp.float32)}
    energy = infer.util.potential_energy(regression, (INPUTS,), {"outputs": OUTPUTS}, params)
    np.testing.assert_allclose(target.log_density(params), -energy, rtol=1e-6)


def test_starts_are_numpyros():
    target, _, _ = linear()
    starts = jax.vmap(target.init)(jax.random.split(KEY, 500))["weights"]
    assert np.abs(starts).max() <= 2.0
    np.testing.assert_allclose(starts.var(), 16 / 12, rtol=0.1)
    alone = infer.util.initialize_model(KEY, regression, model_args=(INPUTS, OUTPUTS)).param_info.z
    np.testing.assert_array_equal(target.init(KEY)["weights"], alone["weights"])


SETTINGS = {"num_chains": 2, "placement": HERE}
SAMPLERS = {
    "hmc": lambda: inference.hmc(
        **SETTINGS, num_samples=800, num_burnin=60, step_size=0.1, num_steps=6, jitter=0.3
    ),
    "nuts": lambda: inference.nuts(**SETTINGS, num_samples=600, num_burnin=150),
    "mclmc": lambda: inference.mclmc(
        **SETTINGS, num_samples=1500, num_burnin=500, kernel="adjusted", thinning=2
    ),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_our_samplers_find_the_conjugate_posterior(name):
    target, mean, covariance = linear()
    draws = np.asarray(SAMPLERS[name]()(KEY, target).posterior.by_chain()["weights"], np.float64)
    check_mean(draws, mean, 4.0)
    check_mean((draws - mean) ** 2, np.diag(covariance), 4.0)


def test_a_bounded_site_is_sampled_on_the_line_and_mapped_back():
    """Gamma prior, exponential data: the posterior is Gamma(3 + n, 2 + Σ)."""
    target = interop.numpyro_target(bounded, WAITING)
    fit = SAMPLERS["hmc"]()(KEY, target)
    rates = np.asarray(target.constrain(fit.posterior.samples)["rate"], np.float64).reshape(2, -1, 1)
    shape, rate = 3.0 + len(WAITING), 2.0 + WAITING.sum()
    assert rates.min() > 0
    check_mean(rates, np.array([shape / rate]), 4.0)
    check_mean((rates - shape / rate) ** 2, np.array([shape / rate**2]), 4.0)


def test_constrained_samples_hold_the_deterministic_sites():
    target, _, _ = linear()
    samples = {"weights": jnp.arange(6.0).reshape(3, 2)}
    values = target.constrain(samples)
    np.testing.assert_array_equal(values["twice"], 2 * samples["weights"])


@pytest.mark.slow
def test_numpyros_own_nuts_gives_the_same_moments():
    target = interop.numpyro_target(bounded, WAITING)
    ours = target.constrain(SAMPLERS["nuts"]()(KEY, target).posterior.samples)["rate"]
    theirs = infer.MCMC(infer.NUTS(bounded), num_warmup=300, num_samples=4000, progress_bar=False)
    theirs.run(KEY, WAITING)
    expected = np.asarray(theirs.get_samples()["rate"], np.float64)
    draws = np.asarray(ours, np.float64).reshape(2, -1, 1)
    # Their own error is small beside ours: more than three times as many draws.
    check_mean(draws, expected.mean()[None], 5.0)
    check_mean((draws - expected.mean()) ** 2, expected.var()[None], 5.0)


def discrete():
    kind = numpyro.sample("kind", dist.Bernoulli(0.5))
    numpyro.sample("seen", dist.Normal(kind, 1.0), obs=0.3)


def observed():
    numpyro.sample("seen", dist.Normal(0.0, 1.0), obs=0.3)


def subsampled(outputs):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("points", len(outputs), subsample_size=3):
        numpyro.sample("seen", dist.Normal(mean, 1.0), obs=numpyro.subsample(outputs, event_dim=0))


@pytest.mark.parametrize(
    ("model", "args", "message"),
    [
        (discrete, (), r"has discrete latent sites \['kind'\], which have no gradient"),
        (observed, (), r"has no latent sites to sample; all of its sites \['seen'\] are observed"),
        (subsampled, (WAITING,), r"subsamples its plates \['points'\]"),
    ],
)
def test_models_that_cannot_be_sampled_are_refused_in_one_line(model, args, message):
    with pytest.raises(ValueError, match=message) as caught:
        interop.numpyro_target(model, *args)
    assert "\n" not in str(caught.value)


NEEDS_A_NETWORK = {
    "ensemble": inference.ensemble(num_members=2),
    "variational": inference.variational(),
    "swag": inference.swag(),
    "laplace": inference.laplace(),
    "sgmcmc": inference.sgmcmc(num_samples=2, step_size=0.1),
    "dropout": inference.dropout(),
}


@pytest.mark.parametrize("name", NEEDS_A_NETWORK)
def test_methods_that_train_a_network_say_what_is_missing(name):
    with pytest.raises(ValueError, match=r"the target has no model, data.*density\.target\(model, data\)"):
        NEEDS_A_NETWORK[name](KEY, linear()[0])


def test_predictions_and_data_shards_need_a_network():
    target = linear()[0]
    with pytest.raises(ValueError, match=r"collect='predictions'.*the target has no model"):
        inference.hmc(storage=inference.Storage("predictions", INPUTS), step_size=0.1)(KEY, target)
    with pytest.raises(ValueError, match="data_shards divides the data"):
        inference.hmc(placement=inference.Placement(data_shards=2), step_size=0.1)(KEY, target)
