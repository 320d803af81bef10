"""Shared weights as a posterior, their objective and training, their file."""

import dataclasses
import os

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from symbnn import density, evaluate, io, models, sharing, tree
from symbnn.inference.recipe import Recipe
from symbnn.posteriors import Posterior
from symbnn.sharing import Layout, Objective, SharedWeights
from symbnn.sharing.ellipses import Ellipses
from symbnn.sharing.layout import layout_of, remainder
from symbnn.sharing.objective import member_counts, plane_kl
from symbnn.sharing.refine import Refined
from symbnn.sharing.stochastic import SCALE_MAPS, gaussian_kl
from symbnn.sharing.training import rebuild, trainable

MODEL = models.mlp((4,), 3, hidden=(5,))
NUM_DRAWS = 20_000
# Weights 0 to 29 have components 0, 1, 2 in turn; two are outliers, two ellipse weights.
OUTLIERS, ELLIPSES = [3, 17], [8, 25]


def make(**changes) -> SharedWeights:
    params = MODEL.init(jax.random.key(0))
    layout = layout_of(params)
    num = layout.num_weights
    shared = SharedWeights(
        means=jnp.array([[-0.2, 0.03], [0.0, 0.05], [0.3, 0.04]]),
        factors=jnp.array([[0.02, 0.005, 0.01], [0.03, 0.0, 0.02], [0.01, -0.01, 0.01]]),
        labels=jnp.asarray(np.arange(num) % 3, jnp.uint8),
        outlier_indices=jnp.array(OUTLIERS, jnp.uint32),
        outlier_means=jnp.array([0.9, -0.8]),
        outlier_stds=jnp.array([0.1, 0.2]),
        ellipse_indices=jnp.array(ELLIPSES, jnp.uint32),
        ellipse_components=jnp.array([[2, 1], [1, 0]], jnp.uint8),
        ellipse_weights=jnp.array([[0.75, 0.25], [0.5, 0.5]]),
        fixed=remainder(layout, params),
        layout=layout,
    )
    return dataclasses.replace(shared, **changes)


def flat_draws(shared: SharedWeights, num: int = NUM_DRAWS) -> np.ndarray:
    return np.asarray(jax.jit(jax.vmap(shared.draw))(jax.random.split(jax.random.key(1), num)))


def plain_members(shared: SharedWeights, component: int) -> list[int]:
    special = {*OUTLIERS, *ELLIPSES}
    labels = np.asarray(shared.labels)
    return [i for i in np.flatnonzero(labels == component) if i not in special]


# Draws


@pytest.mark.parametrize(
    ("sampling", "noise"),
    [("hierarchical", n) for n in ("component", "sign", "layer", "weight")] + [("first_coord", "component")],
)
def test_mean_and_variance_of_a_weight_follow_the_sampling(sampling, noise):
    shared = make(sampling=sampling, noise=noise)
    draws = flat_draws(shared)
    means, factors = np.asarray(shared.means), np.asarray(shared.factors)
    variances = factors[:, 0] ** 2
    if sampling == "hierarchical":
        variances = variances + (factors[:, 1:] ** 2).sum(1) + means[:, 1] ** 2
    np.testing.assert_allclose(shared.variances(), variances, rtol=1e-6)
    for component in range(3):
        own = draws[:, plain_members(shared, component)]
        error = np.sqrt(variances[component] / NUM_DRAWS)
        np.testing.assert_allclose(own.mean(0), means[component, 0], atol=5 * error)
        # The fourth moment of m + |s| ε is at most a few times that of a Gaussian.
        np.testing.assert_allclose(own.var(0), variances[component], rtol=10 * np.sqrt(2 / NUM_DRAWS))
    np.testing.assert_allclose(draws[:, OUTLIERS].mean(0), [0.9, -0.8], atol=5 * 0.2 / np.sqrt(NUM_DRAWS))
    np.testing.assert_allclose(draws[:, OUTLIERS].std(0), [0.1, 0.2], rtol=0.03)


def test_members_of_a_component_are_one_number_in_a_draw_and_another_in_the_next():
    draws = flat_draws(make(), 4)
    for component in range(3):
        own = draws[:, plain_members(make(), component)]
        assert np.all(own == own[:, :1])
        assert len(np.unique(own[:, 0])) == 4


