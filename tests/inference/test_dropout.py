"""Monte Carlo dropout over weights against Flax's dropout layer."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from symbnn import density, inference, models, symmetry, tree
from symbnn.inference.dropout import hidden_units
from symbnn.posteriors import DroppedUnits
from symbnn.symmetry.spec import Factor, Group, Leaf, Segments, SymmetrySpec
from tests.inference.cases import small_network

KEY = jax.random.key(0)
NUM_DRAWS = 8000


def network(dropout: float = 0.0):
    return models.mlp((5,), 3, hidden=(6, 4), dropout=dropout)


@pytest.mark.slow
def test_outputs_have_the_law_of_a_dropout_layer():
    layer, inputs = network(dropout=0.3), small_network()[1].inputs[:2]
    params = layer.init(KEY)
    posterior = DroppedUnits(tree.stack([params]), hidden_units(layer.spec), 0.3)
    ours = np.asarray(
        jax.jit(jax.vmap(lambda p: layer.apply(p, inputs)))(posterior.sample(KEY, NUM_DRAWS)), np.float64
    )
    trained = jax.jit(jax.vmap(lambda key: layer.train(params, inputs, key)[0]))
    theirs = np.asarray(trained(jax.random.split(KEY, NUM_DRAWS)), np.float64)
    error = np.sqrt((ours.var(0) + theirs.var(0)) / NUM_DRAWS)
    assert np.max(np.abs(ours.mean(0) - theirs.mean(0)) / error) < 5
    for row in range(2):
        covariance = np.cov(theirs[:, row].T)
        np.testing.assert_allclose(
            np.cov(ours[:, row].T), covariance, atol=6 * np.sqrt(2 / NUM_DRAWS) * covariance.max()
        )


def test_units_are_read_in_the_layer_above():
    units = hidden_units(network().spec)
    assert [(group.size, [reading.leaf for reading in group.readings]) for group in units] == [
        (6, ["hidden1/kernel"]),
        (4, ["out/kernel"]),
    ]
    assert [group.size for group in hidden_units(network().spec, [units[1].name])] == [4]


def test_channels_behind_a_flatten_and_a_concatenation():
    channels = Factor(2, "c", role="consumes")
    word = (Segments(((Factor(3),), (Factor(4), channels))),)
    spec = SymmetrySpec((Group("c", 2),), (Leaf("dense", (11, 5), (word, (Factor(5),))),))
    (group,) = hidden_units(spec)
    (reading,) = group.readings
    assert (reading.start, reading.outer, reading.inner, reading.stop(2)) == (3, 4, 1, 11)


@pytest.mark.slow
def test_training_with_masks_learns():
    model = network()
    inputs = small_network()[1].inputs
    target = density.target(model, density.Batch(inputs, (inputs[:, 0] > 0).astype(np.int32)))
    fit = inference.dropout(
        rate=0.2, epochs=40, batch_size=12, masks_per_batch=4, optimizer=optax.adam(2e-2)
    )(KEY, target)
    losses = fit.diagnostics["loss"]
    assert jnp.mean(losses[-3:]) < losses[0] - 0.3
    members = inference.ensemble(num_members=2, epochs=1, batch_size=12)
    many = inference.multimode(
        inference.dropout(rate=0.2, epochs=2, batch_size=12, masks_per_batch=4), members=members
    )(KEY, target)
    assert tree.num_samples(many.posterior.samples) == 2
    kernels = np.asarray(many.posterior.sample(KEY, 50)["out"]["kernel"])
    assert 0.05 < np.mean(kernels == 0) < 0.4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate": 1.0}, "rate must be a probability"),
        ({"batch_size": 10, "masks_per_batch": 4}, "masks_per_batch must divide batch_size; got 4 and 10"),
        ({"masks_per_batch": 0}, "masks_per_batch"),
        ({"units": ["hiden"], "batch_size": 10}, "unknown units 'hiden'"),
        ({"batch_size": 40}, "only 37 data points"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    target = density.target(network(), small_network()[1])
    with pytest.raises(ValueError, match=message):
        inference.dropout(**settings)(KEY, target)


def test_a_net_without_hidden_units_cannot_drop_any():
    params = {"kernel": jnp.zeros((2, 2))}
    with pytest.raises(ValueError, match="no hidden units"):
        hidden_units(symmetry.from_axes({}, params))


def test_a_temperature_is_refused():
    target = density.target(network(), small_network()[1], temperature=0.5)
    with pytest.raises(ValueError, match="dropout takes a target with temperature 1 only"):
        inference.dropout(batch_size=10)(KEY, target)
