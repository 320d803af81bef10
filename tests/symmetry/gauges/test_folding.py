"""Folding of gains: the same function, gains of one, and a stream that rotates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from symbnn import symmetry
from tests.symmetry import gpt
from tests.symmetry.cases import CASES, draw, inputs

STREAM = {"in": (3, 6), "gain": (6,), "up": (6, 5), "down": (5, 6), "last": (6,), "out": (6, 2)}


def rms(gain, x):
    return x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * gain


def rms_stream(p, x):
    x = x @ p["in"]
    x = x + jax.nn.gelu(rms(p["gain"], x) @ p["up"]) @ p["down"]
    return rms(p["last"], x) @ p["out"]


def gemma_stream(p, x):
    """Gains written as one plus a weight."""
    x = x @ p["in"]
    x = x + jax.nn.gelu(rms(1 + p["gain"], x) @ p["up"]) @ p["down"]
    return rms(1 + p["last"], x) @ p["out"]


def linear(spec):
    return {(g.size, g.kind, g.centred) for g in spec.groups if g.is_linear}


def check(apply, params, x, expected):
    """Folded, the function is the same, and so it is under every element of the folded network's group."""
    folded = symmetry.fold_gains(apply, params, x)
    assert expected <= linear(folded.spec), folded.spec.explain()
    np.testing.assert_allclose(apply(folded.params, x), apply(params, x), rtol=1e-4, atol=1e-5)
    report = symmetry.verify(
        folded.spec, apply, folded.params, x, jax.random.key(0), float64=True, num_elements=2
    )
    assert max(report.errors.values()) < 1e-10, report
    jax.tree.map(
        np.testing.assert_array_equal,
        symmetry.act(folded.spec, symmetry.identity(folded.spec), folded.params),
        folded.params,
    )
    return folded


def test_gains_of_either_sign_are_folded_and_the_stream_rotates():
    params = draw(STREAM)
    params["gain"] *= np.float32([1, -1, 1, -1, -1, 1])
    folded = check(rms_stream, params, inputs((4, 3)), {(6, "orthogonal", False)})
    assert folded.gains == ("gain", "last") == folded.spec.held
    np.testing.assert_array_equal(folded.params["gain"], np.ones(6))
    np.testing.assert_allclose(folded.params["up"], params["gain"][:, None] * params["up"], rtol=1e-5)
    np.testing.assert_array_equal(folded.params["in"], params["in"])
    assert "leaf 'gain' is held at 1" in folded.spec.explain()


def test_gains_written_as_one_plus_a_weight():
    folded = check(gemma_stream, draw(STREAM), inputs((4, 3)), {(6, "orthogonal", False)})
    np.testing.assert_array_equal(folded.params["gain"], np.zeros(6))


@pytest.mark.slow
def test_layer_norm_leaves_what_fixes_the_mean():
    case = CASES["transformer"]()
    params, x = draw(case.shapes), inputs(case.input_shape)
    folded = check(case.apply, params, x, {(6, "orthogonal", True), (3, "invertible", False)})
    assert set(folded.gains) == {"norm1/scale", "norm2/scale", "norm/scale"}


def test_a_network_folds_twice_to_the_same():
    folded = symmetry.fold_gains(rms_stream, draw(STREAM), inputs((4, 3)))
    again = symmetry.fold_gains(rms_stream, folded.params, inputs((4, 3)))
    jax.tree.map(np.testing.assert_array_equal, again.params, folded.params)
    assert again.spec == folded.spec


def test_many_networks_fold_at_once():
    many = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(draw(STREAM, seed) for seed in range(3)))
    x = inputs((4, 3))
    folded = jax.vmap(lambda params: symmetry.fold_gains(rms_stream, params, x).params)(many)
    before, after = (jax.vmap(rms_stream, in_axes=(0, None))(some, x) for some in (many, folded))
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["mlp_relu", "residual", "weight_norm"])
def test_gains_whose_folding_frees_nothing_stay(name):
    case = CASES[name]()
    params, x = draw(case.shapes), inputs(case.input_shape)
    folded = symmetry.fold_gains(case.apply, params, x)
    assert folded.gains == ()
    jax.tree.map(np.testing.assert_array_equal, folded.params, params)
    assert folded.spec == symmetry.discover(case.apply, params, x)


def test_a_tied_head_keeps_the_last_gain_and_so_the_stream():
    params = draw(gpt.shapes(tied=True))
    folded = symmetry.fold_gains(gpt.apply, params, np.arange(12).reshape(2, 6))
    assert folded.gains == ()
    params = draw(gpt.shapes())
    folded = symmetry.fold_gains(gpt.apply, params, np.arange(12).reshape(2, 6))
    assert (8, "orthogonal", True) in linear(folded.spec)


def test_gains_of_zero_are_refused():
    params = draw(STREAM)
    params["gain"][2] = 0
    with pytest.raises(ValueError, match="leaf 'gain' is zero somewhere, so it cannot be folded"):
        symmetry.fold_gains(rms_stream, params, inputs((4, 3)))


def test_an_unknown_leaf_cannot_be_held():
    with pytest.raises(ValueError, match="unknown leaf 'gian'; did you mean 'gain'"):
        symmetry.discover(rms_stream, draw(STREAM), inputs((4, 3)), held={"gian": 1.0})
