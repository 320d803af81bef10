"""The pieces that the studies of symmetry-aware exploration are made of."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import configs
from configs.scaling_symmetry import Law
from experiments.common import problem as problems
from experiments.harness import rundir
from experiments.model_zoo import study as model_zoo
from experiments.scaling_symmetry import law as scaling_law
from experiments.toy_posterior import study as toy_posterior
from symbnn import density, io, models, symmetry

KEY = jax.random.key(0)


def debug_config(study):
    return configs.STUDIES[study].configs["debug"][1]


def test_the_clouds_of_the_toy_are_balanced_and_apart():
    points = toy_posterior.two_clouds(debug_config("toy_posterior"))
    assert points.inputs.shape == (400, 2)
    assert points.targets.mean() == 0.5
    side = points.inputs.sum(-1)
    assert np.mean((side > 0) == (points.targets[:, 0] > 0)) > 0.99


def test_the_gauge_of_the_toy_orders_units_and_keeps_the_function():
    model = models.mlp((2,), 1, hidden=(2,))
    inputs = jax.random.normal(KEY, (5, 2))
    for seed in range(4):
        params = model.init(jax.random.key(seed))
        moved = toy_posterior.sort_by_outgoing(model.spec, symmetry.normalise(model.spec, params, scale=3.0))
        first, second = np.asarray(moved["out"]["kernel"][:, 0])
        assert first <= second
        lengths = jnp.linalg.norm(moved["hidden"]["kernel"], axis=0)
        np.testing.assert_allclose(lengths, 3.0, rtol=1e-5)
        np.testing.assert_allclose(model.apply(moved, inputs), model.apply(params, inputs), atol=1e-5)


@pytest.mark.slow
def test_imbalance_is_incoming_minus_outgoing():
    model = models.mlp((5,), 2, hidden=(4, 3))
    samples = jax.vmap(model.init)(jax.random.split(KEY, 2))
    first, second, out = (samples[name]["kernel"] for name in ("hidden0", "hidden1", "out"))
    incoming = [(first**2).sum(1) + samples["hidden0"]["bias"] ** 2]
    incoming += [(second**2).sum(1) + samples["hidden1"]["bias"] ** 2]
    outgoing = [(second**2).sum(2), (out**2).sum(2)]
    expected = jnp.concatenate(incoming, axis=1) - jnp.concatenate(outgoing, axis=1)
    found = scaling_law.imbalance(model.spec, samples)
    np.testing.assert_allclose(np.sort(found, axis=1), np.sort(expected, axis=1), rtol=1e-5)
    balanced = jax.vmap(lambda params: symmetry.balance(model.spec, params).params)(samples)
    np.testing.assert_allclose(scaling_law.imbalance(model.spec, balanced), 0.0, atol=1e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_the_imbalance_decays_by_the_law_on_full_batches(optimizer):
    law = Law(learning_rates=(0.005, 0.01), weight_decays=(0.05, 0.1), num_networks=2, num_steps=400)
    model = models.mlp((5,), 3, hidden=(4,))
    batch = density.Batch(jax.random.normal(KEY, (20, 5)), jnp.arange(20) % 3)
    left = scaling_law.sweep(KEY, model, batch, law, optimizer=optimizer, batch_size=20)
    rates, decays = jnp.array(law.learning_rates)[:, None, None], jnp.array(law.weight_decays)[:, None]
    exponent = jnp.log(left) / jnp.log(scaling_law.left_by_law(decays, rates, law.num_steps))
    np.testing.assert_allclose(exponent, 1.0, atol=0.1)


def test_a_normalised_network_has_no_least_mass():
    inputs = jax.random.normal(KEY, (20, 6))
    apply, params, spec = scaling_law.normalised_network(KEY, inputs, hidden=4, num_outputs=3)
    with pytest.raises(ValueError, match="the mass has no minimum"):
        symmetry.balance(spec, params)
    found = scaling_law.orbit(apply, spec, params, jnp.array([1.0, 0.5, 0.25, 0.1]), inputs)
    assert np.all(np.diff(found["mass"]) < 0)
    assert found["change"] < 1e-4


@pytest.fixture(scope="module")
def zoo_run(tmp_path_factory):
    config = debug_config("model_zoo")
    with rundir.open_run("model_zoo", config, tmp_path_factory.mktemp("zoo")) as opened:
        problem, zoo = problems.load(config), io.Zoo(opened.directory / "zoo")
        assert model_zoo.fill(opened, config, problem, zoo) == [0, 1, 2]
        yield opened, config, problem, zoo


@pytest.mark.parametrize("damage", ["flip", "delete"])
def test_only_a_damaged_shard_is_trained_again_to_the_same_weights(zoo_run, capsys, damage):
    opened, config, problem, zoo = zoo_run
    networks, others = zoo.read(1)[0], {index: zoo.path(index).read_bytes() for index in (0, 2)}
    stamps = {index: zoo.path(index).stat().st_mtime_ns for index in (0, 2)}
    content = bytearray(zoo.path(1).read_bytes())
    content[-1] ^= 1
    zoo.path(1).write_bytes(bytes(content))
    if damage == "delete":
        zoo.path(1).unlink()
    capsys.readouterr()
    assert model_zoo.fill(opened, config, problem, zoo) == [1]
    assert "shard 1: " in (out := capsys.readouterr().out)
    assert zoo.path(1).name in out
    jax.tree.map(np.testing.assert_array_equal, zoo.read(1)[0], networks)
    assert {index: zoo.path(index).read_bytes() for index in (0, 2)} == others
    assert {index: zoo.path(index).stat().st_mtime_ns for index in (0, 2)} == stamps
    assert model_zoo.fill(opened, config, problem, zoo) == []


def test_the_zoo_of_another_config_is_refused(zoo_run):
    opened, config, problem, zoo = zoo_run
    other = dataclasses.replace(config, num_networks=16)
    with pytest.raises(io.ArtefactError, match="num_networks was 24 and is now 16"):
        model_zoo.fill(opened, other, problem, zoo)
