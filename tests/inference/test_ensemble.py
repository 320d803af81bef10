"""Ensembles: each member is the network that plain training gives, whatever is trained beside it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from symbnn import density, inference, io, models, tree
from symbnn.inference.training import epochs
from tests.inference.cases import conjugate, small_network

KEY = jax.random.key(0)


@functools.cache
def small_target() -> density.Target:
    model, batch = small_network()
    return density.target(model, batch)


def assert_close(a, b, rtol=2e-4):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=1e-5), a, b)


FALLING = optax.adam(optax.cosine_decay_schedule(0.1, 2000))


def test_map_of_a_linear_model_is_ridge_regression():
    case = conjugate()
    fit = inference.ensemble(num_members=2, epochs=2000, batch_size=20, optimizer=FALLING)(KEY, case.target)
    kernels = fit.posterior.samples["out"]["kernel"]
    np.testing.assert_allclose(kernels[..., 0], np.tile(case.mean, (2, 1)), atol=2e-3)


def test_mle_of_a_linear_model_is_least_squares():
    case = conjugate()
    method = inference.ensemble(num_members=2, epochs=2000, batch_size=20, optimizer=FALLING, objective="mle")
    inputs, targets = (np.asarray(array, np.float64) for array in case.target.data)
    expected = np.linalg.lstsq(inputs, targets, rcond=None)[0]
    np.testing.assert_allclose(
        method(KEY, case.target).posterior.samples["out"]["kernel"][0], expected, atol=3e-3
    )


STEPS = optax.piecewise_constant_schedule(0.05, {2: 0.5, 4: 0.5})
OPTIMIZERS = {
    "sgd": optax.sgd(0.05),
    "steps": optax.sgd(STEPS),
    "momentum": optax.sgd(optax.cosine_decay_schedule(0.05, 6), momentum=0.8),
    "nesterov": optax.sgd(STEPS, momentum=0.8, nesterov=True),
    "decoupled": optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.05, weight_decay=0.1)),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_training_is_the_plain_loop(optimizer):
    """With the whole data as one minibatch the shuffle does not matter: six epochs are six plain steps."""
    target = small_target()
    start = tree.stack([target.model.init(jax.random.key(5))])
    fit = inference.ensemble(
        num_members=1,
        epochs=6,
        batch_size=target.num_data,
        optimizer=optimizer,
        initial=start,
    )(KEY, target)

    loss = jax.jit(jax.value_and_grad(lambda params: -target.log_density(params) / target.num_data))
    params, losses = tree.take(start, 0), []
    state = optimizer.init(params)
    for _ in range(6):
        value, gradient = loss(params)
        change, state = optimizer.update(gradient, state, params)
        params = optax.apply_updates(params, change)
        losses.append(value)
    assert_close(tree.take(fit.posterior.samples, 0), params)
    np.testing.assert_allclose(fit.diagnostics["loss"][0], losses, rtol=1e-4)


def test_an_optimiser_may_look_at_the_loss():
    """`reduce_on_plateau` that is never content: after the second step nothing moves any more."""
    target = small_target()
    careful = optax.chain(
        optax.sgd(1e-3), optax.contrib.reduce_on_plateau(factor=1e-9, patience=1, rtol=0.0, atol=1e9)
    )
    settings = {"num_members": 1, "batch_size": target.num_data, "optimizer": careful}
    short, long = (inference.ensemble(epochs=num, **settings)(KEY, target) for num in (4, 8))
    np.testing.assert_array_equal(*(fit.posterior.samples["out"]["kernel"] for fit in (short, long)))
    assert np.max(np.abs(short.diagnostics["loss"][0, 0] - short.diagnostics["loss"][0, -1])) > 0


SETTINGS = {"epochs": 3, "batch_size": 8, "optimizer": optax.adam(1e-2)}


def test_members_do_not_depend_on_each_other():
    target = small_target()
    together = inference.ensemble(num_members=4, **SETTINGS)(KEY, target).posterior.samples
    in_blocks = inference.ensemble(num_members=4, members_per_block=2, **SETTINGS)(
        KEY, target
    ).posterior.samples
    fewer = inference.ensemble(num_members=2, **SETTINGS)(KEY, target).posterior.samples
    assert_close(together, in_blocks)
    assert_close(tree.take(together, slice(0, 2)), fewer)
    rows = np.asarray(together["hidden"]["kernel"]).reshape(4, -1)
    assert len(np.unique(rows.round(5), axis=0)) == 4


def test_members_that_start_alike_see_other_shuffles():
    target = small_target()
    start = target.model.init(KEY)
    fit = inference.ensemble(num_members=2, initial=tree.stack([start, start]), **SETTINGS)(KEY, target)
    first, second = fit.posterior.samples["out"]["kernel"]
    assert np.max(np.abs(first - second)) > 1e-4


def test_a_second_fit_compiles_nothing_and_is_the_same():
    target = small_target()
    method = inference.ensemble(num_members=2, **SETTINGS)
    first = method(KEY, target)
    compiled = epochs._scan._cache_size()
    second = method(KEY, target)
    assert epochs._scan._cache_size() == compiled
    jax.tree.map(np.testing.assert_array_equal, first, second)


class Normalised(nn.Module):
    """A net with batch statistics."""

    @nn.compact
    def __call__(self, x, train: bool = False):
        x = nn.Dense(4, name="hidden")(x)
        x = nn.BatchNorm(use_running_average=not train, momentum=0.9, name="norm")(x)
        return nn.Dense(3, name="out")(nn.relu(x))


def test_batch_statistics_are_those_of_the_data():
    _, batch = small_network()
    target = density.target(models.from_module(Normalised(), (5,)), batch)
    fit = inference.ensemble(num_members=2, epochs=60, batch_size=37, optimizer=optax.sgd(1e-3))(KEY, target)
    weights, statistics = fit.posterior.samples["params"], fit.posterior.samples["batch_stats"]
    hidden = (
        np.einsum("ni,mih->mnh", batch.inputs, weights["hidden"]["kernel"])
        + weights["hidden"]["bias"][:, None]
    )
    # Sixty updates with momentum 0.9: what the statistics started from weighs 0.2 per cent.
    np.testing.assert_allclose(statistics["norm"]["mean"], hidden.mean(1), atol=0.02)
    np.testing.assert_allclose(statistics["norm"]["var"], hidden.var(1), rtol=0.05, atol=0.02)
    assert np.all(fit.diagnostics["loss"][:, -1] < fit.diagnostics["loss"][:, 0])


def test_divergence_is_counted_and_said():
    with pytest.warns(RuntimeWarning, match=r"2 of 2 members met a non-finite loss.*smaller learning rate"):
        fit = inference.ensemble(num_members=2, epochs=5, batch_size=20, optimizer=optax.sgd(1e20))(
            KEY, conjugate().target
        )
    assert np.all(np.asarray(fit.diagnostics["num_nonfinite"]) > 0)


def test_a_stopped_run_goes_on_bit_for_bit(tmp_path):
    target = small_target()

    def stop(report):
        if report.done == 4:
            raise KeyboardInterrupt

    def run(directory, progress=None, **changes):
        settings = {"num_members": 2, "epochs": 6, "batch_size": 8, **changes}
        store = io.TrainingStore(directory)
        return inference.ensemble(**settings, progress=progress, checkpoint=store)(KEY, target)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", stop)
    reports = []
    resumed = run(tmp_path / "stopped", reports.append)
    assert [report.done for report in reports] == [5, 6]
    jax.tree.map(np.testing.assert_array_equal, resumed, run(tmp_path / "whole"))
    with pytest.raises(ValueError, match=r"belongs to another run: its optimizer is .*use another directory"):
        run(tmp_path / "stopped", optimizer=optax.adam(0.5))


@pytest.mark.slow
def test_snapshots_are_the_networks_of_shorter_training(tmp_path):
    """Kept on the way, also by a run that was stopped and went on; training itself does not notice."""
    target = small_target()
    settings = {"num_members": 3, "epochs": 6, "batch_size": 8, "members_per_block": 2}

    def stop(report):
        if report.done == 4:
            raise KeyboardInterrupt

    def run(directory, progress=None):
        store = io.TrainingStore(directory)
        method = inference.ensemble(**settings, snapshots=(2, 6), progress=progress, checkpoint=store)
        return method(KEY, target)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, stop)
    fit = run(tmp_path)
    assert_close(fit.posterior.samples, inference.ensemble(**settings)(KEY, target).posterior.samples)
    kept = fit.diagnostics["snapshots"]
    for index, number in enumerate((2, 6)):
        shorter = inference.ensemble(**{**settings, "epochs": number})(KEY, target).posterior.samples
        assert_close(jax.tree.map(lambda leaf, index=index: leaf[:, index], kept), shorter)


def test_progress_reports_every_chunk():
    reports = []
    method = inference.ensemble(num_members=1, epochs=40, batch_size=20, progress=reports.append)
    method(KEY, conjugate().target)
    assert [report.done for report in reports] == list(range(2, 41, 2))
    assert {report.total for report in reports} == {40}
    assert all(np.isfinite(report.statistics["loss"]) for report in reports)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_members": 0}, "num_members must be a whole number of at least 1; got 0"),
        ({"epochs": -1}, "epochs"),
        ({"batch_size": 0}, "batch_size"),
        ({"members_per_block": 0}, "members_per_block"),
        ({"objective": "mpa"}, "unknown objective 'mpa'"),
        ({"snapshots": (5, 3)}, r"snapshots must be rising epochs in \[1, 50\]; got \(5, 3\)"),
        ({"snapshots": (51,)}, "snapshots must be rising"),
    ],
)
def test_wrong_settings_are_refused_at_once(settings, message):
    with pytest.raises(ValueError, match=message):
        inference.ensemble(**({"num_members": 2} | settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 21}, "batch_size is 21, but there are only 20 data points"),
        (
            {"initial": {"out": {"kernel": jnp.zeros((3, 3, 1))}}},
            "initial holds 3 networks; num_members is 2",
        ),
        ({"initial": {"out": {"kernel": jnp.zeros((2, 4, 1))}}}, "leaf 'out/kernel' has shape"),
    ],
)
def test_what_does_not_fit_the_target_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        inference.ensemble(num_members=2, **({"batch_size": 10} | settings))(KEY, conjugate().target)
