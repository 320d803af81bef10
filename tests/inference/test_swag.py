"""SWAG: the moments of what SGD visits, as the formulas say."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from symbnn import data, density, inference, models, tree
from symbnn.posteriors import FixedLeaves, GaussianMixture, LowRankGaussian
from tests.inference.cases import conjugate, small_network
from tests.inference.test_ensemble import Normalised

KEY = jax.random.key(0)


def test_moments_and_deviations_are_those_of_the_visited_weights():
    """With the whole data as one minibatch an ensemble visits the same weights, as its snapshots show."""
    target = density.target(*small_network())
    start = target.model.init(KEY)
    settings = {"epochs": 7, "batch_size": target.num_data, "optimizer": optax.sgd(0.5)}
    posterior = inference.swag(rank=4, pretrain_epochs=0, initial=start, **settings)(KEY, target).posterior
    visits = inference.ensemble(
        num_members=1, initial=tree.stack([start]), snapshots=tuple(range(1, 8)), **settings
    )
    for name, leaf in tree.named_leaves(visits(KEY, target).diagnostics["snapshots"]).items():
        visited = np.asarray(leaf[0], np.float64)
        mean, std, factors = (
            tree.named_leaves(part)[name] for part in (posterior.mean, posterior.std, posterior.factors)
        )
        np.testing.assert_allclose(mean, visited.mean(0), atol=1e-6)
        np.testing.assert_allclose(std, visited.std(0) / np.sqrt(2), atol=1e-6)
        counts = np.arange(1, 8).reshape(-1, *(1,) * (visited.ndim - 1))
        deviations = (visited - np.cumsum(visited, axis=0) / counts)[-4:]
        np.testing.assert_allclose(factors, deviations / np.sqrt(2 * 3), atol=1e-6)
    assert np.max(np.abs(factors)) > 1e-3


def test_the_mean_of_a_linear_model_is_the_mode():
    """SGD around the minimum of a quadratic averages to it."""
    case = conjugate()
    start = {"out": {"kernel": jnp.asarray(case.mean, jnp.float32)[:, None]}}
    fit = inference.swag(
        rank=5, epochs=300, batch_size=5, optimizer=optax.sgd(2e-2), pretrain_epochs=0, initial=start
    )(KEY, case.target)
    assert isinstance(fit.posterior, LowRankGaussian)
    assert fit.posterior.rank == 5
    # Not exactly: weights at the ends of epochs are biased by the order of the learning rate.
    error = np.abs(fit.posterior.mean["out"]["kernel"][:, 0] - case.mean) / np.sqrt(np.diag(case.covariance))
    assert np.all(error < 0.15)
    assert fit.diagnostics["loss"].shape == (300,)


@pytest.mark.slow
def test_nets_with_batch_statistics_and_many_modes():
    _, batch = small_network()
    target = density.target(models.from_module(Normalised(), (5,)), batch)
    method = inference.swag(rank=2, epochs=3, batch_size=12, pretrain_epochs=2)
    fit = inference.multimode(method, members=inference.ensemble(num_members=2, epochs=1, batch_size=12))(
        KEY, target
    )
    assert isinstance(fit.posterior, GaussianMixture)
    assert isinstance(fit.posterior.components, FixedLeaves)
    drawn = fit.posterior.sample(KEY, 4)
    assert drawn.keys() == {"params", "batch_stats"}
    outputs = jax.vmap(lambda params: target.model.apply(params, batch.inputs))(drawn)
    assert bool(jnp.all(jnp.isfinite(outputs)))
    assert fit.diagnostics["members/loss"].shape == (2, 1)
    # Statistics are those of the mean network: one forward pass over all data gives the same mean.
    known = tree.take(fit.posterior.components.params, 0)
    hidden = batch.inputs @ known["params"]["hidden"]["kernel"] + known["params"]["hidden"]["bias"]
    np.testing.assert_allclose(known["batch_stats"]["norm"]["mean"], hidden.mean(0), atol=0.25)


def test_statistics_of_streamed_inputs_are_those_of_arrays():
    _, batch = small_network()
    inputs = np.asarray(batch.inputs)
    streamed = batch._replace(inputs=data.Streamed(lambda indices: inputs[indices], inputs.shape))
    method = inference.swag(rank=2, epochs=2, pretrain_epochs=0, batch_size=10)
    model = models.from_module(Normalised(), (5,))
    fits = [method(KEY, density.target(model, each)).posterior for each in (batch, streamed)]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), *fits)


@pytest.mark.parametrize(
    "factory", [inference.laplace, functools.partial(inference.sgmcmc, num_samples=2, step_size=1e-3)]
)
def test_methods_that_need_arrays_refuse_streamed_inputs_before_any_training(factory):
    model, batch = small_network()
    inputs = np.asarray(batch.inputs)
    target = density.target(model, batch._replace(inputs=data.Streamed(lambda i: inputs[i], inputs.shape)))

    def members(key, target):
        raise AssertionError("trained before it was refused")

    for method in (factory(), inference.multimode(factory(), members=members)):
        with pytest.raises(ValueError, match="needs its inputs in memory, but they are streamed from disk"):
            method(KEY, target)


def test_divergence_is_said():
    with pytest.warns(RuntimeWarning, match="swag: 1 of 1 members"):
        inference.swag(rank=2, epochs=3, batch_size=20, optimizer=optax.sgd(1e20), pretrain_epochs=0)(
            KEY, conjugate().target
        )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 1}, "rank must be a whole number of at least 2"),
        ({"rank": 50, "epochs": 40}, "rank must be at most epochs"),
        ({"pretrain_epochs": -1}, "pretrain_epochs"),
        ({"batch_size": 30}, "only 20 data points"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        inference.swag(**settings)(KEY, conjugate().target)


def test_a_temperature_is_refused():
    target = conjugate(temperature=0.5).target
    with pytest.raises(ValueError, match="swag takes a target with temperature 1 only"):
        inference.swag(batch_size=10)(KEY, target)
