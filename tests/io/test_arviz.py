"""What ArviZ gets."""

import sys
import types

import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import io


def test_arviz_sees_chains_draws_and_statistics():
    samples = {"w": jnp.arange(24.0).reshape(6, 4), "b": jnp.arange(6.0)}
    lp = np.arange(6.0).reshape(2, 3)
    exported = io.to_arviz(samples, 2, {"log_density": lp, "step_size": np.ones(2), "seconds": 1.0})
    assert exported.posterior["w"].shape == (2, 3, 4)
    np.testing.assert_array_equal(exported.posterior["b"].values, lp)
    np.testing.assert_array_equal(exported.sample_stats["lp"].values, lp)
    assert list(exported.sample_stats.data_vars) == ["lp"]
    with pytest.raises(ValueError, match="6 samples do not divide into 4 chains"):
        io.to_arviz(samples, 4)


def test_without_arviz_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match="pip install arviz"):
        io.to_arviz({"w": jnp.ones(2)})


def test_arviz_from_version_one_on_takes_groups(monkeypatch):
    newer = types.SimpleNamespace(__version__="1.0.0", from_dict=lambda groups: groups)
    monkeypatch.setitem(sys.modules, "arviz", newer)
    groups = io.to_arviz({"w": jnp.arange(4.0)}, 2, {"log_density": np.zeros((2, 2))})
    assert groups["posterior"]["w"].shape == (2, 2)
    assert list(groups["sample_stats"]) == ["lp"]
