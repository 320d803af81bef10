"""Arrays that hold several layers: their slices are leaves of their own wherever that is true."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import symmetry
from symbnn.symmetry.spec import Slices
from tests.networks import noisy_copies
from tests.symmetry.cases import CASES, draw, inputs, summary

CASE = CASES["indexed_layers"]()
PARAMS = draw(CASE.shapes)
INPUTS = jnp.asarray(inputs((40, 3)))
SPEC = symmetry.discover(CASE.apply, PARAMS, INPUTS)


def read(index):
    """A stream through two layers of one array, read as `index` says."""

    def apply(p, x):
        for number in range(2):
            x = x + jax.nn.relu(x @ index(p["up"], number)) @ index(p["down"], number)
        return x

    return apply


SHAPES = {"up": (2, 3, 4), "down": (2, 4, 3)}
OWN, SHARED = 2 * [(4, (), 1, 0)], [(4, (), 1, 0)]
WAYS = {
    "index": (lambda w, n: w[n], OWN),
    "from the end": (lambda w, n: w[n - 2], OWN),
    "slice": (lambda w, n: w[n : n + 1].squeeze(0), OWN),
    "split": (lambda w, n: jnp.split(w, 2)[n].squeeze(0), OWN),
    "unstacked": (lambda w, n: jnp.unstack(w)[n], OWN),
    "iterated": (lambda w, n: list(w)[n], OWN),
    "computed index": (
        lambda w, n: jax.lax.dynamic_index_in_dim(w, jnp.int32(n) * 1, keepdims=False),
        SHARED,
    ),
    "also as a whole": (lambda w, n: w[n] * w.sum(), [(4, (), 0, 0)]),
    "reversed": (lambda w, n: w[::-1][n], SHARED),
}
SHARING = ("computed index", "also as a whole")


@pytest.mark.parametrize("way", WAYS)
def test_ways_of_reading(way):
    index, expected = WAYS[way]
    apply, params = read(index), draw(SHAPES)
    spec = symmetry.discover(apply, params, INPUTS)
    assert summary(spec) == expected, spec.explain()
    symmetry.verify(spec, apply, params, INPUTS, jax.random.key(0), float64=True).raise_if_broken()
    assert ("share their permutations" in spec.explain()) == (way in SHARING)


def test_groups_are_named_after_the_slice():
    assert [group.name for group in SPEC.groups] == ["in", "kernel[0]", "kernel[1]", "kernel[2]"]
    text = SPEC.explain()
    assert "kernel[0] axis 1 consumes scale -1" in text
    assert "kernel[1] axis 2 produces scale +1" in text
    assert isinstance(SPEC.leaves[2].axes[0][0], Slices)


def test_group_laws_hold():
    g, h = (symmetry.random_element(SPEC, jax.random.key(seed)) for seed in (0, 1))
    params = jax.tree.map(jnp.asarray, PARAMS)
    twice = symmetry.act(SPEC, g, symmetry.act(SPEC, h, params))
    once = symmetry.act(SPEC, symmetry.compose(SPEC, g, h), params)
    back = symmetry.act(SPEC, symmetry.inverse(SPEC, h), symmetry.act(SPEC, h, params))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), twice, once)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), back, params)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"method": "activations", "apply": CASE.apply, "inputs": INPUTS}])
def test_planted_permutations_are_undone(settings):
    samples, planted = noisy_copies(SPEC, jax.tree.map(jnp.asarray, PARAMS), jax.random.key(1), 4, noise=0.05)
    result = symmetry.align(SPEC, samples, reference=PARAMS, **settings)
    expected = jax.vmap(lambda g: symmetry.inverse(SPEC, g))(planted).permutations
    jax.tree.map(np.testing.assert_array_equal, result.elements.permutations, expected)


@pytest.mark.slow
def test_gauges_fix_one_representative():
    params = jax.tree.map(jnp.asarray, PARAMS)
    moved = symmetry.act(SPEC, symmetry.random_element(SPEC, jax.random.key(2)), params)
    expected, found = symmetry.canonicalise(SPEC, params), symmetry.canonicalise(SPEC, moved)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), found, expected)


def fused(p, x):
    """One head of queries and keys, interleaved, over values that are the inputs."""
    h = x @ p["qk"] + p["bias"]
    return jax.nn.softmax(h[:, ::2] @ h[:, 1::2].T) @ jnp.tanh(x @ p["value"]) @ p["out"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["weights", "activations"])
def test_fused_layers_are_aligned(method):
    params = jax.tree.map(jnp.asarray, draw({"qk": (3, 8), "bias": (8,), "value": (3, 5), "out": (5, 2)}))
    spec = symmetry.discover(fused, params, INPUTS)
    settings = {"apply": fused, "inputs": INPUTS} if method == "activations" else {}
    samples, planted = noisy_copies(spec, params, jax.random.key(1), 4, noise=0.01)
    result = symmetry.align(spec, samples, reference=params, method=method, **settings)
    for number in range(4):
        moved = jax.tree.map(lambda leaf, n=number: leaf[n], (samples, result.samples))
        np.testing.assert_allclose(*(fused(one, INPUTS) for one in moved), rtol=1e-3, atol=1e-4)
    value = next(group.name for group in spec.groups if group.size == 5)
    expected = jax.vmap(lambda g: symmetry.inverse(spec, g))(planted).permutations[value]
    np.testing.assert_array_equal(result.elements.permutations[value], expected)


def test_slices_that_rescale_around_different_numbers_stay_together():
    """One array of two variances with different ε: an array has one shift."""

    def apply(p, x):
        for number, epsilon in enumerate((1e-3, 1e-2)):
            x = x @ p["kernel"] * jax.lax.rsqrt(p["variance"][number] + epsilon)
        return x @ p["out"]

    params = draw({"kernel": (3, 3), "variance": (2, 3), "out": (3, 2)})
    spec = symmetry.discover(apply, params, INPUTS, eval_only=True)
    symmetry.verify(spec, apply, params, INPUTS, jax.random.key(0), float64=True).raise_if_broken()


def test_a_wrong_description_of_a_slice_is_blamed():
    index, _ = WAYS["index"]
    params = draw(SHAPES)
    wrong = symmetry.discover(read(index), params, INPUTS)
    apply = read(lambda w, n: w[0] if w.shape == (2, 4, 3) else w[n])
    report = symmetry.verify(wrong, apply, params, INPUTS, jax.random.key(0), float64=True)
    assert not report.ok
    assert report.bad_leaf in ("up", "down")