def test_noise_per_sign_layer_and_weight_tells_members_apart():
    shared = make(factors=jnp.zeros((3, 3)))
    members = plain_members(shared, 0)
    first = [i for i in members if i < shared.layout.sizes[0]]
    by_noise = {
        noise: flat_draws(dataclasses.replace(shared, noise=noise), 1)[0] + 0.2
        for noise in ("sign", "layer", "weight")
    }
    assert len(np.unique(np.abs(by_noise["sign"][members]).round(6))) == 1
    assert len(np.unique(np.sign(by_noise["sign"][members]))) == 2
    assert len(np.unique(by_noise["layer"][first])) == 1
    assert len(np.unique(by_noise["layer"][members])) == 2
    assert len(np.unique(by_noise["weight"][members])) == len(members)


def test_an_ellipse_weight_blends_the_draws_of_its_components():
    shared = make()
    draws = flat_draws(shared, 100)
    values = np.stack([draws[:, plain_members(shared, k)[0]] for k in range(3)], axis=1)
    np.testing.assert_allclose(draws[:, 8], 0.75 * values[:, 2] + 0.25 * values[:, 1], atol=1e-6)
    centred = flat_draws(make(blending="centers"), 100)
    np.testing.assert_allclose(centred[:, 8], 0.75 * 0.3, atol=1e-6)
    picked = flat_draws(make(blending="mixture"))
    values = np.stack([picked[:, plain_members(shared, k)[0]] for k in range(3)], axis=1)
    is_first = picked[:, 8] == values[:, 2]
    assert np.all(is_first | (picked[:, 8] == values[:, 1]))
    assert is_first.mean() == pytest.approx(0.75, abs=5 * np.sqrt(0.75 * 0.25 / NUM_DRAWS))


def test_it_is_a_posterior_like_any_other():
    shared, key = make(), jax.random.key(2)
    assert isinstance(shared, Posterior)
    samples = shared.sample(key, 3)
    assert jax.tree.map(jnp.shape, tree.take(samples, 0)) == jax.tree.map(jnp.shape, MODEL.init(key))
    inputs = jax.random.normal(key, (7, 4))
    probs = evaluate.predict(MODEL.apply, shared, inputs, key=key, num_samples=5)
    np.testing.assert_allclose(probs.sum(1), 1.0, rtol=1e-5)
    with pytest.raises(ValueError, match="shared weights have no density"):
        shared.log_prob(tree.take(samples, 0))


def test_averages_of_probabilities_and_of_logits():
    shared, key = make(), jax.random.key(2)
    inputs = jax.random.normal(key, (7, 4))
    draws = tree.concatenate([shared.sample(jax.random.fold_in(key, i), 1) for i in range(6)])
    logits = jax.vmap(MODEL.apply, in_axes=(0, None))(draws, inputs)
    for average, expected in {
        "probabilities": jax.nn.softmax(logits).mean(0),
        "logits": jax.nn.softmax(logits.mean(0)),
    }.items():
        found = evaluate.predict(MODEL.apply, shared, inputs, key=key, num_samples=6, average=average)
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_mean_network_holds_centres_blends_and_outliers():
    flat = np.asarray(sharing.flatten(make().layout, make().mean()))
    np.testing.assert_allclose(flat[OUTLIERS], [0.9, -0.8])
    np.testing.assert_allclose(flat[ELLIPSES], [0.75 * 0.3, -0.1], rtol=1e-6)
    assert flat[0] == pytest.approx(-0.2)


# Gradients and divergences


def test_the_gradient_of_a_centre_is_the_sum_over_its_members():
    shared = make()
    key = jax.random.key(3)
    slopes = jax.random.normal(jax.random.key(4), (shared.layout.num_weights,))

    def loss(means):
        return jnp.sum(slopes * dataclasses.replace(shared, means=means).draw(key))

    found = np.asarray(jax.grad(loss)(shared.means))[:, 0]
    blends = {8: {2: 0.75, 1: 0.25}, 25: {1: 0.5, 0: 0.5}}
    for component in range(3):
        expected = float(slopes[np.array(plain_members(shared, component))].sum())
        expected += sum(float(slopes[i]) * share.get(component, 0.0) for i, share in blends.items())
        assert found[component] == pytest.approx(expected, rel=1e-5)
        step = jnp.zeros_like(shared.means).at[component, 0].set(1e-2)
        difference = (loss(shared.means + step) - loss(shared.means - step)) / 2e-2
        assert found[component] == pytest.approx(float(difference), rel=1e-3)


