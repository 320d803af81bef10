"""`from_arviz` undoes `to_arviz`, bit for bit, and reads what others wrote."""

import json
import sys
import types

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from symbnn import inference, interop, io, posteriors
from symbnn.io import arviz_note

CHAINS, DRAWS = 2, 5


def draws(*shape, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=(CHAINS, DRAWS, *shape)), dtype)


TREES = {
    "nested dicts": {"hidden": {"kernel": draws(3, 4), "bias": draws(4)}, "noise": draws()},
    "dots and digits in keys": {"Dense.0": {"0": draws(2)}, "b": {"c.d": {"e": draws(1)}}},
    "slashes in keys": {"a/b": draws(2), "c": draws(3)},
    "list of tuples": [(draws(3, 4), draws(4)), (draws(4, 2), draws(2))],
    "one array": draws(3),
    "half precision and whole numbers": {"a": draws(2, dtype=jnp.float16), "n": draws(2, dtype=jnp.int32)},
}
DIAGNOSTICS = {
    "log_density": np.random.default_rng(0).normal(size=(CHAINS, DRAWS)),
    "acceptance": np.float32([0.1, 0.7]),
    "divergences": np.array([0, 3]),
    "is_divergent": np.eye(CHAINS, DRAWS, dtype=bool),
    "gradient": {"w": np.ones((CHAINS, DRAWS, 3), np.float32), "b": np.zeros((CHAINS, DRAWS))},
    "step_size": jnp.float32([0.1, 1 / 3]),
    "displacement": {"shift": jnp.ones(3), "parts": (1, "two", None)},
    "damaged_chunks": (),
    "seconds": 0.1 + 0.2,
    "verdict": "chain 1: 3 of 5 transitions diverged",
    "worst": np.float64(np.inf),
}


def fit_of(samples, diagnostics=DIAGNOSTICS):
    return inference.Fit(posteriors.Empirical.from_chains(samples), dict(diagnostics))


def assert_same(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)

    def same(a, b):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_array_equal(a, b)

    jax.tree.map(same, found, expected)


def data_tree(data):
    """As ArviZ 1 has it."""
    return xarray.DataTree.from_dict({group: data[group] for group in data.groups()})


@pytest.mark.parametrize("name", TREES)
def test_from_arviz_is_the_inverse(name):
    fit = fit_of(TREES[name])
    assert_same(interop.from_arviz(io.to_arviz(fit)), fit)
    with_dots = io.to_arviz(fit, separator=".")
    assert_same(interop.from_arviz(data_tree(with_dots)), fit)


def test_the_inverse_goes_through_a_file(tmp_path):
    fit = fit_of(TREES["nested dicts"])
    io.to_arviz(fit, separator=".").to_netcdf(str(tmp_path / "draws.nc"))
    back = interop.from_arviz(arviz.from_netcdf(str(tmp_path / "draws.nc")))
    assert_same(back, fit)


def test_statistics_under_their_old_names_come_back_under_them():
    """`acceptance` of every draw is ArviZ's `acceptance_rate`."""
    samples, shape = TREES["nested dicts"], (CHAINS, DRAWS)
    known = {"acceptance": np.ones(shape), "log_density": np.zeros(shape)}
    data = io.to_arviz(posteriors.Empirical.from_chains(samples), diagnostics=known)
    assert set(data.sample_stats.data_vars) == {"acceptance_rate", "lp"}
    assert_same(interop.from_arviz(data).diagnostics, known)


def test_long_entries_and_what_text_cannot_hold_are_left_out():
    long = {
        "loss": np.ones((3, arviz_note.LARGEST)),
        "key": jax.random.key(0),
        "call": print,
        "mixed": [np.ones((CHAINS, DRAWS)), 1],
    }
    data = io.to_arviz(fit_of(TREES["one array"], long))
    assert interop.from_arviz(data).diagnostics.keys() == {"mixed"}
    assert len(data.posterior.attrs[arviz_note.ATTRIBUTE]) < 2000
    network = {f"layer{i}": {"kernel": draws(1), "bias": draws(1)} for i in range(40)}
    assert json.loads(io.to_arviz(fit_of(network)).posterior.attrs["symbnn"])["samples"] is None


