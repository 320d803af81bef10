"""Kinds of groups: linear uses of a hidden axis, and near misses of which none is linear."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from symbnn import symmetry
from tests.symmetry.cases import draw, hidden, inputs
from tests.symmetry.cases.base import Case, conv, norm
from tests.symmetry.cases.sequences import attention


class Linear(NamedTuple):
    apply: Callable[..., Any]
    shapes: Any
    input_shape: tuple[int, ...]
    kinds: list[tuple[int, str]]
    """Size and kind of every group that matrices act on; `centred` for orthogonal ones that fix ones."""


def rms(x):
    return x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6)


def layer_norm(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt(centred.var(-1, keepdims=True) + 1e-5)


def deep_linear(p, x):
    return x @ p["a"] @ p["b"] @ p["c"]


def lora(p, x):
    return jax.nn.relu(x @ (p["kernel"] + 0.5 * p["down"] @ p["up"])) @ p["out"]


def low_rank_convolution(p, x):
    return conv(p["out"], jax.nn.relu(conv(p["up"], conv(p["down"], x)))).mean((1, 2))


def embedded(p, x):
    return jnp.tanh(p["table"][jnp.int32(jnp.abs(x)) % 7] @ p["kernel"]) @ p["out"]


def attention_with_biases(p, x):
    q, k, v = (jnp.einsum("btd,dhc->bthc", x, p[name]) + p[name + "_bias"] for name in ("q", "k", "v"))
    weights = jax.nn.softmax(jnp.einsum("bqhc,bkhc->bhqk", q, k))
    return jnp.einsum("bhqk,bkhc,hcd->bqd", weights, v, p["out"])


def grouped_queries(p, x):
    """Two key heads, each read by three query heads."""
    q = jnp.einsum("btd,dgrc->btgrc", x, p["q"])
    k, v = (jnp.einsum("btd,dgc->btgc", x, p[name]) for name in ("k", "v"))
    weights = jax.nn.softmax(jnp.einsum("bqgrc,bkgc->bgrqk", q, k))
    return jnp.einsum("bgrqk,bkgc,grcd->bqd", weights, v, p["out"])


def rms_stream(p, x):
    x = x @ p["in"]
    x = x + jax.nn.gelu(rms(x) @ p["up"]) @ p["down"]
    return rms(x) @ p["out"]


def layer_norm_stream(p, x):
    x = x @ p["in"]
    x = x + jax.nn.gelu(layer_norm(x) @ p["up"] + p["bias"]) @ p["down"] + p["shift"]
    return layer_norm(x) @ p["out"]


def tied_linear(p, x):
    return x @ p["kernel"] @ p["kernel"].T


def masked_attention(p, x):
    """Rows that are padded away are set to zero; positions are masked."""
    present = jnp.arange(x.shape[1]) < 4
    x = jnp.where(present[None, :, None], x @ p["in"], 0.0)
    scores = jnp.einsum("bqc,bkc->bqk", x @ p["q"], x @ p["k"])
    return jax.nn.softmax(jnp.where(present, scores, -jnp.inf)) @ x @ p["out"]


def distances(p, x):
    """Squared distances to prototypes: differences contracted with themselves."""
    x = x @ p["in"]
    return jax.nn.softmax(-jnp.square(x[:, None] - p["prototypes"]).sum(-1)) @ p["out"]


def state_space(p, x):
    def step(state, x):
        state = state @ p["state"] + x @ p["in"]
        return state, state @ p["out"]

    return lax.scan(step, jnp.zeros((x.shape[1], 4)), x)[1]


STREAM = {"in": (3, 6), "up": (6, 5), "down": (5, 6), "out": (6, 2)}
LINEAR = {
    "deep linear net": Linear(
        deep_linear,
        {"a": (3, 5), "b": (5, 4), "c": (4, 2)},
        (4, 3),
        [(4, "invertible"), (5, "invertible")],
    ),
    "LoRA": Linear(
        lora,
        {"kernel": (5, 6), "down": (5, 2), "up": (2, 6), "out": (6, 2)},
        (4, 5),
        [(2, "invertible")],
    ),
    "low-rank convolution": Linear(
        low_rank_convolution,
        {"down": (3, 3, 2, 3), "up": (1, 1, 3, 4), "out": (3, 3, 4, 2)},
        (2, 5, 5, 2),
        [(3, "invertible")],
    ),
    "embedding and matrix": Linear(
        embedded, {"table": (7, 4), "kernel": (4, 5), "out": (5, 2)}, (4, 3), [(4, "invertible")]
    ),
    "attention": Linear(
        attention,
        dict.fromkeys(("query", "key", "value"), (6, 2, 3)) | {"out": (2, 3, 6)},
        (3, 5, 6),
        [(3, "invertible"), (3, "invertible")],
    ),
    "attention with biases": Linear(
        attention_with_biases,
        dict.fromkeys(("q", "k", "v"), (4, 2, 3))
        | dict.fromkeys(("q_bias", "k_bias", "v_bias"), (2, 3))
        | {"out": (2, 3, 4)},
        (3, 5, 4),
        [(3, "invertible"), (3, "invertible")],
    ),
    "grouped queries": Linear(
        grouped_queries,
        {"q": (4, 2, 3, 2), "k": (4, 2, 2), "v": (4, 2, 2), "out": (2, 3, 2, 4)},
        (3, 5, 4),
        [(2, "invertible"), (2, "invertible")],
    ),
    "masked attention": Linear(
        masked_attention,
        {"in": (3, 6), "q": (6, 4), "k": (6, 4), "out": (6, 2)},
        (2, 5, 3),
        [(4, "invertible"), (6, "invertible")],
    ),
    "stream of RMSNorm": Linear(rms_stream, STREAM, (4, 3), [(6, "orthogonal")]),
    "stream of LayerNorm": Linear(
        layer_norm_stream, STREAM | {"bias": (5,), "shift": (6,)}, (4, 3), [(6, "centred")]
    ),
    "tied linear autoencoder": Linear(tied_linear, {"kernel": (3, 5)}, (4, 3), [(5, "orthogonal")]),
    "distances": Linear(
        distances, {"in": (3, 5), "prototypes": (4, 5), "out": (4, 2)}, (4, 3), [(5, "orthogonal")]
    ),
    "state space": Linear(
        state_space, {"in": (3, 4), "state": (4, 4), "out": (4, 2)}, (6, 2, 3), [(4, "invertible")]
    ),
}


def found(spec) -> list[tuple[int, str]]:
    return sorted((g.size, "centred" if g.centred else g.kind) for g in spec.groups if g.is_linear)


@pytest.mark.parametrize("name", LINEAR)
def test_linear_uses_are_found_and_exact(name):
    network = LINEAR[name]
    params, x = draw(network.shapes), inputs(network.input_shape)
    spec = symmetry.discover(network.apply, params, x)
    assert found(spec) == network.kinds, spec.explain()
    report = symmetry.verify(spec, network.apply, params, x, jax.random.key(0), float64=True, num_elements=2)
    assert max(report.errors.values()) < 1e-12, report
    assert "matrix" in report.errors


def test_matrices_vary_over_heads():
    network = LINEAR["attention"]
    spec = symmetry.discover(network.apply, draw(network.shapes), inputs(network.input_shape))
    assert {spec.shape(group) for group in spec.groups if group.is_linear} == {(2, 3)}


GAIN = jnp.linspace(1.0, 2.0, 6)
MASK = np.array([True, True, False, True])[:, None]
# Each has a hidden axis that one use keeps from being linear: no matrices at all.
NEAR_MISSES = {
    "relu": lambda h, p: jax.nn.relu(h),
    "tanh": lambda h, p: jnp.tanh(h),
    "gain kept elementwise": lambda h, p: h * p["gain"],
    "gain and norm": lambda h, p: rms(h) * p["gain"],
    "LayerNorm with affine": lambda h, p: norm({"scale": p["gain"], "bias": p["bias"]}, h),
    "square kept": lambda h, p: h * jnp.square(h).sum(-1, keepdims=True) + jnp.square(h),
    "square used oddly": lambda h, p: h * jnp.tanh(jnp.square(h)).sum(-1, keepdims=True),
    "third power summed": lambda h, p: h * (h**3).sum(-1, keepdims=True),
    "weighed square": lambda h, p: h * (jnp.square(h) @ p["bias"])[:, None],
    "varying constant": lambda h, p: h * GAIN,
    "dropout": lambda h, p: h * jax.random.bernoulli(jax.random.key(0), 0.5, h.shape),
    "own sign": lambda h, p: jnp.where(h > 0, h, 0.1 * h),
    "largest": lambda h, p: h - h.max(-1, keepdims=True),
    "largest over the batch": lambda h, p: h + h.max(0),
    "softmax": lambda h, p: jax.nn.softmax(h),
    "product of two": lambda h, p: h * (h @ p["square"]),
    "rounded": lambda h, p: jnp.round(h),
    "integers": lambda h, p: h.astype(jnp.int32).astype(jnp.float32),
    "quotient": lambda h, p: p["gain"] / (h + 9),
    "sorted": lambda h, p: jnp.sort(h, -1),
    "rotary pairs": lambda h, p: h + jnp.concatenate([h[:, ::2], -h[:, 1::2]], -1),
    "lost in a branch": lambda h, p: lax.cond(h.sum() > 0, jnp.tanh, lambda h: h, h),
    "bent in a loop": lambda h, p: lax.fori_loop(0, 3, lambda i, h: jnp.sin(h) + h, h),
}
# Constants along the axis leave what fixes them: the vector of ones.
CENTRED = {
    "bias that is constant along the axis": lambda h, p: h + p["scalar"],
    "mean": lambda h, p: h + h.mean(-1, keepdims=True),
    "number": lambda h, p: h + 0.5,
    "rows set to a number": lambda h, p: jnp.where(MASK, h, 1.5),
    "sum of squares and of values": lambda h, p: h * (jnp.square(h).sum(-1) + h.sum(-1))[:, None],
}


def between_layers(function) -> Case:
    case = hidden(function)
    return case._replace(shapes=case.shapes | dict.fromkeys(("gain", "bias"), (6,)) | {"square": (6, 6)})


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_one_use_that_is_not_linear_leaves_no_matrices(name):
    case = between_layers(NEAR_MISSES[name])
    spec = symmetry.discover(case.apply, draw(case.shapes), inputs(case.input_shape))
    assert found(spec) == []


@pytest.mark.parametrize("name", CENTRED)
def test_constants_along_the_axis_leave_what_fixes_ones(name):
    case = between_layers(CENTRED[name])
    params, x = draw(case.shapes | {"scalar": ()}), inputs(case.input_shape)
    spec = symmetry.discover(case.apply, params, x)
    assert found(spec) == [(6, "centred")]
    report = symmetry.verify(spec, case.apply, params, x, jax.random.key(0), float64=True)
    assert max(report.errors.values()) < 1e-12, report


def test_infinite_masks_along_the_axis_are_not_mixed():
    case = between_layers(lambda h, p: jnp.exp(-jnp.where(MASK, h, jnp.inf).min(-1, keepdims=True)) * h)
    assert found(symmetry.discover(case.apply, draw(case.shapes), inputs(case.input_shape))) == []


def test_half_precision_on_the_way_is_linear_and_quantisation_is_not():
    for dtype, expected in ((jnp.bfloat16, [(6, "invertible")]), (jnp.float8_e4m3fn, [])):
        case = between_layers(lambda h, p, dtype=dtype: h.astype(dtype).astype(jnp.float32))
        assert found(symmetry.discover(case.apply, draw(case.shapes), inputs(case.input_shape))) == expected


def test_integer_leaves_are_never_mixed():
    def apply(p, x):
        return (x @ p["table"].astype(jnp.float32)).sum(-1)

    spec = symmetry.discover(apply, {"table": jnp.ones((3, 5), jnp.int32)}, inputs((4, 3)))
    assert found(spec) == []


def test_explain_names_kinds_and_duals():
    network = LINEAR["deep linear net"]
    text = symmetry.discover(network.apply, draw(network.shapes), inputs((4, 3))).explain()
    assert "a: 5 units; any invertible matrix, 1 scale, 1 sign" in text
    assert "b axis 0 consumes scale -1 sign 1 as dual" in text
    network = LINEAR["stream of LayerNorm"]
    text = symmetry.discover(network.apply, draw(network.shapes), inputs((4, 3))).explain()
    assert "any orthogonal matrix that fixes the vector of ones, no scales, no signs" in text
