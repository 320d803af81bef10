"""Translations of weights, against their formula written out index by index."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import symmetry, tree
from symbnn.symmetry.group.translate import random_translation, translate
from tests.symmetry import gpt
from tests.symmetry.cases import draw
from tests.symmetry.discovery.fuzz_elements import translate_by_formula

SHAPES = gpt.shapes(layers=1, width=4, hidden=5, vocabulary=6, positions=3)
TOKENS = np.arange(6).reshape(2, 3)


def fused(p, x):
    """Attention whose queries, keys and values lie in one array, head by head; biases likewise."""
    qkv = (x @ p["qkv"] + p["bias"]).reshape(*x.shape[:2], 2, 3, 2)
    q, k, v = (qkv[:, :, :, number] for number in range(3))
    weights = jax.nn.softmax(jnp.einsum("bqhc,bkhc->bhqk", q, k))
    found = jnp.einsum("bhqk,bkhc->bqhc", weights, v).reshape(*x.shape[:2], 4)
    return jnp.tanh(found @ p["out"] + p["shift"])


FUSED = {"qkv": (4, 12), "bias": (12,), "out": (4, 3), "shift": (3,)}
SEQUENCES = np.float32(np.random.default_rng(5).normal(size=(2, 3, 4)))


@pytest.mark.parametrize(
    ("apply", "shapes", "inputs"),
    [(gpt.apply, SHAPES, TOKENS), (fused, FUSED, SEQUENCES)],
    ids=["gpt", "fused"],
)
def test_translations_follow_their_formula(apply, shapes, inputs):
    params = draw(shapes)
    spec = symmetry.discover(apply, params, inputs)
    assert spec.translations
    for translation in spec.translations:
        leaves = {name: np.float64(leaf) for name, leaf in tree.named_leaves(params).items()}
        expected = translate_by_formula(translation, leaves, np.random.default_rng(3))
        amount = np.random.default_rng(3).normal(size=translation.shape)
        moved = tree.named_leaves(translate(translation, np.float32(amount), params))
        for name, leaf in moved.items():
            np.testing.assert_allclose(leaf, expected[name], rtol=1e-4, atol=1e-5)
            if name not in translation.leaves:
                assert leaf is tree.named_leaves(params)[name]


def test_parts_of_every_block_of_an_axis_move_alone():
    """The key bias of every head is dead, its value bias moves into the output's: two numbers of each six."""
    params = draw(FUSED)
    spec = symmetry.discover(fused, params, SEQUENCES)
    texts = {str(one) for one in spec.translations}
    assert len(texts) == 2
    moved = random_translation(spec, jax.random.key(0), params)
    changed = (moved["bias"] != params["bias"]).reshape(2, 3, 2)
    np.testing.assert_array_equal(changed, np.broadcast_to([[False], [True], [True]], (2, 3, 2)))
    np.testing.assert_allclose(fused(moved, SEQUENCES), fused(params, SEQUENCES), rtol=1e-4, atol=1e-5)


def test_slices_of_a_leaf_move_alone():
    """Layers in one array: the shift of one moves into the bias of that one."""
    shapes = {"kernel": (2, 3, 3), "bias": (2, 3)}

    def apply(p, x):
        for number in range(2):
            x = jax.nn.softmax(x) @ p["kernel"][number] + p["bias"][number]
        return x

    params = draw(shapes)
    spec = symmetry.discover(apply, params, np.ones((4, 3), np.float32))
    texts = {str(one) for one in spec.translations}
    assert "kernel[1] along axis 1; bias[1] makes up for it" in texts
    moved = random_translation(spec, jax.random.key(0), params)
    x = np.float32(np.random.default_rng(0).normal(size=(4, 3)))
    np.testing.assert_allclose(apply(moved, x), apply(params, x), rtol=1e-4, atol=1e-5)
