"""Settling: the same function, no part along any translation, one point for all that differ by them."""

import jax
import numpy as np
import pytest

from symbnn import symmetry
from symbnn.symmetry.group.translate import random_translation
from tests.symmetry import gpt
from tests.symmetry.cases import draw

SHAPES = gpt.shapes(layers=1, width=4, hidden=5, vocabulary=6, positions=3)
TOKENS = np.arange(6).reshape(2, 3)


def test_a_gpt_settles_to_one_point():
    with jax.enable_x64(True):
        params = jax.tree.map(np.float64, draw(SHAPES))
        spec = symmetry.discover(gpt.apply, params, TOKENS)
        settle = jax.jit(lambda params: symmetry.settle(spec, params))
        settled = settle(params)
        apply = jax.jit(gpt.apply)
        np.testing.assert_allclose(apply(settled, TOKENS), apply(params, TOKENS), rtol=1e-9)
        again = settle(settled)
        other = settle(random_translation(spec, jax.random.key(0), params))
        for same in (again, other):
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-9), same, settled)
        settled = jax.tree.map(np.asarray, settled)
    block = settled["block0"]
    for name in ("key", "value"):
        np.testing.assert_allclose(block[name]["bias"], 0, atol=1e-12)
    for name in ("norm1", "norm2"):
        np.testing.assert_allclose(block[name]["bias"], 0, atol=1e-12)
    for kernel in (block["out"]["kernel"], block["down"]["kernel"], settled["tokens"], settled["positions"]):
        np.testing.assert_allclose(kernel.mean(-1), 0, atol=1e-12)
    gain = np.asarray(block["norm2"]["scale"])
    np.testing.assert_allclose((block["up"]["kernel"] / gain[:, None]).sum(0), 0, atol=1e-12)


@pytest.mark.slow
def test_many_networks_settle_at_once_and_others_stay():
    many = jax.tree.map(lambda *leaves: np.stack(leaves), *(draw(SHAPES, seed) for seed in range(2)))
    spec = symmetry.discover(gpt.apply, draw(SHAPES), TOKENS)
    settled = jax.vmap(lambda params: symmetry.settle(spec, params))(many)
    one = symmetry.settle(spec, draw(SHAPES, 1))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[1], b, atol=1e-5), settled, one)
    plain = {"in": np.ones((3, 4), np.float32), "out": np.ones((4, 2), np.float32)}
    spec = symmetry.discover(lambda p, x: x @ p["in"] @ p["out"], plain, np.ones((2, 3)))
    assert spec.translations == ()
    jax.tree.map(np.testing.assert_array_equal, symmetry.settle(spec, plain), plain)


def test_a_gain_of_zero_is_refused_and_breaks_nothing_where_it_cannot_be_seen():
    params = draw(SHAPES)
    params["block0"]["norm2"]["scale"][0] = 0.0
    spec = symmetry.discover(gpt.apply, params, TOKENS)
    with pytest.raises(ValueError, match="leaf 'block0/norm2/scale' is zero somewhere"):
        symmetry.settle(spec, params)
    settled = jax.jit(lambda params: symmetry.settle(spec, params))(params)
    before, after = (gpt.apply(each, TOKENS) for each in (params, settled))
    np.testing.assert_allclose(before, after, atol=1e-4)
