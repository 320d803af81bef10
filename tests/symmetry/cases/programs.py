"""Programs that hold their layers in unusual ways: scans, indices, branches, shared parts, containers."""

import jax
import jax.numpy as jnp
from jax import lax

from tests.symmetry.cases.base import BATCH, Case, case


@case
def scanned_layers() -> Case:
    """Stacked residual layers: hidden units vary over the layer, which itself is fixed."""
    shapes = {"in": (3, 6), "up": (4, 6, 5), "down": (4, 5, 6), "out": (6, 2)}

    def apply(p, x):
        def layer(stream, weights):
            up, down = weights
            return stream + jax.nn.relu(stream @ up) @ down, None

        return lax.scan(layer, x @ p["in"], (p["up"], p["down"]))[0] @ p["out"]

    return Case(apply, shapes, (BATCH, 3), [(6, (), 1, 1), (5, (4,), 1, 0)])


@case
def indexed_layers() -> Case:
    """One array of several layers, indexed in Python: every layer has its own units."""
    shapes = {"in": (3, 4), "kernel": (3, 4, 4), "bias": (3, 4), "out": (4, 2)}

    def apply(p, x):
        x = jax.nn.relu(x @ p["in"])
        for number in range(3):
            x = jax.nn.relu(x @ p["kernel"][number] + p["bias"][number])
        return x @ p["out"]

    return Case(apply, shapes, (BATCH, 3), 4 * [(4, (), 1, 0)])


@case
def tuples_and_lists() -> Case:
    shapes = ([(3, 5), (5,)], ((5, 2), {"bias": (2,)}))

    def apply(p, x):
        (kernel, bias), (out, last) = p
        return jax.nn.relu(x @ kernel + bias) @ out + last["bias"]

    return Case(apply, shapes, (BATCH, 3), [(5, (), 1, 0)])


@case
def branches_and_loops() -> Case:
    """cond, while and remat keep the hidden layer free."""
    shapes = {"in": (3, 5), "loop": (5,), "out": (5, 2)}

    def apply(p, x):
        hidden = jax.checkpoint(lambda x: jax.nn.relu(x @ p["in"]))(x)
        hidden = lax.cond(x.sum() > 0, lambda h: h, lambda h: 2.0 * h, hidden)
        state = (0, hidden)
        _, hidden = lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * p["loop"]), state)
        return hidden @ p["out"]

    return Case(apply, shapes, (BATCH, 3), [(5, (), 1, 0)])


@case
def shared_jitted_layer() -> Case:
    """A jitted layer called twice is two layers."""
    layer = jax.jit(lambda kernel, x: jax.nn.relu(x @ kernel))
    shapes = {"a": (4, 4), "b": (4, 4), "out": (4, 2)}

    def apply(p, x):
        return layer(p["b"], layer(p["a"], x)) @ p["out"]

    return Case(apply, shapes, (BATCH, 4), [(4, (), 1, 0), (4, (), 1, 0)])


@case
def shared_zeros() -> Case:
    """Two states that start from one array of zeros stay two groups."""
    shapes = {"a": (3, 4), "b": (3, 4), "out": (4, 2), "out2": (4, 2)}

    def apply(p, x):
        zeros = jnp.zeros((BATCH, 4))
        first, second = jnp.maximum(x @ p["a"], zeros), jnp.maximum(x @ p["b"], zeros)
        return first @ p["out"] + second @ p["out2"]

    return Case(apply, shapes, (BATCH, 3), [(4, (), 1, 0), (4, (), 1, 0)])
