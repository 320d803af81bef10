"""Alignment of networks that are odd in their units: signs are matched along with permutations."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import symmetry
from symbnn.symmetry.alignment.features.signs import best_signs
from tests.networks import mlp_apply, mlp_params, mlp_spec, noisy_copies
from tests.symmetry.cases import CASES, draw, inputs

SIZES = (20, 12, 10, 5)
INPUTS = jax.random.normal(jax.random.key(100), (64, SIZES[0]))
BASE = mlp_params(SIZES, jax.random.key(0))
SPEC = mlp_spec(SIZES, BASE, signs=True)


def network(params, x):
    return mlp_apply(params, x, jnp.tanh)


SAMPLES, PLANTED = noisy_copies(SPEC, BASE, jax.random.key(1), 6, flipped=True)


def hooked(params, x):
    first = jnp.tanh(x @ params["hidden0"]["kernel"] + params["hidden0"]["bias"])
    return {"h0": first, "h1": jnp.tanh(first @ params["hidden1"]["kernel"] + params["hidden1"]["bias"])}


ACTIVATIONS = {"method": "activations", "apply": network, "inputs": INPUTS}
METHODS = {
    "weights": {},
    "correlation": ACTIVATIONS,
    "contributions": ACTIVATIONS | {"similarity": "contributions"},
    "hook": {"method": "activations", "activations": hooked, "inputs": INPUTS},
    "Frank-Wolfe": {"method": "frank_wolfe"},
    "precision": {"precision_weighted": True},
    "restarts": {"restarts": 2},
}
SLOW = ("contributions", "hook", "precision", "restarts")
COMMON = {
    "mean": {"reference": "mean"},
    "medoid": {"reference": "medoid"},
    "universe": {"method": "frank_wolfe", "reference": "mean"},
}


def assert_undone(spec, result, planted):
    expected = jax.vmap(lambda g: symmetry.inverse(spec, g))(planted)
    jax.tree.map(np.testing.assert_array_equal, result.elements.permutations, expected.permutations)
    jax.tree.map(np.testing.assert_array_equal, result.elements.signs, expected.signs)


@pytest.mark.slow
def test_chains_keep_the_labels_and_signs_they_started_with():
    """Two chains, each a slow walk in labels and signs of its own: every draw is turned back alike."""
    num_chains, draws = 2, 12
    elements = jax.vmap(lambda key: symmetry.random_element(SPEC, key))(
        jax.random.split(jax.random.key(8), num_chains)
    )._replace(scales=jax.vmap(lambda _: symmetry.identity(SPEC).scales)(jnp.arange(num_chains)))
    leaves, treedef = jax.tree.flatten(BASE)
    walks = [
        leaf
        + jnp.cumsum(
            0.03
            * jnp.std(leaf)
            * jax.random.normal(jax.random.fold_in(jax.random.key(9), i), (num_chains, draws, *leaf.shape)),
            axis=1,
        )
        for i, leaf in enumerate(leaves)
    ]
    moved = jax.vmap(lambda element, chain: jax.vmap(lambda one: symmetry.act(SPEC, element, one))(chain))(
        elements, jax.tree.unflatten(treedef, walks)
    )
    samples = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), moved)
    result = symmetry.align(SPEC, samples, reference=BASE, warm_start="chain", num_chains=num_chains)
    planted = jax.tree.map(lambda leaf: jnp.repeat(leaf, draws, axis=0), elements)
    assert_undone(SPEC, result, planted)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in METHODS]
)
def test_planted_permutations_and_signs_are_undone(name):
    """30 % noise on every weight of a tanh network."""
    result = symmetry.align(SPEC, SAMPLES, reference=BASE, **METHODS[name])
    assert_undone(SPEC, result, PLANTED)
    predict = jax.jit(jax.vmap(network, in_axes=(0, None)))
    np.testing.assert_allclose(predict(result.samples, INPUTS), predict(SAMPLES, INPUTS), atol=1e-5)
    acted = jax.vmap(lambda g, p: symmetry.act(SPEC, g, p))(result.elements, SAMPLES)
    jax.tree.map(np.testing.assert_array_equal, acted, result.samples)
    assert np.all(np.diff(result.objective, axis=0) >= -1e-6 * np.abs(result.objective[:-1]))
    assert result.converged.all()


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMON)
def test_planted_elements_are_undone_up_to_a_common_one(name):
    result = symmetry.align(SPEC, SAMPLES, **COMMON[name])
    left = jax.vmap(lambda g, h: symmetry.compose(SPEC, g, h))(result.elements, PLANTED)
    for kind in (left.permutations, left.signs):
        jax.tree.map(lambda p: np.testing.assert_array_equal(p, np.broadcast_to(p[0], p.shape)), kind)


def test_gaussians_flip_means_and_not_standard_deviations():
    stds = jax.tree.map(lambda leaf: 0.1 + jnp.abs(leaf), SAMPLES)
    std = jax.tree.map(lambda leaf: 0.1 + jnp.abs(leaf), BASE)
    result = symmetry.align_gaussians(SPEC, SAMPLES, stds, reference=(BASE, std))
    assert_undone(SPEC, result, PLANTED)
    assert all(bool(jnp.all(leaf > 0)) for leaf in jax.tree.leaves(result.samples[1]))
    np.testing.assert_allclose(
        jnp.abs(result.samples[0]["out"]["kernel"]) + 0.1, result.samples[1]["out"]["kernel"], rtol=1e-6
    )


# Several generators on one group; a group that one array has twice; units inside blocks.
@pytest.mark.slow
@pytest.mark.parametrize("name", ["residual", "filter_response_norm", "gru", "packed_heads", "mlp_absolute"])
@pytest.mark.parametrize("method", ["weights", "frank_wolfe"])
def test_planted_elements_of_other_networks_are_undone(name, method):
    case = CASES[name]()
    params = jax.tree.map(jnp.asarray, draw(case.shapes))
    # Without matrices, which say the same as labels and signs of the units that they mix.
    spec = symmetry.discover(case.apply, params, inputs(case.input_shape)).permutations_only()
    samples, planted = noisy_copies(spec, params, jax.random.key(2), 4, noise=0.1, flipped=True)
    result = symmetry.align(spec, samples, reference=params, method=method, restarts=4)
    assert_undone(spec, result, planted)


@pytest.mark.parametrize("num_signs", [1, 2, 3])
def test_signs_are_the_best_of_all_patterns(num_signs):
    random = np.random.default_rng(num_signs)
    parities = tuple(itertools.product([0, 1], repeat=num_signs))
    costs = tuple(np.float32(random.normal(size=(2, 4, 4))) for _ in parities)
    best, signs = best_signs(parities, tuple(map(jnp.asarray, costs)))
    patterns = itertools.product([1, -1], repeat=num_signs)
    values = [
        sum(np.prod(np.power(pattern, odd)) * cost for odd, cost in zip(parities, costs, strict=True))
        for pattern in patterns
    ]
    np.testing.assert_allclose(best, np.max(values, axis=0), rtol=1e-5)
    with_signs = sum(
        np.prod([np.asarray(s) ** e for s, e in zip(signs, odd, strict=True)], axis=0) * cost
        for odd, cost in zip(parities, costs, strict=True)
    )
    np.testing.assert_allclose(best, with_signs, rtol=1e-5)


def test_many_generators_that_do_not_mix_are_settled_exactly():
    """Eight generators, one feature odd in each: the best value is the sum of absolute costs."""
    parities = tuple(tuple(row) for row in np.eye(8, dtype=int).tolist())
    costs = tuple(
        jnp.asarray(cost) for cost in np.float32(np.random.default_rng(0).normal(size=(8, 1, 3, 3)))
    )
    best, signs = best_signs(parities, costs)
    np.testing.assert_allclose(best, sum(map(jnp.abs, costs)), rtol=1e-5)
    assert signs.shape == (8, 1, 3, 3)
