"""What `wrap` returns goes wherever a `Model` goes: targets, every method, evaluation, symmetries, stores."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from symbnn import compact, density, evaluate, inference, io, models, posteriors, symmetry, tree
from tests.models.wrapping.networks import INPUTS, KEY, normed_cases, plain_cases

ADAM = optax.adam(1e-2)
SAMPLING = {"num_chains": 2, "num_samples": 2, "num_burnin": 2}
TRAINING = {"batch_size": 10, "optimizer": ADAM}
METHODS = {
    "hmc": lambda **kept: inference.hmc(**{**SAMPLING, **kept}, step_size=0.05, num_steps=3),
    "nuts": lambda: inference.nuts(**SAMPLING, step_size=0.05, max_doublings=3),
    "mclmc": lambda: inference.mclmc(num_chains=2, num_samples=2, num_burnin=20),
    "ensemble": lambda **kept: inference.ensemble(num_members=2, epochs=2, **TRAINING, **kept),
    "variational": lambda: inference.variational(epochs=2, **TRAINING),
    "swag": lambda: inference.swag(rank=2, epochs=2, pretrain_epochs=1, batch_size=10),
    "laplace": lambda: inference.laplace(pretrain_epochs=1, chunk_size=10, **TRAINING),
    "last-layer laplace": lambda: inference.laplace(
        structure="full", leaves="last_layer", pretrain_epochs=1, chunk_size=10, **TRAINING
    ),
    "sgmcmc": lambda: inference.sgmcmc(num_samples=2, step_size=1e-2, num_burnin=4, batch_size=10),
    "dropout": lambda: inference.dropout(epochs=2, masks_per_batch=2, **TRAINING),
}
# One method for every kind; all pairs are minutes of compiling.
FAST = {("linen", "ensemble"), ("nnx", "variational"), ("haiku", "dropout"), ("function", "ensemble")}
EVERY_PAIR = [
    pytest.param(kind, method, marks=() if (kind, method) in FAST else pytest.mark.slow)
    for kind in plain_cases()
    for method in METHODS
]


def kinds(cases, *fast):
    """All of them, those not named among the slow tests."""
    marks = {kind: () if kind in fast else pytest.mark.slow for kind in cases}
    return pytest.mark.parametrize("kind", [pytest.param(kind, marks=marks[kind]) for kind in cases])


def data():
    inputs = np.asarray(jax.random.normal(KEY, (30, 3)))
    return density.Batch(inputs, (inputs[:, 0] > 0).astype(np.int32))


@functools.cache
def wrapped(kind):
    case = plain_cases()[kind]
    return models.wrap(case.network, INPUTS, init=case.init)


@functools.cache
def target(kind):
    return density.target(wrapped(kind), data())


@pytest.mark.parametrize(("kind", "method"), EVERY_PAIR)
def test_every_method_takes_every_kind(kind, method, tmp_path):
    fit = METHODS[method]()(KEY, target(kind))
    assert isinstance(fit.posterior, posteriors.Posterior)
    drawn = fit.posterior.sample(KEY, 3)
    template = jax.eval_shape(wrapped(kind).init, KEY)
    assert jax.tree.map(lambda leaf: leaf.shape[1:], drawn) == jax.tree.map(lambda leaf: leaf.shape, template)
    probs = evaluate.predict(wrapped(kind).apply, drawn, INPUTS)
    np.testing.assert_allclose(probs.sum(-1), np.ones(5), rtol=1e-5)
    io.save_posterior(tmp_path / "kept", fit.posterior)
    kept, _ = io.load_posterior(tmp_path / "kept")
    jax.tree.map(np.testing.assert_array_equal, kept.sample(KEY, 3), drawn)


@kinds(plain_cases(), "equinox")
def test_symmetries_and_compact_posteriors(kind):
    model = wrapped(kind)
    samples = jax.vmap(model.init)(jax.random.split(KEY, 4))
    spec = symmetry.discover(model.apply, tree.take(samples, 0), INPUTS)
    assert spec == model.spec
    assert symmetry.verify(spec, model.apply, tree.take(samples, 0), INPUTS, KEY).ok
    aligned = symmetry.align(spec, samples).samples
    probs = evaluate.predict(model.apply, samples, INPUTS)
    np.testing.assert_allclose(evaluate.predict(model.apply, aligned, INPUTS), probs, rtol=1e-4)
    refined = compact.refine(compact.gaussian(aligned), model, INPUTS, probs, KEY, epochs=1, num_draws=2)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(refined.posterior))


class Stopped(Exception):
    """Raised by a progress callback."""


def stop(report):
    raise Stopped


def chunks(directory):
    return {"sink": io.ChunkStore(directory), "chunk_size": 1, "num_chains": 1}


def steps(directory):
    return {"checkpoint": io.TrainingStore(directory)}


@pytest.mark.parametrize(
    ("kind", "method", "store"),
    [
        ("equinox", "hmc", chunks),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("nnx", "hmc", chunks), ("nnx", "ensemble", steps), ("equinox", "ensemble", steps))
        ),
    ],
)
def test_a_stopped_run_goes_on(kind, method, store, tmp_path):
    with pytest.raises(Stopped):
        METHODS[method](**store(tmp_path / "stopped"), progress=stop)(KEY, target(kind))
    assert list((tmp_path / "stopped").iterdir())
    resumed = METHODS[method](**store(tmp_path / "stopped"))(KEY, target(kind))
    whole = METHODS[method](**store(tmp_path / "whole"))(KEY, target(kind))
    jax.tree.map(np.testing.assert_array_equal, resumed.posterior, whole.posterior)
    other = {"equinox": "nnx", "nnx": "equinox"}[kind]
    with pytest.raises(ValueError, match="another run"):
        METHODS[method](**store(tmp_path / "stopped"))(KEY, target(other))


@kinds(normed_cases(), "equinox")
def test_networks_with_batch_statistics_are_trained_and_aligned(kind):
    network, init = normed_cases()[kind]
    model = models.wrap(network, INPUTS, init=init)
    normed = density.target(model, data())
    with pytest.raises(ValueError, match="BatchNorm have no per-example likelihood"):
        normed.log_density(model.init(KEY))
    samples = METHODS["ensemble"]()(KEY, normed).posterior.samples
    before = tree.named_leaves(jax.vmap(model.init)(jax.random.split(KEY, 2))["batch_stats"])
    after = tree.named_leaves(samples["batch_stats"])
    assert any(not np.array_equal(before[name], after[name]) for name in before), "statistics do not move"
    aligned = symmetry.align(model.spec, samples).samples
    probs = evaluate.predict(model.apply, samples, INPUTS)
    np.testing.assert_allclose(evaluate.predict(model.apply, aligned, INPUTS), probs, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", normed_cases())
def test_swag_of_networks_with_batch_statistics(kind):
    network, init = normed_cases()[kind]
    model = models.wrap(network, INPUTS, init=init)
    posterior = METHODS["swag"]()(KEY, density.target(model, data())).posterior
    probs = evaluate.predict(model.apply, posterior, INPUTS, key=KEY, num_samples=3)
    assert jnp.isfinite(probs).all()


def test_a_trained_network_in_and_a_merged_one_out():
    case, model = plain_cases()["equinox"], wrapped("equinox")
    networks = [case.init(key) for key in jax.random.split(KEY, 2)]
    found = compact.merge(model, [model.params(network) for network in networks])
    merged = model.network(found.params)
    assert type(merged) is type(networks[0])
    assert jax.vmap(merged)(INPUTS).shape == (5, 2)
    one = model.network(tree.take(found.aligned, 1))
    np.testing.assert_allclose(jax.vmap(one)(INPUTS), jax.vmap(networks[1])(INPUTS), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["nnx", "equinox"])
def test_a_kept_posterior_of_a_wrapped_network_comes_back_as_the_network(kind, tmp_path):
    """Without `like` as the model takes it, with the module as its own class."""
    case, model = plain_cases()[kind], wrapped(kind)
    samples = jax.vmap(model.init)(jax.random.split(KEY, 3))
    io.save_posterior(tmp_path / "kept", posteriors.Empirical(samples))
    probs = evaluate.predict(model.apply, samples, INPUTS)
    for like in (None, case.network):
        kept, _ = io.load_posterior(tmp_path / "kept", like)
        np.testing.assert_array_equal(evaluate.predict(model.apply, kept, INPUTS), probs)
    assert type(kept.samples).__name__ == {"nnx": "State", "equinox": "MLP"}[kind]


def test_noise_that_is_learned_goes_along():
    case, model = plain_cases()["equinox"], wrapped("equinox")
    noisy = density.learn_noise(model, 2)
    params = noisy.params(case.network)
    np.testing.assert_array_equal(noisy.apply(params, INPUTS)[:, :2], jax.vmap(case.network)(INPUTS))
    assert type(noisy.network(params)) is type(case.network)
    with pytest.raises(ValueError, match="learn_noise adds a leaf to a dict; the model's tree is a list"):
        density.learn_noise(wrapped("function"), 2)
