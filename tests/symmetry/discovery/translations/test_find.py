"""Translations: those that one derives by hand, and near misses of which none is one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax import lax

from symbnn import symmetry
from tests.symmetry import gpt
from tests.symmetry.cases import CASES, draw, inputs
from tests.symmetry.cases.base import norm

SHAPES = {
    "in": (3, 6),
    "bias": (6,),
    "square": (6, 6),
    "gain": (6,),
    "last": (6,),
    "out": (6, 2),
    "rows": (4, 6),
    "pooled": (6, 6),
}
MASK = np.tri(4, dtype=bool)


def hidden(function):
    """A function of hidden units (4, 6) between two dense layers; the second has no bias."""
    return lambda p, x: jnp.tanh(function(x @ p["in"], p)) @ p["out"]


def found(function, shapes=SHAPES, x=None):
    x = inputs((4, 3)) if x is None else x
    spec = symmetry.discover(function, draw(shapes), x)
    return {str(one) for one in spec.translations}, spec


def standard(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt(centred.var(-1, keepdims=True) + 1e-5)


def one_pass(x):
    """E[x²] − E[x]², as Flax computes it."""
    mean = x.mean(-1, keepdims=True)
    variance = jnp.maximum(0.0, jnp.square(x).mean(-1, keepdims=True) - lax.square(mean))
    return (x - mean) * lax.rsqrt(variance + 1e-5)


def split_heads(p, h):
    """Two heads of three channels, packed on one axis with their bias."""
    q, k, v = (y.reshape(4, 2, 3) for y in (h, h + p["bias"], h @ p["square"] + p["gain"]))
    weights = jax.nn.softmax(jnp.einsum("qhc,khc->hqk", q, k))
    return jnp.einsum("hqk,khc->qhc", weights, v).reshape(4, 6) @ p["square2"] + p["last"]


FOUND = {
    "dead key bias": (
        lambda h, p: jax.nn.softmax(h @ (h @ p["square"] + p["bias"]).T) @ h,
        {"bias"},
    ),
    "masked scores": (
        lambda h, p: jax.nn.softmax(jnp.where(MASK, h @ (h @ p["square"] + p["bias"]).T, -jnp.inf)) @ h,
        {"bias"},
    ),
    "value bias into output bias": (
        lambda h, p: jax.nn.softmax(h @ h.T) @ (h + p["bias"]) @ p["square"] + p["last"],
        {"bias; last makes up for it"},
    ),
    "LayerNorm: what writes, its shift, what reads": (
        lambda h, p: norm({"scale": p["gain"], "bias": p["bias"]}, h) @ p["square"] + p["last"],
        {
            "in along axis 1",
            "bias; last makes up for it",
            "square along axis 0 as gain^-1; last makes up for it",
        },
    ),
    "what reads some rows, or their mean": (
        lambda h, p: standard(h)[:2] @ p["square"] + p["bias"] + standard(h).mean(0) @ p["pooled"],
        {
            "in along axis 1",
            "square along axis 0",
            "pooled along axis 0",
        },
    ),
    "LayerNorm in one pass": (
        lambda h, p: one_pass(h + p["bias"]),
        {"in along axis 1", "bias along axis 0"},
    ),
    "what reads a softmax": (
        lambda h, p: jax.nn.softmax(h) @ p["square"] + p["bias"],
        {"in along axis 1", "square along axis 0; bias makes up for it"},
    ),
    "two biases are one": (
        lambda h, p: jnp.tanh((h @ p["square"] + p["bias"]) + p["last"]),
        {"bias; last makes up for it"},
    ),
    "a threshold moves along": (
        lambda h, p: jnp.maximum(h + p["bias"], p["gain"]) @ p["square"] + p["last"],
        {"bias; gain, last make up for it"},
    ),
    "a bias before a gain": (
        lambda h, p: (h + p["bias"]) * (1 + p["gain"]) + p["last"],
        {"bias; last makes up for it"},
    ),
}
NEAR_MISSES = {
    "key bias that is read twice": lambda h, p: jax.nn.softmax(h @ (h + p["bias"]).T) @ (h + p["bias"]),
    "key bias under a square": lambda h, p: jax.nn.softmax(jnp.square(h @ (h + p["bias"]).T)) @ h,
    "softmax along the queries": lambda h, p: jax.nn.softmax(h @ (h @ p["square"] + p["bias"]).T, axis=0) @ h,
    "scores masked by a number": lambda h, p: (
        jax.nn.softmax(jnp.where(MASK, h @ (h + p["bias"]).T, -2.0)) @ h
    ),
    "value bias without an output bias": lambda h, p: jax.nn.softmax(h @ h.T) @ (h + p["bias"]) @ p["square"],
    "value bias before an activation": lambda h, p: (
        jnp.tanh(jax.nn.softmax(h @ h.T) @ (h + p["bias"])) + p["last"]
    ),
    "weights that do not add up": lambda h, p: (jnp.exp(h @ h.T) / 9) @ (h + p["bias"]) + p["last"],
    "a shift read by two, of whom one has no bias": lambda h, p: (
        jnp.tanh((h + p["bias"]) @ p["square"] + p["last"]) + (h + p["bias"])
    ),
    "mean of the rows, subtracted from the columns": lambda h, p: (
        (lambda s: s - s.mean(-1)[None, :])((h + p["bias"]) @ h.T) @ h
    ),
    "what reads rows that are centred along the columns": lambda h, p: (
        (lambda s: s - s.mean(-1)[None, :])(h @ h.T) @ p["rows"] + p["bias"]
    ),
    "shares of the other axis": lambda h, p: (
        (lambda s: s / s.sum(-1)[None, :])(jnp.exp(h @ h.T)) @ p["rows"] + p["bias"]
    ),
    "next to nothing is not nothing": lambda h, p: standard(h + p["bias"]) + 1e-9 * (h + p["bias"]),
    "mean of a part": lambda h, p: (h + p["bias"]) - (h + p["bias"])[:, :3].mean(-1, keepdims=True),
    "nearly a variance": lambda h, p: (
        h / jnp.sqrt(9 + jnp.square(h).mean(-1, keepdims=True) - 0.5 * h.mean(-1, keepdims=True) ** 2)
    ),
    "RMSNorm": lambda h, p: (h + p["bias"]) * lax.rsqrt(jnp.square(h + p["bias"]).mean(-1, keepdims=True)),
    "centred, and read beside it": lambda h, p: standard(h + p["bias"]) + 0.1 * (h + p["bias"]),
    "a gain of the shift": lambda h, p: (h + p["bias"]) * jnp.tanh(h) + p["last"],
    "a bias that is tied": lambda h, p: jnp.tanh((h + p["bias"]) @ p["square"] + p["last"]) * p["last"],
    "a reader that is tied": lambda h, p: jnp.tanh(standard(h) * p["gain"] @ p["square"]) @ p["square"].T,
    "largest of other things": lambda h, p: jnp.maximum(h + p["bias"], jnp.tanh(h)) + p["last"],
}


@pytest.mark.parametrize("name", FOUND)
def test_translations_are_found_and_exact(name):
    function, expected = FOUND[name]
    texts, spec = found(hidden(function))
    assert texts == expected, spec.explain()
    report = symmetry.verify(
        spec, hidden(function), draw(SHAPES), inputs((4, 3)), jax.random.key(0), float64=True, num_elements=1
    )
    assert report.errors["translation"] < 1e-12, report


# What is in front of a norm or a softmax may move along ones in some of them.
WRITES = ("softmax along the queries", "a reader that is tied")


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_stay_unfound(name):
    function = hidden(NEAR_MISSES[name])
    moving = {leaf for one in found(function)[1].translations for leaf in one.leaves}
    assert moving <= ({"in"} if name in WRITES else set())


def test_packed_heads_split_the_bias():
    shapes = SHAPES | {"square2": (6, 6)}
    texts, spec = found(lambda p, x: split_heads(p, x @ p["in"]) @ p["out"], shapes)
    assert {"bias", "gain; last makes up for it"} <= texts, spec.explain()
    report = symmetry.verify(
        spec,
        lambda p, x: split_heads(p, x @ p["in"]) @ p["out"],
        draw(shapes),
        inputs((4, 3)),
        jax.random.key(0),
        float64=True,
        num_elements=1,
    )
    assert report.errors["translation"] < 1e-12


def test_layers_in_a_scan_and_in_one_array():
    """A stream of LayerNorm with stacked layers: each has translations of its own."""
    shapes = {
        "in": (3, 6),
        "gain": (4, 6),
        "shift": (4, 6),
        "up": (4, 6, 5),
        "bias": (4, 5),
        "down": (4, 5, 6),
    }
    shapes |= {"out": (6, 2)}

    def layer(x, p):
        hidden = norm({"scale": p["gain"], "bias": p["shift"]}, x) @ p["up"] + p["bias"]
        return x + jax.nn.gelu(hidden) @ p["down"]

    def scanned(p, x):
        stacked = {name: p[name] for name in ("gain", "shift", "up", "bias", "down")}
        x, _ = lax.scan(lambda x, p: (layer(x, p), None), x @ p["in"], stacked)
        return standard(x) @ p["out"]

    def indexed(p, x):
        x = x @ p["in"]
        for number in range(4):
            x = layer(x, {name: p[name][number] for name in ("gain", "shift", "up", "bias", "down")})
        return standard(x) @ p["out"]

    sizes = []
    for function in (scanned, indexed):
        _, spec = found(function, shapes)
        sizes.append(sum(int(np.prod(one.shape)) for one in spec.translations))
        report = symmetry.verify(
            spec, function, draw(shapes), inputs((4, 3)), jax.random.key(0), float64=True, num_elements=1
        )
        assert report.errors["translation"] < 1e-10, report
    # Written: in 3, down 4 · 5; read: up 4 · 5, out 2; shifts 4 · 6.
    assert sizes == 2 * [3 + 20 + 20 + 2 + 24]


def test_running_means_move_only_with_what_they_are_means_of():
    case = CASES["residual"]()
    params, x = draw(case.shapes), inputs(case.input_shape)
    assert symmetry.discover(case.apply, params, x).translations == ()
    found = symmetry.discover(case.apply, params, x, eval_only=True).translations
    assert sorted(map(str, found)) == [
        "block/bn1/mean; block/bn1/bias makes up for it",
        "block/bn2/mean; block/bn2/bias makes up for it",
        "bn/mean; bn/bias makes up for it",
    ]


class Attention(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.LayerNorm()(nn.Dense(6)(x))
        x = nn.MultiHeadDotProductAttention(num_heads=2, qkv_features=6, out_features=2)(x)
        return x


def test_layers_of_flax():
    module, x = Attention(), inputs((2, 5, 3))
    params = module.init(jax.random.key(0), x)
    found = {
        str(one).replace("params/", "") for one in symmetry.discover(module.apply, params, x).translations
    }
    heads = "MultiHeadDotProductAttention_0"
    read = "along axis 0 as LayerNorm_0/scale^-1"
    assert found == {
        "Dense_0/bias along axis 0",
        "Dense_0/kernel along axis 1",
        f"LayerNorm_0/bias; {heads}/query/bias, {heads}/value/bias make up for it",
        f"{heads}/key/bias",
        f"{heads}/key/kernel {read}",
        f"{heads}/query/kernel {read}; {heads}/query/bias makes up for it",
        f"{heads}/value/bias; {heads}/out/bias makes up for it",
        f"{heads}/value/kernel {read}; {heads}/value/bias makes up for it",
    }


def test_a_wrong_translation_is_told_by_verify():
    params, tokens = draw(gpt.shapes(layers=1)), np.arange(12).reshape(2, 6)
    spec = symmetry.discover(gpt.apply, params, tokens)
    value = next(one for one in spec.translations if one.leaves[0] == "block0/value/bias")
    wrong = dataclasses.replace(value, changes=value.changes[:1])
    report = symmetry.verify(
        dataclasses.replace(spec, translations=(wrong,)), gpt.apply, params, tokens, jax.random.key(0)
    )
    assert not report.ok
    assert report.bad_leaf == "block0/value/bias"
    assert "translation" in str(report)


def test_explain_lists_them():
    _, spec = found(hidden(FOUND["value bias into output bias"][0]))
    text = spec.explain()
    assert "translations (free to move, by any amount):\n" in text
    assert "  bias; last makes up for it\n" in text