def test_closed_divergence_equals_monte_carlo_and_vanishes_between_equals():
    mean, variance, prior_mean, prior_variance = 0.02, 0.03**2, 0.0, 0.1**2
    draws = mean + np.sqrt(variance) * np.random.default_rng(0).normal(size=200_000)

    def log_normal(mean, variance):
        return -0.5 * ((draws - mean) ** 2 / variance + np.log(variance))

    each = log_normal(mean, variance) - log_normal(prior_mean, prior_variance)
    error = each.std() / np.sqrt(len(draws))
    found = gaussian_kl(mean, variance, prior_mean, prior_variance)
    assert float(found) == pytest.approx(each.mean(), abs=5 * error)
    assert float(gaussian_kl(mean, variance, mean, variance)) == pytest.approx(0.0, abs=1e-7)


def test_divergence_in_the_plane():
    shared = make()
    np.testing.assert_allclose(
        plane_kl(shared.means, shared.factors, shared.means, shared.factors), 0.0, atol=1e-6
    )
    # Without slant the coordinates are independent and their divergences add.
    factors = shared.factors.at[:, 1].set(0.0)
    prior_means, prior_factors = shared.means + 0.01, 2.0 * factors
    found = plane_kl(shared.means, factors, prior_means, prior_factors)
    parts = [
        gaussian_kl(shared.means[:, i], factors[:, j] ** 2, prior_means[:, i], prior_factors[:, j] ** 2)
        for i, j in ((0, 0), (1, 2))
    ]
    np.testing.assert_allclose(found, parts[0] + parts[1], rtol=1e-4)


def test_multiplicities_differ_by_the_number_of_shared_weights():
    shared = make(
        outlier_indices=jnp.zeros((0,), jnp.uint32), outlier_means=jnp.zeros(0), outlier_stds=jnp.zeros(0)
    )

    def total(multiplicity: str) -> float:
        objective = Objective(multiplicity=multiplicity)
        return float(objective.divergence_of(shared, objective.tables(shared)))

    num = member_counts(shared).sum()
    assert num == shared.layout.num_weights
    assert total("per_weight") == pytest.approx(num * total("paper"), rel=1e-5)
    each = gaussian_kl(shared.means[:, 0], shared.variances(), 0.0, 0.01)
    assert total("per_component") == pytest.approx(float(each.sum()), rel=1e-5)


@pytest.mark.parametrize("divergence", ["marginal", "plane"])
def test_anchored_priors_start_without_divergence(divergence):
    objective = Objective(prior="anchored", divergence=divergence)
    assert float(objective.divergence_of(make(), objective.tables(make()))) == pytest.approx(0.0, abs=1e-5)


def test_pretrained_priors_sit_on_the_deterministic_weights():
    shared = make()
    weights = np.linspace(-1, 1, shared.layout.num_weights)
    tables = Objective(prior="pretrained").tables(shared, weights)
    own = [i for i in range(shared.layout.num_weights) if i % 3 == 0 and i not in OUTLIERS]
    assert float(tables.means[0]) == pytest.approx(weights[own].mean(), abs=1e-6)
    np.testing.assert_allclose(tables.outlier_means, weights[OUTLIERS], rtol=1e-6)
    with pytest.raises(ValueError, match="needs the weights of the deterministic network"):
        Objective(prior="pretrained").tables(shared)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="unknown multiplicity 'per_weigth'; did you mean 'per_weight'"):
        Objective(multiplicity="per_weigth")
    with pytest.raises(ValueError, match="'plane' needs the prior 'anchored'"):
        Objective(divergence="plane")
    with pytest.raises(ValueError, match="unknown noise"):
        make(noise="none")
    with pytest.raises(ValueError, match=r"labels has shape \(3,\); expected \(35,\)"):
        make(labels=jnp.zeros(3, jnp.uint8))
    with pytest.raises(ValueError, match="no leaf is selected"):
        layout_of({"hidden": {"bias": jnp.zeros(3)}})


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


# All stages on a small problem


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


# Size and file


