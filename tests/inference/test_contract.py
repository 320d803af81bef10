"""One contract for every method: same key, same result; finite; saves and loads; far better than guessing."""

import dataclasses
import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from symbnn import data, density, inference, io, models, posteriors, tree
from symbnn.inference.chains import driver
from symbnn.inference.chains.settings import Run
from symbnn.types import Samples

KEY = jax.random.key(0)
ADAM = optax.adam(1e-2)
TRAINING = {"batch_size": 50, "optimizer": ADAM}
SAMPLING = {"num_chains": 2, "num_samples": 4, "num_burnin": 2, "step_size": 0.01}
MEMBERS = {"num_members": 2, "epochs": 10, **TRAINING}

METHODS = {
    "ensemble": lambda: inference.ensemble(**MEMBERS),
    "variational": lambda: inference.variational(epochs=20, initial_std=0.02, **TRAINING),
    "swag": lambda: inference.swag(rank=3, epochs=4, pretrain_epochs=10, pretrain_optimizer=ADAM),
    "laplace": lambda: inference.laplace(pretrain_epochs=10, chunk_size=50, **TRAINING),
    "last-layer laplace": lambda: inference.laplace(
        structure="full", leaves="last_layer", pretrain_epochs=10, chunk_size=50, **TRAINING
    ),
    "kronecker laplace": lambda: inference.laplace(
        structure="kronecker", tune=("prior",), pretrain_epochs=10, chunk_size=50, **TRAINING
    ),
    "sgmcmc": lambda: inference.sgmcmc(num_samples=6, step_size=1e-2, num_burnin=1000),
    "dropout": lambda: inference.dropout(epochs=10, **TRAINING),
    "multi-swag": lambda: inference.multimode(
        inference.swag(rank=2, epochs=3, pretrain_epochs=0), members=inference.ensemble(**MEMBERS)
    ),
    "hmc": lambda: inference.hmc(**SAMPLING, num_steps=20, initial=trained()),
    "nuts": lambda: inference.nuts(**SAMPLING, max_doublings=4, initial=trained()),
    "mclmc": lambda: inference.mclmc(num_chains=2, num_samples=5, num_burnin=100, initial=trained()),
}
# Each of these is a minute of compiling; their own tests are fast.
SLOW = {"nuts", "mclmc"}
EVERY_METHOD = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in METHODS]
)


@functools.cache
def digits() -> tuple[data.Dataset, density.Target]:
    loaded = data.load("digits", flatten=True)
    return loaded, density.target(models.mlp((64,), 10, hidden=(16,)), loaded.train)


@functools.cache
def fitted(name: str) -> inference.Fit:
    return METHODS[name]()(KEY, digits()[1])


def trained() -> Samples:
    """Starts for the samplers, whose burn-in would otherwise take most of the time."""
    return fitted("ensemble").posterior.samples


@EVERY_METHOD
def test_it_returns_a_posterior_with_finite_draws(name):
    fit = fitted(name)
    assert isinstance(fit, inference.Fit)
    assert isinstance(fit.posterior, posteriors.Posterior)
    assert isinstance(fit.diagnostics, dict)
    drawn = fit.posterior.sample(KEY, 3)
    template = jax.eval_shape(digits()[1].model.init, KEY)
    assert jax.tree.map(lambda leaf: leaf.shape[1:], drawn) == jax.tree.map(lambda leaf: leaf.shape, template)
    assert tree.num_samples(drawn) == 3
    values = [np.asarray(leaf) for leaf in jax.tree.leaves((drawn, fit.diagnostics))]
    assert all(np.all(np.isfinite(value)) for value in values if np.issubdtype(value.dtype, np.number))


@EVERY_METHOD
def test_same_key_same_result(name):
    again = METHODS[name]()(KEY, digits()[1])
    jax.tree.map(np.testing.assert_array_equal, fitted(name).posterior, again.posterior)


@EVERY_METHOD
def test_it_beats_guessing_by_far(name):
    loaded, target = digits()
    samples = fitted(name).posterior.sample(jax.random.key(1), 10)
    predict = jax.jit(jax.vmap(lambda params: jax.nn.softmax(target.model.apply(params, loaded.test.inputs))))
    accuracy = np.mean(np.argmax(np.mean(predict(samples), axis=0), axis=1) == loaded.test.targets)
    assert accuracy > 0.7, f"{name}: accuracy {accuracy}; guessing gives 0.1"


@EVERY_METHOD
def test_it_saves_and_loads(name, tmp_path):
    posterior = fitted(name).posterior
    io.save_posterior(tmp_path / "posterior.safetensors", posterior, {"method": name})
    loaded, metadata = io.load_posterior(tmp_path / "posterior.safetensors")
    assert metadata == {"method": name}
    assert type(loaded) is type(posterior)
    assert jax.tree.structure(loaded) == jax.tree.structure(posterior)
    jax.tree.map(np.testing.assert_array_equal, loaded.sample(KEY, 2), posterior.sample(KEY, 2))


SAMPLERS = pytest.mark.parametrize("factory", [inference.hmc, inference.nuts, inference.mclmc])


@SAMPLERS
def test_samplers_share_the_settings_of_a_run(factory):
    """Every signature lists them, with the same types and, but for burn-in and thinning, defaults."""
    own, first = (inspect.signature(each).parameters for each in (factory, inference.hmc))
    for field in dataclasses.fields(Run):
        assert own[field.name].annotation == field.type
        if field.name not in ("num_burnin", "thinning"):
            assert own[field.name].default == first[field.name].default
    with pytest.raises(TypeError, match="unexpected keyword argument 'num_sample'"):
        factory(num_sample=3)


@SAMPLERS
def test_every_setting_reaches_the_run(factory, tmp_path, monkeypatch):
    """None may be forgotten, or handed on as another."""
    handed: list[Run] = []

    def run(*arguments, name):
        handed.append(arguments[-1])
        return inference.Fit(None, {})

    monkeypatch.setattr(driver, "run", run)
    given = {
        "num_chains": 2,
        "num_samples": 3,
        "num_burnin": 5,
        "thinning": 7,
        "chunk_size": 11,
        "initial": {"w": np.zeros(2)},
        "placement": inference.Placement(lanes=1),
        "storage": inference.Storage(dtype=jnp.float16),
        "progress": lambda report: None,
        "sink": io.ChunkStore(tmp_path),
    }
    factory(step_size=0.1, **given)(KEY, digits()[1])
    assert {field.name: getattr(handed[0], field.name) for field in dataclasses.fields(Run)} == given
