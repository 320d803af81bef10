"""Convolutional networks: groups of channels, normalisation, residual streams, concatenation."""

import jax
import jax.numpy as jnp
from jax import lax

from tests.symmetry.cases.base import BATCH, Case, batch_norm, bn, case, conv, dense, linear


@case
def lenet() -> Case:
    shapes = {
        "conv1": (3, 3, 1, 4),
        "bias1": (4,),
        "conv2": (3, 3, 4, 5),
        "dense": dense(20, 6),
        "out": dense(6, 2),
    }

    def apply(p, x):
        x = pool(jax.nn.relu(conv(p["conv1"], x) + p["bias1"]))
        x = pool(jax.nn.relu(conv(p["conv2"], x)))
        return linear(p["out"], jax.nn.relu(linear(p["dense"], x.reshape(x.shape[0], -1))))

    return Case(apply, shapes, (BATCH, 8, 8, 1), [(4, (), 1, 0), (5, (), 1, 0), (6, (), 1, 0)])


def pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


@case
def grouped_conv() -> Case:
    """Six channels into a convolution of two groups: three of each group, two outputs of each."""
    shapes = {"conv1": (3, 3, 1, 6), "conv2": (3, 3, 3, 4), "out": (4, 2)}

    def apply(p, x):
        x = jax.nn.relu(conv(p["conv2"], jax.nn.relu(conv(p["conv1"], x)), groups=2))
        return x.mean((1, 2)) @ p["out"]

    return Case(apply, shapes, (BATCH, 4, 4, 1), [(2, (), 0, 0), (3, (2,), 1, 0), (2, (2,), 1, 0)])


@case
def depthwise_separable() -> Case:
    shapes = {
        "point1": (1, 1, 3, 5),
        "depth1": (3, 3, 1, 5),
        "depth2": (3, 3, 1, 10),
        "point2": (1, 1, 10, 4),
        "out": (4, 2),
    }

    def apply(p, x):
        x = jax.nn.relu(conv(p["point1"], x))
        x = jax.nn.relu(conv(p["depth1"], x, groups=5))
        x = jax.nn.relu(conv(p["depth2"], x, groups=5))
        return jax.nn.relu(conv(p["point2"], x)).mean((1, 2)) @ p["out"]

    return Case(apply, shapes, (BATCH, 4, 4, 3), [(5, (), 2, 0), (2, (5,), 1, 0), (4, (), 1, 0)])


def residual_block(size: int):
    return {"conv1": (3, 3, size, size), "bn1": bn(size), "conv2": (3, 3, size, size), "bn2": bn(size)}


@case
def residual() -> Case:
    """A stream written by two BatchNorms: one scale for each, one they share; a flip for each."""
    shapes = {"stem": (3, 3, 2, 4), "bn": bn(4), "block": residual_block(4), "out": dense(4, 2)}

    def apply(p, x):
        x = jax.nn.relu(batch_norm(p["bn"], conv(p["stem"], x)))
        y = jax.nn.relu(batch_norm(p["block"]["bn1"], conv(p["block"]["conv1"], x)))
        x = jax.nn.relu(x + batch_norm(p["block"]["bn2"], conv(p["block"]["conv2"], y)))
        return linear(p["out"], x.mean((1, 2)))

    return Case(apply, shapes, (BATCH, 4, 4, 2), [(4, (), 3, 2), (4, (), 2, 1)])


@case
def filter_response_norm() -> Case:
    """With a learnable ε the convolution scales with ε's root; γ, β and τ scale with the reader."""
    shapes = {
        "conv": (3, 3, 2, 5),
        "epsilon": (5,),
        "gamma": (5,),
        "beta": (5,),
        "tau": (5,),
        "out": dense(5, 2),
    }

    def apply(p, x):
        x = conv(p["conv"], x)
        x = x * lax.rsqrt(jnp.square(x).mean((1, 2), keepdims=True) + jnp.abs(p["epsilon"]))
        x = jnp.maximum(p["gamma"] * x + p["beta"], p["tau"])
        return linear(p["out"], x.mean((1, 2)))

    return Case(apply, shapes, (BATCH, 4, 4, 2), [(5, (), 2, 2)])


@case
def dense_net() -> Case:
    """Each growth segment keeps its own group; readers see a sum of groups."""
    shapes = {"stem": (3, 3, 2, 4), "grow1": (3, 3, 4, 3), "grow2": (3, 3, 7, 5), "out": dense(12, 2)}

    def apply(p, x):
        x = conv(p["stem"], x)
        x = jnp.concatenate([x, conv(p["grow1"], jax.nn.relu(x))], -1)
        x = jnp.concatenate([x, conv(p["grow2"], jax.nn.relu(x))], -1)
        return linear(p["out"], jax.nn.relu(x).mean((1, 2)))

    return Case(apply, shapes, (BATCH, 4, 4, 2), [(4, (), 1, 0), (3, (), 1, 0), (5, (), 1, 0)])


@case
def u_net() -> Case:
    """The skip's reader sees encoder + decoder channels; GroupNorm makes channels vary over groups."""
    shapes = {
        "encode": (3, 3, 2, 6),
        "gn": {"scale": (6,), "bias": (6,)},
        "down": (3, 3, 6, 5),
        "up": (3, 3, 5, 4),
        "decode": (3, 3, 10, 3),
        "out": (1, 1, 3, 2),
    }

    def apply(p, x):
        y = conv(p["encode"], x)
        grouped = y.reshape(*y.shape[:3], 2, 3)
        mean = grouped.mean((1, 2, 4), keepdims=True)
        variance = jnp.square(grouped - mean).mean((1, 2, 4), keepdims=True)
        y = ((grouped - mean) * lax.rsqrt(variance + 1e-5)).reshape(y.shape)
        skip = jax.nn.relu(y * p["gn"]["scale"] + p["gn"]["bias"])
        x = jax.nn.relu(conv(p["down"], skip, stride=2))
        x = jax.nn.relu(conv(p["up"], jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)))
        x = jax.nn.relu(conv(p["decode"], jnp.concatenate([skip, x], -1)))
        return conv(p["out"], x)

    # A whole normalised group may be flipped, with its scale.
    groups = [(2, (), 0, 1), (3, (2,), 1, 0), (5, (), 1, 0), (4, (), 1, 0), (3, (), 1, 0)]
    return Case(apply, shapes, (BATCH, 4, 4, 2), groups)


@case
def squeeze_excite() -> Case:
    shapes = {"conv": (3, 3, 2, 4), "squeeze": (4, 3), "excite": (3, 4), "out": (4, 2)}

    def apply(p, x):
        x = jax.nn.relu(conv(p["conv"], x))
        gate = jax.nn.sigmoid(jax.nn.relu(x.mean((1, 2)) @ p["squeeze"]) @ p["excite"])
        return (x * gate[:, None, None, :]).mean((1, 2)) @ p["out"]

    return Case(apply, shapes, (BATCH, 4, 4, 2), [(4, (), 1, 0), (3, (), 1, 0)])


@case
def vmapped_conv_experts() -> Case:
    """vmap over kernels turns experts into groups of one convolution, and back by a transposing reshape."""
    shapes = {"conv1": (3, 3, 3, 2, 4), "conv2": (3, 3, 3, 4, 2)}

    def apply(p, x):
        hidden = jax.vmap(lambda kernel: jax.nn.relu(conv(kernel, x)))(p["conv1"])
        return jax.vmap(conv)(p["conv2"], hidden).sum(0)

    return Case(apply, shapes, (BATCH, 4, 4, 2), [(3, (), 0, 0), (4, (3,), 1, 0)])
