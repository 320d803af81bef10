"""What ArviZ gets."""

import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import inference, io, posteriors


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


def test_a_fit_or_an_empirical_is_enough():
    samples = {"hidden": {"kernel": jnp.arange(24.0).reshape(2, 3, 4)}, "b": jnp.arange(6.0).reshape(2, 3)}
    lp = np.arange(6.0).reshape(2, 3)
    posterior = posteriors.Empirical.from_chains(samples)
    fit = inference.Fit(posterior, {"log_density": lp, "tree": {"a": np.ones(2), "b": "words"}, "none": None})
    for given in (posterior, fit):
        exported = io.to_arviz(given)
        np.testing.assert_array_equal(exported.posterior["hidden/kernel"], samples["hidden"]["kernel"])
        assert exported.posterior["b"].dims == ("chain", "draw")
    np.testing.assert_array_equal(exported.sample_stats["lp"], lp)
    assert list(exported.sample_stats.data_vars) == ["lp"]
    with pytest.raises(ValueError, match="num_chains is 3, but the Empirical holds 2 chains"):
        io.to_arviz(posterior, 3)


def test_diagnostics_of_other_chains_than_the_samples_are_refused():
    samples, known = {"w": jnp.ones((6, 4))}, {"log_density": np.ones((2, 3))}
    with pytest.raises(
        ValueError, match=r"1 chains of 6 draws, but log_density .* has 2 chains of 3: give the"
    ):
        io.to_arviz(samples, diagnostics=known)
    assert io.to_arviz(samples, 2, known).posterior["w"].shape == (2, 3, 4)


@pytest.mark.parametrize("num_chains", [(), (2,)])
def test_chains_are_not_exported_as_draws(num_chains):
    samples = {"w": jnp.ones((2, 30, 4)), "b": jnp.ones((2, 30))}
    with pytest.raises(ValueError, match=r"posteriors\.Empirical\.from_chains\(samples\)"):
        io.to_arviz(samples, *num_chains)


def test_names_that_a_separator_makes_equal_are_refused():
    samples = {"a.b": jnp.ones(3), "a": {"b": jnp.ones((3, 2))}}
    assert set(io.to_arviz(samples).posterior.data_vars) == {"a.b", "a/b"}
    with pytest.raises(ValueError, match=r"two leaves get the same name; avoid '\.' in the keys"):
        io.to_arviz(samples, separator=".")


def test_a_leaf_called_as_a_dimension_would_be_lost_and_is_refused():
    with pytest.raises(ValueError, match="a leaf is called 'draw', as a dimension of ArviZ's is; rename it"):
        io.to_arviz({"draw": jnp.ones(6), "w": jnp.ones((6, 2))})


def test_random_keys_are_no_numbers():
    with pytest.raises(ValueError, match="leaf 'key' is a random key, and ArviZ holds numbers"):
        io.to_arviz({"key": jax.random.split(jax.random.key(0), 3)})
