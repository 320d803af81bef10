"""Methods get what the config says."""

import dataclasses
from types import SimpleNamespace

import numpy as np

from experiments.common import methods
from experiments.common.problem import perceptron
from experiments.harness.rundir import open_run
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
