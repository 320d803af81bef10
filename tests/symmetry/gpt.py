"""A small GPT over characters: LayerNorm with affine, biases, learned positions; tied or with a head."""

import jax
import jax.numpy as jnp


def shapes(*, vocabulary=12, width=8, hidden=16, heads=2, layers=2, positions=6, tied=False):
    affine = {"scale": (width,), "bias": (width,)}
    channels = width // heads
    block = {
        "norm1": affine,
        **{
            name: {"kernel": (width, heads, channels), "bias": (heads, channels)}
            for name in ("query", "key", "value")
        },
        "out": {"kernel": (heads, channels, width), "bias": (width,)},
        "norm2": affine,
        "up": {"kernel": (width, hidden), "bias": (hidden,)},
        "down": {"kernel": (hidden, width), "bias": (width,)},
    }
    found = {"tokens": (vocabulary, width), "positions": (positions, width), "norm": affine}
    found |= {f"block{number}": block for number in range(layers)}
    return found if tied else found | {"head": (width, vocabulary)}


def norm(p, x):
    centred = x - x.mean(-1, keepdims=True)
    return (
        centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5) * p["scale"] + p["bias"]
    )


def attention(p, x):
    q, k, v = (
        jnp.einsum("btd,dhc->bthc", x, p[name]["kernel"]) + p[name]["bias"]
        for name in ("query", "key", "value")
    )
    scores = jnp.einsum("bqhc,bkhc->bhqk", q, k) / q.shape[-1] ** 0.5
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf))
    return jnp.einsum("bhqk,bkhc,hcd->bqd", weights, v, p["out"]["kernel"]) + p["out"]["bias"]


def apply(p, tokens):
    x = p["tokens"][tokens] + p["positions"][: tokens.shape[1]]
    for number in range(sum(name.startswith("block") for name in p)):
        block = p[f"block{number}"]
        x = x + attention(block, norm(block["norm1"], x))
        hidden = jax.nn.gelu(norm(block["norm2"], x) @ block["up"]["kernel"] + block["up"]["bias"])
        x = x + hidden @ block["down"]["kernel"] + block["down"]["bias"]
    x = norm(p["norm"], x)
    return x @ p.get("head", p["tokens"].T)
