"""Alignment: planted permutations, brute force, monotone objectives, cycles; one contract for all methods."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import symmetry, tree
from tests.networks import mlp_apply, mlp_params, mlp_spec, noisy_copies

SIZES = (20, 12, 10, 5)
INPUTS = jax.random.normal(jax.random.key(100), (64, SIZES[0]))
BASE = mlp_params(SIZES, jax.random.key(0))
SPEC = mlp_spec(SIZES, BASE)
SAMPLES, PLANTED = noisy_copies(SPEC, BASE, jax.random.key(1), 6)


def hooked(params, inputs):
    first = jax.nn.relu(inputs @ params["hidden0"]["kernel"] + params["hidden0"]["bias"])
    second = jax.nn.relu(first @ params["hidden1"]["kernel"] + params["hidden1"]["bias"])
    return {"h0": first, "h1": second}


ACTIVATIONS = {"method": "activations", "apply": mlp_apply, "inputs": INPUTS}
METHODS = {
    "weights": {},
    "restarts": {"restarts": 3},
    "on device": {"solver": "optax"},
    "correlation": ACTIVATIONS,
    "inner product": ACTIVATIONS | {"similarity": "inner_product"},
    "contributions": ACTIVATIONS | {"similarity": "contributions"},
    "hook": {"method": "activations", "activations": hooked, "inputs": INPUTS},
    "Frank-Wolfe": {"method": "frank_wolfe"},
    "precision": {"precision_weighted": True},
    "chain": {"warm_start": "chain", "num_chains": 2},
}
COMMON = {
    "mean": {"reference": "mean"},
    "medoid": {"reference": "medoid"},
    "first": {},
    "universe": {"method": "frank_wolfe", "reference": "mean"},
    "mean contributions": ACTIVATIONS | {"similarity": "contributions", "reference": "mean"},
    "mean activations": ACTIVATIONS | {"reference": "mean"},
}


def assert_close(a, b, *, rtol=1e-5, atol=1e-5):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=atol), a, b)


def assert_sound(result):
    """Predictions unchanged; the elements are what was applied; the objective never falls."""
    predict = jax.jit(jax.vmap(mlp_apply, in_axes=(0, None)))
    assert_close(predict(result.samples, INPUTS), predict(SAMPLES, INPUTS))
    act = jax.jit(jax.vmap(lambda g, p: symmetry.act(SPEC, g, p)))
    assert_close(act(result.elements, SAMPLES), result.samples, rtol=0, atol=0)
    total = result.objective.sum(axis=1)
    assert np.all(np.diff(total) >= -1e-6 * np.abs(total[:-1]))
    assert result.converged.shape == (6,)


@pytest.mark.parametrize("name", METHODS)
def test_planted_permutations_are_undone(name):
    """30 % noise on every weight."""
    result = symmetry.align(SPEC, SAMPLES, reference=BASE, **METHODS[name])
    expected = jax.vmap(lambda g: symmetry.inverse(SPEC, g))(PLANTED).permutations
    jax.tree.map(np.testing.assert_array_equal, result.elements.permutations, expected)
    assert_sound(result)
    assert result.converged.all()
    assert np.all(np.diff(result.objective, axis=0) >= -1e-6 * np.abs(result.objective[:-1]))


@pytest.mark.parametrize("name", COMMON)
def test_planted_permutations_are_undone_up_to_a_common_one(name):
    result = symmetry.align(SPEC, SAMPLES, **COMMON[name])
    left = jax.vmap(lambda g, h: symmetry.compose(SPEC, g, h))(result.elements, PLANTED).permutations
    jax.tree.map(lambda p: np.testing.assert_array_equal(p, np.broadcast_to(p[0], p.shape)), left)
    assert_sound(result)


def test_mean_reference_is_the_mean_of_the_aligned_samples():
    result = symmetry.align(SPEC, SAMPLES, reference="mean")
    assert_close(result.reference, jax.tree.map(lambda leaf: leaf.mean(axis=0), result.samples))


def test_medoid_is_the_sample_nearest_the_others():
    result = symmetry.align(SPEC, SAMPLES, reference="medoid")
    flat = np.concatenate(
        [np.asarray(leaf).reshape(6, -1) for leaf in jax.tree.leaves(result.samples)], axis=1
    )
    distances = ((flat[:, None] - flat[None]) ** 2).sum(axis=(1, 2))
    reference = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(result.reference)])
    np.testing.assert_allclose(flat[np.argmin(distances)], reference)


def test_universe_permutations_compose_to_the_identity_around_a_cycle():
    elements = symmetry.align(SPEC, SAMPLES, method="frank_wolfe", reference="mean").elements
    g = [jax.tree.map(lambda leaf, i=i: leaf[i], elements) for i in range(3)]

    def between(a, b):
        return symmetry.compose(SPEC, symmetry.inverse(SPEC, g[b]), g[a])

    around = symmetry.compose(SPEC, between(2, 0), symmetry.compose(SPEC, between(1, 2), between(0, 1)))
    jax.tree.map(np.testing.assert_array_equal, around.permutations, symmetry.identity(SPEC).permutations)


@pytest.mark.slow
def test_chain_starts_keep_labels_of_neighbouring_draws():
    """Draws of a slow random walk: every draw gets the planted permutation of its chain."""
    steps = jax.tree.map(
        lambda leaf: 0.02 * jax.random.normal(jax.random.key(leaf.size), (40, *leaf.shape)), BASE
    )
    walk = jax.tree.map(lambda leaf, step: leaf + jnp.cumsum(step, axis=0), BASE, steps)
    result = symmetry.align(SPEC, walk, reference=BASE, warm_start="chain")
    for permutation in result.elements.permutations.values():
        np.testing.assert_array_equal(
            permutation, np.broadcast_to(np.arange(permutation.shape[-1]), permutation.shape)
        )
    with pytest.raises(ValueError, match="num_chains must divide the number of samples, 40; got 3"):
        symmetry.align(SPEC, walk, reference=BASE, warm_start="chain", num_chains=3)


@pytest.mark.slow
def test_gaussians_are_aligned_by_means_and_standard_deviations():
    """Equal means: only the standard deviations tell the units apart."""
    means = jax.tree.map(lambda leaf: jnp.zeros((3, *leaf.shape)), BASE)
    std = jax.tree.map(jnp.abs, BASE)
    stds, planted = noisy_copies(SPEC, std, jax.random.key(2), 3, noise=0.1)
    zero = jax.tree.map(jnp.zeros_like, BASE)
    result = symmetry.align_gaussians(SPEC, means, stds, reference=(zero, std))
    expected = jax.vmap(lambda g: symmetry.inverse(SPEC, g))(planted).permutations
    jax.tree.map(np.testing.assert_array_equal, result.elements.permutations, expected)
    assert result.samples[1]["out"]["kernel"].shape == stds["out"]["kernel"].shape


def test_one_sample_works():
    result = symmetry.align(SPEC, tree.take(SAMPLES, slice(1)), reference=BASE)
    assert result.converged.shape == (1,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reference": {"out": BASE["out"]}}, "the reference does not fit the spec: .*missing leaves"),
        ({"reference": 6}, "must be the index of one of the 6 samples; got 6"),
        ({"reference": "median"}, "unknown reference 'median'; did you mean 'mean' or 'medoid'"),
        ({"method": "weight"}, "unknown alignment method 'weight'; did you mean 'weights'"),
        ({"method": "activations"}, "needs inputs= and one of apply= and activations="),
        (ACTIVATIONS | {"similarity": "cosine"}, "unknown similarity 'cosine'"),
        ({"similarity": "inner_product"}, "it has no effect with method 'weights'"),
        ({"num_chains": 2}, "num_chains has no effect without warm_start='chain'"),
        ({"warm_start": "draws"}, "unknown warm start 'draws'"),
        ({"solver": "cupy"}, "unknown assignment solver 'cupy'"),
        ({"restarts": -1}, "restarts must be at least 0; got -1"),
        ({"samples": tree.take(SAMPLES, slice(0))}, "at least one sample"),
        ({"samples": SAMPLES | {"out": {"kernel": jnp.ones((6, 3))}}}, "missing leaves .*'out/bias'"),
        (
            {"samples": jax.tree.map(lambda leaf: leaf * jnp.nan, SAMPLES)},
            "'hidden0/bias' has values that are not",
        ),
        (
            {"method": "activations", "inputs": INPUTS, "activations": lambda params, inputs: {"h0": inputs}},
            r"returned \['h0'\] and not \['h1'\]",
        ),
        (
            ACTIVATIONS | {"similarity": "contributions", "precision_weighted": True},
            "cannot be weighted by precision",
        ),
    ],
)
def test_bad_input_is_named(change, message):
    change = dict(change)
    with pytest.raises(ValueError, match=message):
        symmetry.align(SPEC, change.pop("samples", SAMPLES), **change)


def test_a_layer_of_one_unit_is_turned_the_right_way_round():
    params = {"in": jnp.ones((3, 1)), "out": jnp.ones((1, 2))}
    spec = symmetry.from_axes(
        {"in": (None, "h"), "out": ("h", None)}, params, signs={"in": (None, "±"), "out": ("±", None)}
    )
    turned = jax.tree.map(lambda leaf: jnp.stack([leaf, -leaf]), params)
    jax.tree.map(lambda leaf: np.testing.assert_array_equal(leaf, 1.0), symmetry.align(spec, turned).samples)


@pytest.mark.parametrize("reference", ["mean", "medoid", None])
def test_gaussians_have_no_reference_of_their_own_making(reference):
    means = jax.tree.map(lambda leaf: leaf[None], BASE)
    with pytest.raises(ValueError, match=r"a pair \(mean, std\) of networks, or the index of one"):
        symmetry.align_gaussians(SPEC, means, means, reference=reference)


def test_gaussians_are_aligned_to_what_is_finite():
    means = jax.tree.map(lambda leaf: leaf[None], BASE)
    broken = jax.tree.map(lambda leaf: leaf * jnp.nan, BASE)
    with pytest.raises(ValueError, match="of the reference"):
        symmetry.align_gaussians(SPEC, means, means, reference=(BASE, broken))
    with pytest.raises(ValueError, match="max_sweeps must be at least 1; got 0"):
        symmetry.align_gaussians(SPEC, means, means, max_sweeps=0)