def test_of_data_that_was_cut_only_what_is_still_true_comes_back():
    fit = fit_of(TREES["list of tuples"])
    data = io.to_arviz(fit).sel(draw=slice(1, None))
    back = interop.from_arviz(data)
    assert_same(back.posterior.by_chain(), jax.tree.map(lambda leaf: leaf[:, 1:], TREES["list of tuples"]))
    np.testing.assert_array_equal(back.diagnostics["log_density"], fit.diagnostics["log_density"][:, 1:])
    assert not {"acceptance", "divergences", "verdict"} & back.diagnostics.keys()
    del data.posterior["1/1"]
    assert interop.from_arviz(data).posterior.samples.keys() == {"0", "1"}


def foreign():
    random = np.random.default_rng(1)
    return arviz.from_dict(
        posterior={
            "mu": random.normal(size=(4, 10)),
            "nn/Dense_0.kernel": random.normal(size=(4, 10, 2, 3)),
            "nn/Dense_0.bias": random.normal(size=(4, 10, 3)),
        },
        sample_stats={
            "lp": random.normal(size=(4, 10)),
            "diverging": random.uniform(size=(4, 10)) > 0.5,
            "acceptance_rate": random.uniform(size=(4, 10)),
            "n_steps": np.full((4, 10), 7),
            "largest_eigval": random.normal(size=(4, 10)),
        },
    )


def as_tree(data):
    """Trees take no slashes."""
    names = {name: name.replace("/", ".") for name in (*data.posterior.variables, *data.posterior.dims)}
    groups = {"posterior": data.posterior.rename(names), "sample_stats": data.sample_stats}
    return xarray.DataTree.from_dict(groups)


def test_names_of_others_are_nested():
    data = foreign()
    samples = interop.from_arviz(data).posterior.by_chain()
    np.testing.assert_array_equal(samples["nn"]["Dense_0"]["kernel"], data.posterior["nn/Dense_0.kernel"])
    assert samples.keys() == {"mu", "nn"}
    assert interop.from_arviz(as_tree(data)).posterior.samples.keys() == {
        "mu",
        "nn.Dense_0.kernel",
        "nn.Dense_0.bias",
    }


@pytest.mark.parametrize("form", [lambda data: data, as_tree])
def test_data_of_others_gets_our_names(form):
    data = form(foreign())
    fit = interop.from_arviz(data)
    assert fit.posterior.num_chains == 4
    statistics = data["sample_stats"]
    np.testing.assert_array_equal(fit.diagnostics["log_density"], statistics["lp"])
    np.testing.assert_array_equal(fit.diagnostics["divergences"], statistics["diverging"].sum("draw"))
    np.testing.assert_allclose(fit.diagnostics["acceptance"], statistics["acceptance_rate"].mean("draw"))
    np.testing.assert_array_equal(fit.diagnostics["num_gradients"], [70] * 4)
    np.testing.assert_array_equal(fit.diagnostics["largest_eigval"], statistics["largest_eigval"])
    # Double precision is kept, on the host.
    assert fit.posterior.samples["mu"].dtype == np.float64


def test_dimensions_may_come_in_any_order():
    data = foreign()
    turned = arviz.InferenceData(posterior=data.posterior.transpose("draw", ..., "chain"))
    assert_same(interop.from_arviz(turned).posterior, interop.from_arviz(data).posterior)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: "draws.nc", r"got a str without them \(read a file with arviz.from_netcdf first\)"),
        (lambda: foreign().posterior, "got a Dataset without them"),
        (lambda: arviz.from_dict(prior={"a": np.ones((2, 3))}), "with draws in its group 'posterior'"),
        (lambda: {"posterior": {}}, "got a dict without them"),
        (
            lambda: xarray.DataTree.from_dict(
                {"posterior": arviz.extract(foreign(), var_names="mu").to_dataset()}
            ),
            r"variable 'mu' of the posterior has the dimensions \('sample',\); expected chain and draw",
        ),
    ],
)
def test_what_is_no_data_of_chains_is_answered_in_one_line(data, message):
    with pytest.raises(ValueError, match=message) as caught:
        interop.from_arviz(data())
    assert "\n" not in str(caught.value)


def test_arviz_from_version_one_on_gets_names_that_its_trees_take(monkeypatch):
    def from_dict(groups):
        return data_tree(arviz.from_dict(posterior=groups["posterior"], sample_stats=groups["sample_stats"]))

    fit = fit_of(TREES["nested dicts"])
    newer = types.SimpleNamespace(__version__="1.0.0", from_dict=from_dict)
    monkeypatch.setitem(sys.modules, "arviz", newer)
    data = io.to_arviz(fit)
    assert isinstance(data, xarray.DataTree)
    assert set(data["posterior"].data_vars) == {"hidden.kernel", "hidden.bias", "noise"}
    assert_same(interop.from_arviz(data), fit)
