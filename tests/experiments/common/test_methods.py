"""Methods get what the config says."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.scaling_symmetry import CONFIGS, Networks
from experiments.common import methods
from experiments.common.problem import perceptron
from experiments.harness.rundir import open_run
from symbnn import density, models
from tests.experiments.cases import debug_config


def test_chains_start_where_the_config_says(monkeypatch, tmp_path):
    """At prior draws of unit size, or at untrained networks, which are smaller."""
    sizes = {}

    def factory(**settings):
        def method(key, target):
            starts = settings["initial"]
            sizes[starts is None] = settings
            return SimpleNamespace(posterior=SimpleNamespace(samples=starts), diagnostics={})

        return method

    monkeypatch.setattr(methods.inference, "hmc", factory)
    config = debug_config("compact_posterior")
    with open_run("compact_posterior", config, tmp_path) as run:
        methods.sample(perceptron(config), run)
        assert sizes[True]["initial"] is None
        fresh = dataclasses.replace(config.inference, start="initialisation")
        fit = methods.sample(perceptron(dataclasses.replace(config, inference=fresh)), run)
    kernel = fit.posterior.samples["hidden"]["kernel"]
    assert kernel.shape == (fresh.num_chains, 64, 8)
    assert not np.array_equal(kernel[0], kernel[1])


@pytest.mark.parametrize("aimed", [None, 0.65])
def test_the_acceptance_aimed_at_is_that_of_the_config(monkeypatch, tmp_path, aimed):
    given = {}

    def factory(**settings):
        given.update(settings)
        return lambda key, target: None

    monkeypatch.setattr(methods.inference, "hmc", factory)
    config = debug_config("compact_posterior")
    adapting = dataclasses.replace(config.inference, step_size=None, target_acceptance=aimed)
    with open_run("compact_posterior", config, tmp_path) as run:
        methods.sample(perceptron(dataclasses.replace(config, inference=adapting)), run)
    assert given["target_acceptance"] == aimed


def test_an_acceptance_to_aim_at_needs_a_step_size_that_adapts(tmp_path):
    config = debug_config("compact_posterior")
    held = dataclasses.replace(config.inference, step_size=0.01, target_acceptance=0.65)
    with (
        open_run("compact_posterior", config, tmp_path) as run,
        pytest.raises(ValueError, match="target_acceptance applies only when the step size adapts"),
    ):
        methods.sample(perceptron(dataclasses.replace(config, inference=held)), run)


@pytest.mark.parametrize("milestones", [(), (1,), (1, 3)])
def test_the_sum_of_rates_is_that_of_the_steps_that_training_takes(milestones):
    """A linear loss: its gradient is one, so a weight moves by the sum of the rates."""
    batch = density.Batch(jnp.ones((20, 1)), jnp.zeros((20, 1)))
    model = models.wrap(
        lambda params, x: x * params["weight"],
        jax.ShapeDtypeStruct((2, 1), jnp.float32),
        init=lambda key: {"weight": jnp.zeros(1)},
    )
    linear = density.gaussian(1.0)._replace(name="linear", log_prob=lambda outputs, targets: outputs[:, 0])
    target = density.target(model, batch, likelihood=linear)
    settings = Networks(num_epochs=4, batch_size=8, learning_rate=0.1, milestones=milestones)
    fit = methods.ensemble(
        jax.random.key(0),
        target,
        settings,
        num_members=1,
        optimizer="sgd",
        objective="mle",
        **methods.stepped(settings),
    )
    expected = methods.sum_of_rates(target, settings)
    np.testing.assert_allclose(fit.posterior.samples["weight"].item(), expected, rtol=1e-5)
    # Two minibatches of eight in twenty examples.
    rates = [0.1 * 0.5 ** sum(epoch >= end for end in milestones) for epoch in range(4)]
    np.testing.assert_allclose(expected, 2 * sum(rates), rtol=1e-6)


def test_the_published_schedule_leaves_two_thirds_of_the_imbalance():
    """exp(-2 μ Σ η) of 60 epochs of 937 minibatches, the rate halved after 15 and 30."""
    settings = CONFIGS["optunet_mnist_cpu"][1].networks
    total = methods.sum_of_rates(SimpleNamespace(num_data=60_000), settings)
    np.testing.assert_allclose(total, 0.04 * 937 * (15 + 15 / 2 + 30 / 4), rtol=1e-6)
    np.testing.assert_allclose(np.exp(-2 * settings.weight_decay * total), 0.64, atol=0.005)


@pytest.mark.parametrize("milestones", [(2, 2), (3, 1), (0,), (4,)])
def test_milestones_that_are_no_epochs_of_the_training_are_named(milestones):
    with pytest.raises(ValueError, match="must be rising epochs before its last, got "):
        methods.stepped(Networks(num_epochs=4, milestones=milestones))


def test_without_milestones_a_study_keeps_its_own_schedule():
    assert methods.stepped(Networks(), otherwise="cosine") == {"schedule": "cosine"}
