"""Alignment to the mean: brute force over all labellings, planted ones, published methods as the bar."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import symmetry, tree
from symbnn.symmetry.alignment.features import weight_features
from symbnn.symmetry.alignment.leave_one_out import leave_one_out
from symbnn.symmetry.alignment.match import Matching
from symbnn.symmetry.alignment.search import Search, improve, plain_problem
from symbnn.symmetry.alignment.search.problem import Chunk, identity_permutations
from tests.bench import published
from tests.networks import mlp_apply, mlp_params, mlp_spec, noisy_copies


def unrelated(sizes, num, seed=0):
    """Independent networks: nothing is planted, and there are many maxima."""
    params = jax.vmap(lambda key: mlp_params(sizes, key))(jax.random.split(jax.random.key(seed), num))
    return mlp_spec(sizes, tree.take(params, 0)), params


def mean_pair(spec, samples):
    """Mean inner product of two different networks, over what the groups move."""
    axes = published.axes_of(spec)
    nets = [
        {name: array for name, array in net.items() if any(axes[name])}
        for net in published.unstacked(samples)
    ]
    return published.mean_pair_product(nets)


def best_of_all_labellings(spec, samples):
    """The first network keeps its labels; the others try all of theirs."""
    axes, nets = published.axes_of(spec), published.unstacked(samples)
    sizes = published.group_sizes(axes, nets[0])
    orders = [
        dict(zip(sizes, map(np.array, found), strict=True))
        for found in itertools.product(*(itertools.permutations(range(size)) for size in sizes.values()))
    ]
    moving = [name for name in axes if any(axes[name])]
    flat = [
        np.stack(
            [
                np.concatenate([published.moved(axes, one, net)[name].ravel() for name in moving])
                for one in (orders if index else orders[:1])
            ]
        ).astype(np.float64)
        for index, net in enumerate(nets)
    ]
    first, second, third = flat
    value = (first @ second.T)[0][:, None] + (first @ third.T)[0][None] + second @ third.T
    return value.max() / 3


@pytest.mark.slow
def test_three_networks_with_three_units_a_layer_reach_the_best_of_all_labellings():
    """36 labellings of each of two networks; unrelated ones, so that maxima are many."""
    for seed in range(4):
        spec, samples = unrelated((4, 3, 3, 2), 3, seed)
        result = symmetry.align(spec, samples, reference="mean", restarts=20)
        reached, best = mean_pair(spec, result.samples), best_of_all_labellings(spec, samples)
        assert 0.99 * best <= reached <= best + 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("signs", [False, True])
def test_fifty_permuted_copies_are_brought_together(signs):
    sizes = (20, 12, 10, 5)
    base = mlp_params(sizes, jax.random.key(0))
    spec = mlp_spec(sizes, base, signs=signs)
    samples, planted = noisy_copies(spec, base, jax.random.key(1), 50, noise=0.5, flipped=signs)
    result = symmetry.align(spec, samples, reference="mean")
    left = jax.vmap(lambda g, h: symmetry.compose(spec, g, h))(result.elements, planted)
    for part in (left.permutations, left.signs):
        jax.tree.map(lambda p: np.testing.assert_array_equal(p, np.broadcast_to(p[0], p.shape)), part)
    assert result.converged.all()


def test_the_objective_is_the_mean_product_with_the_others_and_never_falls():
    spec, samples = unrelated((10, 8, 8, 4), 7)
    result = symmetry.align(spec, samples, reference="mean")
    total = result.objective.sum(axis=1)
    assert np.all(np.diff(total) >= -1e-6 * np.abs(total[:-1]))
    np.testing.assert_allclose(result.objective[-1].mean(), mean_pair(spec, result.samples), rtol=1e-5)
    for index, value in enumerate(result.objective[-1]):
        others = tree.take(result.samples, np.delete(np.arange(7), index))
        pairs = [
            mean_pair(spec, jax.tree.map(lambda a, b: jnp.stack([a, b]), tree.take(others, i), own))
            for i in range(6)
            for own in [tree.take(result.samples, index)]
        ]
        np.testing.assert_allclose(value, np.mean(pairs), rtol=1e-4)


def test_no_network_can_be_moved_any_further():
    """A fixed point: every group of every network already fits the sum of the others best."""
    spec, samples = unrelated((10, 8, 8, 4), 7)
    aligned = symmetry.align(spec, samples, reference="mean", tolerance=0.0).samples
    features = weight_features(spec, tree.take(samples, 0))
    arrays = features.extract(aligned)
    others = tuple(array.sum(axis=0) - array for array in arrays)
    problem = plain_problem(Chunk(spec, features.leaves, others, arrays))
    still = identity_permutations(problem.spec, 7)
    for group in spec.groups:
        gain = improve(problem, group.name, still, np.arange(7), np.zeros(7))
        assert np.all(gain <= 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "num"), [((12, 8, 8, 4), 5), ((20, 16, 16, 10), 12)])
def test_published_methods_find_nothing_better_on_average(sizes, num):
    """Ten zoos of networks with something in common; never by more than 1 % on a single one."""
    gaps = {"merge many": [], "universe": []}
    for seed in range(5):
        base = mlp_params(sizes, jax.random.key(seed))
        spec = mlp_spec(sizes, base)
        samples, _ = noisy_copies(spec, base, jax.random.key(100 + seed), num, noise=1.5)
        ours = mean_pair(spec, symmetry.align(spec, samples, reference="mean").samples)
        axes, nets = published.axes_of(spec), published.unstacked(samples)
        theirs = {
            "merge many": published.merge_many(axes, nets, np.random.default_rng(seed)),
            "universe": published.universe(axes, nets),
        }
        moving = [name for name in axes if any(axes[name])]
        for name, found in theirs.items():
            value = published.mean_pair_product([{key: net[key] for key in moving} for net in found])
            gaps[name].append(ours / value - 1)
    for found in gaps.values():
        assert np.mean(found) >= 0
        assert np.min(found) >= -0.01


@pytest.mark.slow
def test_few_networks_lead_where_all_would_be_too_many(monkeypatch):
    """Only four are annealed; the rest follow, and all of them are moved after that."""
    sizes = (20, 12, 10, 5)
    base = mlp_params(sizes, jax.random.key(0))
    spec = mlp_spec(sizes, base)
    samples, planted = noisy_copies(spec, base, jax.random.key(1), 12)
    monkeypatch.setattr("symbnn.symmetry.alignment.consensus.ANNEALED_ENTRIES", 1)
    monkeypatch.setattr("symbnn.symmetry.alignment.match.CHUNK_BYTES", 5 * 4 * 420)
    result = symmetry.align(spec, samples, reference="mean")
    left = jax.vmap(lambda g, h: symmetry.compose(spec, g, h))(result.elements, planted).permutations
    jax.tree.map(lambda p: np.testing.assert_array_equal(p, np.broadcast_to(p[0], p.shape)), left)


@pytest.mark.slow
def test_networks_that_trade_labels_go_one_after_the_other(monkeypatch):
    """In one block every network moves to where the others were, which may be a loss for all."""
    spec, samples = unrelated((6, 8, 8, 3), 6, seed=3)
    monkeypatch.setattr("symbnn.symmetry.alignment.leave_one_out.BLOCK_SHARE", 1)
    matching = Matching(spec, weight_features(spec, tree.take(samples, 0)), samples)
    found = leave_one_out(Search(tolerance=0.0), matching, identity_permutations(spec, 6))
    total = found.objective.sum(axis=1)
    assert np.all(np.diff(total) >= -1e-6 * np.abs(total[:-1]))
    assert found.converged.all()


@pytest.mark.parametrize("num", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_one_or_two_networks_keep_their_predictions(num):
    spec, samples = unrelated((6, 5, 4, 3), num)
    inputs = jax.random.normal(jax.random.key(9), (8, 6))
    result = symmetry.align(spec, samples, reference="mean")
    predict = jax.vmap(mlp_apply, in_axes=(0, None))
    np.testing.assert_allclose(predict(result.samples, inputs), predict(samples, inputs), atol=1e-5)
    assert result.objective.shape[1] == num
    assert np.all(np.isfinite(result.objective))


@pytest.mark.slow
def test_equal_networks_and_dead_units_do_no_harm():
    """Weights that are all zero have no spread that a temperature could be measured in."""
    spec, samples = unrelated((6, 5, 4, 3), 4)
    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), samples)
    zero = jax.tree.map(jnp.zeros_like, samples)
    assert symmetry.align(spec, same, reference="mean").converged.all()
    aligned = symmetry.align(spec, zero, reference="mean")
    assert np.all(aligned.objective == 0)