def test_size_by_the_papers_count_and_in_bytes():
    size = sharing.size_of(make())
    assert size.paper_count == 2 + 2 + 2 * 3
    assert size.paper_count_blended == 2 + 2 * 2 + 2 * 3
    fixed = 4 * (5 + 3)
    ellipses = 2 * (4 + 2 * 1 + 4)
    assert size.bytes == 35 + 4 * (2 * 2 + 5 * 3) + ellipses + fixed
    assert size.pair_bytes == 8 * 35 + fixed
    labels = np.arange(35) % 3
    labels[OUTLIERS] = 3
    shares = np.bincount(labels) / 35
    bits = -35 * np.sum(shares * np.log2(shares))
    assert size.entropy_coded_bytes == size.bytes - 35 + int(np.ceil(bits / 8))


def test_the_file_gives_the_same_networks_back(tmp_path):
    path = tmp_path / "shared.safetensors"
    for changes in ({}, {"sampling": "first_coord"}, {"noise": "sign", "blending": "mixture"}):
        shared = make(**changes)
        sharing.save(path, shared, {"note": "kept"})
        again, metadata = sharing.load(path, model=MODEL)
        assert metadata == {"note": "kept"}
        assert again.labels.dtype == np.uint8
        for a, b in zip(
            *(jax.tree.leaves(s.sample(jax.random.key(5), 2)) for s in (shared, again)), strict=True
        ):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("num_components", "label_bytes", "index_bytes"), [(255, 1, 0), (256, 1, 4), (257, 2, 0)]
)
def test_labels_take_the_smallest_type_and_mark_outliers_where_one_is_free(
    tmp_path, num_components, label_bytes, index_bytes
):
    shared = make(
        means=jnp.ones((num_components, 2)),
        factors=jnp.ones((num_components, 3)),
        labels=jnp.full((35,), num_components - 1, jnp.uint16),
    )
    path = tmp_path / "shared.safetensors"
    sharing.save(path, shared)
    stored, _ = io.load_tree(path)
    assert stored["labels"].dtype.itemsize == label_bytes
    assert stored["ellipses"]["components"].dtype.itemsize == label_bytes
    assert ("indices" in stored) == bool(index_bytes)
    again, _ = sharing.load(path)
    np.testing.assert_array_equal(again.outlier_indices, OUTLIERS)
    plain = [i for i in range(35) if i not in OUTLIERS]
    np.testing.assert_array_equal(np.asarray(again.labels)[plain], num_components - 1)


def test_a_file_of_many_weights_is_small(tmp_path):
    model = models.mlp((200,), 3, hidden=(100,))
    params = model.init(jax.random.key(0))
    layout = layout_of(params)
    shared = make(
        labels=jnp.zeros((layout.num_weights,), jnp.uint8), layout=layout, fixed=remainder(layout, params)
    )
    sharing.save(tmp_path / "shared.safetensors", shared)
    # A header of names and checksums, the same for any number of weights.
    assert os.path.getsize(tmp_path / "shared.safetensors") < sharing.size_of(shared).bytes + 4000


def test_it_is_kept_like_any_posterior_too(tmp_path):
    io.save_posterior(tmp_path / "posterior", make())
    again, _ = io.load_posterior(tmp_path / "posterior", classes=(SharedWeights, Layout))
    assert again.layout == make().layout
    for a, b in zip(*(jax.tree.leaves(s.sample(jax.random.key(5), 2)) for s in (make(), again)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_damaged_foreign_and_wrong_files_are_named(tmp_path):
    path = tmp_path / "shared.safetensors"
    sharing.save(path, make())
    with pytest.raises(io.ArtefactError, match=r"leaf 'hidden/bias' of shape \(7,\).*another model"):
        sharing.load(path, model=models.mlp((4,), 3, hidden=(7,)))
    content = path.read_bytes()
    path.write_bytes(content[:-40])
    with pytest.raises(io.ArtefactError, match="damaged"):
        sharing.load(path)
    flipped = bytearray(content)
    flipped[-1] ^= 1
    path.write_bytes(bytes(flipped))
    with pytest.raises(io.ArtefactError, match="sha256"):
        sharing.load(path)
    io.save_tree(path, {"points": np.zeros(3)}, {"stage": "stochastic"})
    with pytest.raises(io.ArtefactError, match="expected a file of shared weights; found another tree"):
        sharing.load(path)
    with pytest.raises(io.ArtefactError, match="expected a file; found nothing"):
        sharing.load(tmp_path / "absent")
