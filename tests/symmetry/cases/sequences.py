"""Networks over sequences: attention, token mixing, recurrence."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.symmetry.cases.base import BATCH, Case, case, dense, linear, norm


def attention(p, x):
    """Two heads of three channels each."""
    q, k, v = (jnp.einsum("btd,dhc->bthc", x, p[name]) for name in ("query", "key", "value"))
    weights = jax.nn.softmax(jnp.einsum("bqhc,bkhc->bhqk", q, k) / np.sqrt(3.0).astype(np.float32))
    return jnp.einsum("bhqk,bkhc,hcd->bqd", weights, v, p["out"])


@case
def transformer() -> Case:
    """Patches, class token, positions, one pre-norm block of attention and perceptron."""
    head = dict.fromkeys(("query", "key", "value"), (6, 2, 3)) | {"out": (2, 3, 6)}
    affine = {"scale": (6,), "bias": (6,)}
    shapes = {
        "patch": dense(4, 6),
        "token": (1, 1, 6),
        "positions": (1, 6, 6),
        "norm1": affine,
        "heads": head,
    }
    shapes |= {"norm2": affine, "up": dense(6, 7), "down": dense(7, 6), "norm": affine, "out": dense(6, 2)}

    def apply(p, x):
        x = linear(p["patch"], x)
        x = jnp.concatenate([jnp.broadcast_to(p["token"], (x.shape[0], 1, 6)), x], 1) + p["positions"]
        x = x + attention(p["heads"], norm(p["norm1"], x))
        x = x + linear(p["down"], jax.nn.gelu(linear(p["up"], norm(p["norm2"], x))))
        return linear(p["out"], norm(p["norm"], x)[:, 0])

    groups = [(6, (), 3, 3), (2, (), 0, 0), (3, (2,), 1, 1), (3, (2,), 1, 1), (7, (), 0, 0)]
    return Case(apply, shapes, (BATCH, 5, 4), groups)


@case
def gru() -> Case:
    """Packed gates: the state's units lie on three segments of one axis."""
    shapes = {"input": dense(2, 12), "state": dense(4, 12), "out": dense(4, 2)}

    def step(p, state, x):
        from_input, from_state = linear(p["input"], x), linear(p["state"], state)
        reset, update = jax.nn.sigmoid(from_input[:, :8] + from_state[:, :8]).reshape(-1, 2, 4).swapaxes(0, 1)
        new = jnp.tanh(from_input[:, 8:] + reset * from_state[:, 8:])
        state = (1 - update) * new + update * state
        return state, state

    def apply(p, x):
        state, _ = lax.scan(lambda state, x: step(p, state, x), jnp.zeros((BATCH, 4)), x)
        return linear(p["out"], state)

    return Case(apply, shapes, (5, BATCH, 2), [(4, (), 0, 1)])


@case
def rnn() -> Case:
    shapes = {"input": dense(2, 4), "state": (4, 4), "out": dense(4, 2)}

    def apply(p, x):
        def step(state, x):
            state = jnp.tanh(linear(p["input"], x) + state @ p["state"])
            return state, linear(p["out"], state)

        return lax.scan(step, jnp.zeros((BATCH, 4)), x)[1]

    return Case(apply, shapes, (5, BATCH, 2), [(4, (), 0, 1)])


@case
def mixer() -> Case:
    """Tokens are pinned by the patches' order; channels and both hidden layers are free."""
    affine = {"scale": (4,), "bias": (4,)}
    shapes = {"in": (2, 4), "norm1": affine, "token_up": (5, 6), "token_down": (6, 5)}
    shapes |= {"norm2": affine, "up": (4, 7), "down": (7, 4), "out": (4, 2)}

    def apply(p, x):
        x = x @ p["in"]
        x = x + (jax.nn.gelu(norm(p["norm1"], x).swapaxes(1, 2) @ p["token_up"]) @ p["token_down"]).swapaxes(
            1, 2
        )
        x = x + jax.nn.gelu(norm(p["norm2"], x) @ p["up"]) @ p["down"]
        return x.mean(1) @ p["out"]

    return Case(apply, shapes, (BATCH, 5, 2), [(4, (), 1, 1), (6, (), 0, 0), (7, (), 0, 0)])


@case
def split_qkv() -> Case:
    """One matrix for queries, keys and values, split: three groups, two of them one (q·k)."""
    shapes = {"qkv": (4, 9), "out": (3, 2)}

    def apply(p, x):
        q, k, v = jnp.split(x @ p["qkv"], 3, axis=-1)
        return jax.nn.softmax(q @ k.swapaxes(1, 2)) @ v @ p["out"]

    return Case(apply, shapes, (BATCH, 5, 4), [(3, (), 1, 1), (3, (), 1, 1)])


@case
def packed_heads() -> Case:
    """Heads packed in one axis, unpacked by a reshape."""
    shapes = {"query": (4, 6), "key": (4, 6), "value": (4, 6), "out": (6, 2)}

    def apply(p, x):
        q, k, v = ((x @ p[name]).reshape(*x.shape[:2], 2, 3) for name in ("query", "key", "value"))
        weights = jax.nn.softmax(jnp.einsum("bqhc,bkhc->bhqk", q, k))
        return jnp.einsum("bhqk,bkhc->bqhc", weights, v).reshape(*x.shape[:2], 6) @ p["out"]

    return Case(apply, shapes, (BATCH, 5, 4), [(2, (), 0, 0), (3, (2,), 1, 1), (3, (2,), 1, 1)])


@case
def unstacked_heads() -> Case:
    """Queries, keys and values in one array, taken apart along its first axis."""
    shapes = {"qkv": (3, 4, 5), "out": (5, 2)}

    def apply(p, x):
        q, k, v = (x @ kernel for kernel in jnp.unstack(p["qkv"]))
        return jax.nn.softmax(q @ k.swapaxes(1, 2)) @ v @ p["out"]

    return Case(apply, shapes, (BATCH, 6, 4), [(5, (), 1, 1), (5, (), 1, 1)])
