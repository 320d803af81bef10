"""NumPyro's MCMC as a fit: its draws by chain, what it says about them, networks as the trees they were."""

import functools

import jax
import numpy as np
import numpyro
import pytest
from flax import linen as nn
from numpyro import distributions as dist
from numpyro import infer
from numpyro.contrib.module import random_flax_module

from symbnn import compact, inference, interop, io, posteriors, tree
from symbnn.inference.chains.report import PER_CHAIN
from symbnn.interop import names

KEY = jax.random.key(0)
random = np.random.default_rng(0)
INPUTS = random.normal(size=(20, 2)).astype(np.float32)
OUTPUTS = INPUTS @ np.float32([1.0, -0.5]) + 0.5 * random.normal(size=20).astype(np.float32)
EXTRA = ("accept_prob", "potential_energy", "num_steps", "energy", "z_grad")


def regression(inputs, outputs=None):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    numpyro.deterministic("twice", 2 * weights)
    numpyro.sample("outputs", dist.Normal(inputs @ weights, noise), obs=outputs)


class Network(nn.Module):
    @nn.compact
    def __call__(self, inputs):
        return nn.Dense(1)(nn.tanh(nn.Dense(3)(inputs)))


def bayesian_network(inputs, outputs=None):
    network = random_flax_module("nn", Network(), prior=dist.Normal(), input_shape=(1, 2))
    numpyro.sample("outputs", dist.Normal(network(inputs)[:, 0], 0.5), obs=outputs)


def sampler(model, num_chains=2, num_samples=30):
    return infer.MCMC(
        infer.NUTS(model, max_tree_depth=2),
        num_warmup=10,
        num_samples=num_samples,
        num_chains=num_chains,
        chain_method="vectorized",
        progress_bar=False,
    )


@functools.cache
def ran():
    mcmc = sampler(regression)
    mcmc.run(KEY, INPUTS, OUTPUTS, extra_fields=EXTRA)
    return mcmc


def test_draws_are_numpyros_by_chain():
    fit = interop.from_numpyro(ran())
    assert isinstance(fit, inference.Fit)
    assert fit.posterior.num_chains == 2
    expected = ran().get_samples(group_by_chain=True)
    jax.tree.map(np.testing.assert_array_equal, fit.posterior.by_chain(), expected)
    assert fit.posterior.samples.keys() == {"weights", "noise", "twice"}
    assert np.all(fit.posterior.samples["noise"] > 0)


def test_diagnostics_have_the_names_of_our_own_samplers():
    known = interop.from_numpyro(ran()).diagnostics
    fields = ran().get_extra_fields(group_by_chain=True)
    np.testing.assert_array_equal(known["divergences"], fields["diverging"].sum(1))
    np.testing.assert_allclose(known["acceptance"], fields["accept_prob"].mean(1), rtol=1e-6)
    np.testing.assert_allclose(known["acceptance"], ran().last_state.mean_accept_prob, rtol=1e-5)
    np.testing.assert_array_equal(known["log_density"], -fields["potential_energy"])
    np.testing.assert_array_equal(known["num_gradients"], fields["num_steps"].sum(1))
    np.testing.assert_array_equal(known["step_size"], ran().last_state.adapt_state.step_size)
    np.testing.assert_array_equal(known["chains"], [0, 1])
    assert known["z_grad"]["weights"].shape == (2, 30, 2)
    shared = {"acceptance", "divergences", "num_gradients", "step_size", "log_density", "chains"}
    assert shared <= set(PER_CHAIN)
    assert {len(known[name]) for name in shared} == {2}


def test_one_chain_and_no_extra_fields():
    mcmc = sampler(regression, num_chains=1, num_samples=5)
    with pytest.raises(ValueError, match="this MCMC has not run, so it has no samples"):
        interop.from_numpyro(mcmc)
    mcmc.warmup(KEY, INPUTS, OUTPUTS)
    with pytest.raises(ValueError, match="this MCMC has run its warm-up only"):
        interop.from_numpyro(mcmc)
    mcmc.run(KEY, INPUTS, OUTPUTS)
    fit = interop.from_numpyro(mcmc)
    assert fit.posterior.num_chains == 1
    assert fit.posterior.samples["weights"].shape == (5, 2)
    assert fit.diagnostics["acceptance"].shape == fit.diagnostics["divergences"].shape == (1,)
    assert "log_density" not in fit.diagnostics
    # As NumPyro's own example goes on from where it was: there are draws all the same.
    mcmc.post_warmup_state = mcmc.last_state
    jax.tree.map(np.testing.assert_array_equal, interop.from_numpyro(mcmc), fit)


@pytest.mark.slow
def test_a_flax_network_among_the_sites_is_the_tree_that_flax_takes():
    mcmc = sampler(bayesian_network, num_samples=6)
    mcmc.run(KEY, INPUTS, OUTPUTS)
    posterior = interop.from_numpyro(mcmc).posterior
    networks = posteriors.Empirical(posterior.samples["nn"], num_chains=posterior.num_chains)
    params = Network().init(KEY, INPUTS)["params"]
    assert jax.tree.structure(networks.samples) == jax.tree.structure(params)
    raw = mcmc.get_samples()
    one = {name: {leaf: raw[f"nn/{name}.{leaf}"][7] for leaf in params[name]} for name in params}
    jax.tree.map(np.testing.assert_array_equal, tree.take(networks.samples, 7), one)
    assert compact.gaussian(networks).std["Dense_0"]["kernel"].shape == params["Dense_0"]["kernel"].shape
    assert io.to_arviz(networks).posterior["Dense_0/kernel"].shape[:2] == (2, 6)


def test_names_with_slashes_are_nested_and_dots_after_them():
    leaves = {
        "nn/Dense_0.kernel": 1,
        "nn/Dense_0.bias": 2,
        "scope/a/b": 3,
        "sigma.0": 4,
        "nn/block": {"w.x": 5},
    }
    assert names.renamed(leaves) == {
        "nn": {"Dense_0": {"kernel": 1, "bias": 2}, "block": {"w": {"x": 5}}},
        "scope": {"a": {"b": 3}},
        "sigma.0": 4,
    }
    other = {"a/b": (1, 2)}
    assert names.renamed(other) is other
    for clashing in ({"a": 1, "a/b": 2}, {"a/b.c": 1, "a/b": 2}):
        with pytest.raises(ValueError, match="cannot be nested: one name is the start of another"):
            names.renamed(clashing)


def test_samples_alone_are_refused_with_their_own_door():
    with pytest.raises(
        ValueError, match=r"got a dict. Samples alone come in by posteriors\.Empirical"
    ) as caught:
        interop.from_numpyro(ran().get_samples())
    assert "\n" not in str(caught.value)


def test_what_numpyro_gives_by_chain_is_never_taken_for_networks():
    samples = ran().get_samples(group_by_chain=True)
    for call in (compact.gaussian, compact.low_rank, posteriors.Empirical, io.to_arviz):
        with pytest.raises(ValueError, match=r"posteriors\.Empirical\.from_chains\(samples\)"):
            call(samples)
    with pytest.raises(ValueError, match=r"get_samples\(group_by_chain=True\)"):
        posteriors.Empirical.from_chains(ran().get_samples())
