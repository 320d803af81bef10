"""The two loops of training: the same batches, the same keys, the same networks."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from symbnn import density, keys, models, tree
from symbnn.density import Batch
from symbnn.inference.training import epochs
from symbnn.inference.training.epochs import (
    Training,
    advance,
    initial_state,
    scan_epochs,
    step_epochs,
    steps_on_host,
)
from symbnn.inference.training.recipe import Recipe
from symbnn.inference.training.train import NetworkLoss, problem_of
from symbnn.models.base import split_statistics

KEY = jax.random.key(0)
RECIPE = Recipe(3, 8, optax.adam(optax.cosine_decay_schedule(0.01, 6)))


class Convolved(nn.Module):
    """A small net with a convolution, batch statistics and dropout, so that every input of a step counts."""

    @nn.compact
    def __call__(self, x, train=False):
        # Without a bias: under the norm it has no gradient, and Adam would follow its rounding errors.
        x = nn.Conv(2, (3, 3), use_bias=False, name="conv")(x)
        x = nn.relu(nn.BatchNorm(use_running_average=not train, name="norm")(x))
        x = nn.Dropout(0.3, deterministic=not train)(x.reshape(len(x), -1))
        return nn.Dense(3, name="out")(x)


def problem(model):
    inputs = jax.random.normal(KEY, (20, *model.input_shape))
    target = density.target(model, Batch(inputs, jnp.arange(20) % 3))
    loss = NetworkLoss(problem_of(target), with_prior=True)
    starts = tree.stack([model.init(jax.random.key(seed)) for seed in range(2)])
    return loss, target.data, split_statistics(starts)


@pytest.fixture(scope="module")
def convolved():
    return problem(models.from_module(Convolved(), (5, 5, 1)))


def training(loss, data):
    return Training(loss, RECIPE, keys.indexed(KEY, 0, 2), data)


def follow(loop, convolved, chunks=(3,)):
    loss, data, starts = convolved
    state, losses, first = initial_state(RECIPE, *starts), [], 0
    for size in chunks:
        state, values = loop(training(loss, data), size, state, first)
        losses.append(values)
        first += size
    return state, jnp.concatenate(losses, axis=1)


def test_both_loops_train_the_same_networks(convolved):
    scanned, stepped = follow(scan_epochs, convolved), follow(step_epochs, convolved)
    assert scanned[1].shape == (2, 3)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), scanned, stepped)
    start = convolved[2][0]["conv"]["kernel"]
    assert np.max(np.abs(stepped[0].weights["conv"]["kernel"] - start)) > 0.01


def test_a_short_epoch_is_the_start_of_a_shuffle_of_all_data():
    """Both loops; with every example in one epoch or another, though each epoch has one step."""
    loss, data, starts = problem(models.mlp((5,), 3, hidden=(4,)))
    short = Recipe(3, 8, optax.sgd(0.1), steps_per_epoch=1)
    assert (short.num_steps(20), RECIPE.num_steps(20), Recipe(1, 8, steps_per_epoch=5).num_steps(20)) == (
        1,
        2,
        2,
    )
    drawn = np.concatenate([np.ravel(epochs._shuffle(short, 20, KEY, epoch)[0]) for epoch in range(20)])
    assert drawn.shape == (20 * 8,)
    assert set(drawn) == set(range(20))
    found = [
        loop(Training(loss, short, keys.indexed(KEY, 0, 2), data), 3, initial_state(short, *starts), 0)
        for loop in (scan_epochs, step_epochs)
    ]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), *found)
    one_pass = loop_of_steps(loss, short, starts, data)
    np.testing.assert_allclose(found[0][0].weights["out"]["bias"][0], one_pass["out"]["bias"], rtol=1e-4)
    with pytest.raises(ValueError, match="steps_per_epoch must be a whole number of at least 1; got 0"):
        Recipe(1, 8, steps_per_epoch=0)


def loop_of_steps(loss, recipe, starts, data):
    """Three gradient steps of the first member, written out."""
    weights = tree.take(starts[0], 0)
    for epoch in range(3):
        batches, step_keys = epochs._shuffle(recipe, 20, keys.indexed(KEY, 0, 2)[0], epoch)
        batch = Batch(data.inputs[batches[0]], data.targets[batches[0]])
        gradient = jax.grad(lambda some, now=batch, key=step_keys[0]: loss(some, {}, now, key)[0])(weights)
        weights = jax.tree.map(lambda weight, slope: weight - 0.1 * slope, weights, gradient)
    return weights


def test_chunks_of_epochs_change_nothing_and_compile_one_step(convolved):
    whole = follow(step_epochs, convolved)
    compiled = epochs._one_step_on_cpu._cache_size()
    jax.tree.map(np.testing.assert_array_equal, follow(step_epochs, convolved, (1, 2)), whole)
    assert epochs._one_step_on_cpu._cache_size() == compiled


def test_convolutions_step_on_the_host_and_dense_layers_are_scanned(convolved, monkeypatch):
    called = []

    def recorded(name):
        def loop(training, num_epochs, state, first_epoch):
            called.append(name)
            return state, jnp.zeros((2, num_epochs))

        return loop

    for name in ("scan_epochs", "step_epochs"):
        monkeypatch.setattr(epochs, name, recorded(name))
    dense = problem(models.mlp((5,), 3, hidden=(4,)))
    for loss, data, starts in (convolved, dense):
        advance(training(loss, data), 1, initial_state(RECIPE, *starts), 0)
    assert called == ["step_epochs", "scan_epochs"]


def test_a_convolution_is_found_inside_other_programs_and_looked_for_once(convolved):
    loss, data, starts = convolved
    traced = []

    def nested(weights, statistics, batch, key):
        traced.append(None)
        return jax.jit(jax.checkpoint(loss))(weights, statistics, batch, key)

    state = initial_state(RECIPE, *starts)
    for _ in range(2):
        assert steps_on_host(training(nested, data), state)
    assert len(traced) == 1


def test_accelerators_scan(convolved, monkeypatch):
    loss, data, starts = convolved
    monkeypatch.setattr(epochs.jax, "default_backend", lambda: "gpu")
    assert not steps_on_host(training(loss, data), initial_state(RECIPE, *starts))


def test_members_of_a_long_training_use_all_devices_and_are_the_same_networks(monkeypatch):
    """Up to rounding, also where rows are padded: five members on three devices are six rows."""
    loss, data, _ = problem(models.mlp((5,), 3, hidden=(4,)))
    starts = split_statistics(jax.vmap(loss.problem.model.init)(jax.random.split(KEY, 5)))
    # Plain gradient steps: Adam would divide a rounding error by another.
    recipe, used, place = Recipe(3, 8, optax.sgd(0.1)), [], epochs._place

    def recorded(mesh, arrays, spec):
        used.append(mesh.size)
        return place(mesh, arrays, spec)

    def train(num_devices):
        monkeypatch.setattr(epochs.jax, "local_devices", lambda: jax.devices()[:num_devices])
        told = Training(loss, recipe, keys.indexed(KEY, 0, 5), data)
        return scan_epochs(told, 3, initial_state(recipe, *starts), 0)

    monkeypatch.setattr(epochs, "_place", recorded)
    short = train(8)
    assert short[1].shape == (5, 3)
    assert not used
    monkeypatch.setattr(epochs, "LONG_WORK", 0)
    for num_devices in (1, 3, 8):
        found = train(num_devices)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, short)
        assert all(len(leaf.devices()) == 1 for leaf in jax.tree.leaves(found))
    # One member at a time on a single CPU too; of eight devices five are used, as there are no more members.
    assert used == [1, 1, 3, 3, 5, 5]


DEVICES = """
import jax, numpy as np, sys
sys.path.insert(0, sys.argv[1])
from tests.inference.training.test_epochs import Convolved, follow, problem
from symbnn import models
from symbnn.inference.training.epochs import step_epochs
state, losses = follow(step_epochs, problem(models.from_module(Convolved(), (5, 5, 1))))
spread = {len(leaf.devices()) for leaf in jax.tree.leaves(state)}
np.savez(sys.argv[2], losses, *jax.tree.leaves(state.weights), devices=len(jax.devices()), spread=max(spread))
"""


@pytest.mark.parametrize("num_devices", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_members_or_examples_spread_over_devices_train_the_same(convolved, tmp_path, num_devices):
    # Two members lie on two devices; on four devices, the eight examples of a batch do.
    environment = {**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={num_devices}"}
    command = [sys.executable, "-c", DEVICES, str(Path(__file__).parents[3]), str(tmp_path / "trained.npz")]
    subprocess.run(command, check=True, env=environment)
    found = dict(np.load(tmp_path / "trained.npz"))
    assert (found.pop("devices"), found.pop("spread")) == (num_devices, 1)
    state, losses = follow(step_epochs, convolved)
    for expected, got in zip([losses, *jax.tree.leaves(state.weights)], found.values(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-5)
