"""Training of shared weights, and all stages on a small problem."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from symbnn import density, io, models, sharing, tree
from symbnn.inference.training.recipe import Recipe
from symbnn.sharing import Refined
from symbnn.sharing.ellipses import Ellipses
from symbnn.sharing.stochastic import SCALE_MAPS
from symbnn.sharing.training import rebuild, trainable
from tests.sharing.shared import MODEL, make


@pytest.mark.parametrize("name", SCALE_MAPS)
def test_scale_maps_come_back(name):
    forward, inverse = SCALE_MAPS[name]
    for std in (0.031, 0.1, 0.5):
        assert float(forward(jnp.asarray(inverse(std)))) == pytest.approx(std, rel=1e-4)


def test_trained_numbers_come_back_as_the_posterior():
    shared = make()
    again = rebuild(shared, trainable(shared, 30.0, train_fixed=True), 30.0)
    assert jax.tree.structure(again) == jax.tree.structure(shared)
    for name, leaf in tree.named_leaves(again).items():
        np.testing.assert_allclose(leaf, tree.named_leaves(shared)[name], atol=2e-6, err_msg=name)


def problem(model):
    random = np.random.default_rng(0)
    inputs = random.normal(size=(256, *model.input_shape)).astype(np.float32)
    targets = (inputs.reshape(256, -1)[:, :3] @ np.eye(3)).argmax(1).astype(np.int32)
    return density.target(model, density.Batch(inputs, targets))


class Normalised(nn.Module):
    """A net with running statistics."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        x = nn.BatchNorm(use_running_average=not train, momentum=0.5)(nn.Dense(16)(x))
        return nn.Dense(3)(nn.relu(x))


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [models.from_module(Normalised(), (4,)), models.mlp((4,), 3, hidden=(16,))],
    ids=["statistics", "plain"],
)
def test_all_stages_learn_and_the_noise_shrinks(model):
    key, target = jax.random.key(0), problem(model)
    network, losses = sharing.pretrain(key, target, Recipe(10, 64, optax.adam(1e-2)))
    assert losses[-1] < losses[0]
    stochastic = sharing.train_stochastic(key, target, Recipe(4, 64), initial=network)
    points = stochastic.points()
    gradients = np.asarray(sharing.gradient_magnitudes(key, target, stochastic, num_batches=4, batch_size=64))
    outliers = sharing.find_outliers(points[:, 0], points[:, 1], gradients, magnitude=1.0)
    clusters = sharing.cluster(key, points, outliers, num_components=6, smallest_cluster=2, num_sweeps=3)
    layout = stochastic.layout
    first = sharing.share(
        stochastic.params, layout, points, Refined(clusters.mixture, clusters.labels, _none(), None)
    )
    centre_gradients = sharing.component_gradients(key, target, first, num_batches=3, batch_size=64)
    refined = sharing.refine(points, clusters.mixture, clusters.labels, gradients=centre_gradients)
    shared = sharing.share(stochastic.params, layout, points, refined)
    assert shared.num_outliers == clusters.outliers.mask.sum()
    assert 1 <= shared.num_components <= clusters.mixture.num_components
    trained = sharing.train_shared(key, target, shared, Recipe(8, 64, optax.adam(1e-2)), train_fixed=True)
    assert trained.losses[-1] < trained.losses[0]
    assert float(trained.shared.means[:, 1].mean()) < float(shared.means[:, 1].mean())
    before, after = (tree.named_leaves(each.fixed) for each in (shared, trained.shared))
    changed = {name for name in before if before[name].size and not np.array_equal(before[name], after[name])}
    assert changed == {name for name in before if before[name].size}


def test_a_stopped_training_of_shared_weights_goes_on_bit_for_bit(tmp_path):
    def run(progress=None, checkpoint=None):
        settings = {"train_fixed": True, "progress": progress, "checkpoint": checkpoint}
        return sharing.train_shared(jax.random.key(0), problem(MODEL), make(), Recipe(4, 64), **settings)

    def stop(report):
        if report.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(stop, io.TrainingStore(tmp_path))
    reports = []
    resumed = run(reports.append, io.TrainingStore(tmp_path))
    assert [report.done for report in reports] == [3, 4]
    jax.tree.map(np.testing.assert_array_equal, resumed, run())


def _none() -> Ellipses:
    return Ellipses(np.zeros(0, np.int64), np.zeros((0, 2), np.int32), np.zeros((0, 2), np.float32))


def test_points_of_another_network_are_refused():
    shared = make()
    refined = Refined(None, np.zeros(7, np.int32), _none(), None)
    with pytest.raises(ValueError, match="35 shared weights, but there are 7 points"):
        sharing.share(MODEL.init(jax.random.key(0)), shared.layout, np.zeros((7, 2)), refined)
    with pytest.raises(ValueError, match="initial"):
        sharing.pretrain(
            jax.random.key(0),
            problem(MODEL),
            Recipe(1, 8),
            initial=models.mlp((4,), 3).init(jax.random.key(0)),
        )
