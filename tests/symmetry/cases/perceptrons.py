"""Dense networks: perceptrons of every activation, gates, ties, experts of dense layers."""

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from tests.symmetry.cases.base import BATCH, CASES, Case, case, dense, linear


def mlp(activation: Callable, depth: int, scales: int, signs: int) -> Case:
    widths = [3, *range(4, 4 + depth), 2]
    shapes = {f"layer{i}": dense(a, b) for i, (a, b) in enumerate(itertools.pairwise(widths))}

    def apply(params, x):
        for number in range(depth):
            x = activation(linear(params[f"layer{number}"], x))
        return linear(params[f"layer{depth}"], x)

    return Case(apply, shapes, (BATCH, 3), [(width, (), scales, signs) for width in widths[1:-1]])


ACTIVATIONS: dict[str, tuple[Callable, int, int]] = {
    "relu": (jax.nn.relu, 1, 0),
    "tanh": (jnp.tanh, 0, 1),
    "gelu": (jax.nn.gelu, 0, 0),
    "exact_gelu": (lambda x: jax.nn.gelu(x, approximate=False), 0, 0),
    "silu": (jax.nn.silu, 0, 0),
    "elu": (jax.nn.elu, 0, 0),
    "leaky_relu": (jax.nn.leaky_relu, 1, 0),
    "relu6": (jax.nn.relu6, 0, 0),
    "above_half": (lambda x: jnp.maximum(x, 0.5), 0, 0),
    "relu_squared": (lambda x: jax.nn.relu(x) ** 2, 1, 0),
    "square": (jnp.square, 1, 1),
    "absolute": (jnp.abs, 1, 1),
    "sine": (jnp.sin, 0, 1),
    "cosine": (jnp.cos, 0, 1),
    "soft_sign": (jax.nn.soft_sign, 0, 1),
    "identity": (lambda x: x, 1, 1),
    "softmax": (jax.nn.softmax, 0, 0),
    "sign": (jnp.sign, 1, 1),
    "root_of_absolute": (lambda x: jnp.sqrt(jnp.abs(x)), 1, 1),
}
for _name, (_activation, _scales, _signs) in ACTIVATIONS.items():
    CASES[f"mlp_{_name}"] = lambda a=_activation, s=_scales, t=_signs: mlp(a, 1, s, t)
for _depth in range(2, 6):
    CASES[f"mlp_depth_{_depth}"] = lambda d=_depth: mlp(jax.nn.relu, d, 1, 0)


@case
def tied_autoencoder_relu() -> Case:
    def apply(p, x):
        return jax.nn.relu(x @ p["kernel"] + p["bias"]) @ p["kernel"].T

    return Case(apply, dense(3, 5), (BATCH, 3), [(5, (), 0, 0)])


@case
def tied_autoencoder_tanh() -> Case:
    def apply(p, x):
        return jnp.tanh(x @ p["kernel"] + p["bias"]) @ p["kernel"].T

    return Case(apply, dense(3, 5), (BATCH, 3), [(5, (), 0, 1)])


@case
def maxout() -> Case:
    """Four units of three pieces: pieces change places within each unit."""
    shapes = {"kernel": (3, 4, 3), "bias": (4, 3), "out": (4, 2)}

    def apply(p, x):
        return (jnp.einsum("bi,iuk->buk", x, p["kernel"]) + p["bias"]).max(-1) @ p["out"]

    return Case(apply, shapes, (BATCH, 3), [(4, (), 1, 0), (3, (4,), 0, 0)])


@case
def swiglu() -> Case:
    """Only the linear branch rescales; it also flips."""
    shapes = {"gate": (3, 5), "value": (3, 5), "out": (5, 2)}

    def apply(p, x):
        return (jax.nn.silu(x @ p["gate"]) * (x @ p["value"])) @ p["out"]

    return Case(apply, shapes, (BATCH, 3), [(5, (), 1, 1)])


@case
def reglu() -> Case:
    shapes = {"gate": (3, 5), "value": (3, 5), "out": (5, 2)}

    def apply(p, x):
        return (jax.nn.relu(x @ p["gate"]) * (x @ p["value"])) @ p["out"]

    return Case(apply, shapes, (BATCH, 3), [(5, (), 2, 1)])


@case
def weight_norm() -> Case:
    """Unit columns times a gain: the direction's length is free, and so are gain and bias."""
    shapes = {"direction": (3, 5), "gain": (5,), "bias": (5,), "out": (5, 2)}

    def apply(p, x):
        kernel = p["direction"] * lax.rsqrt(jnp.square(p["direction"]).sum(0)) * p["gain"]
        return jax.nn.relu(x @ kernel + p["bias"]) @ p["out"]

    return Case(apply, shapes, (BATCH, 3), [(5, (), 2, 1)])


@case
def experts() -> Case:
    """Hidden units of every expert on their own; experts change places with their gate's column."""
    shapes = {"gate": (3, 4), "up": {"kernel": (4, 3, 5), "bias": (4, 5)}, "down": (4, 5, 2)}

    def apply(p, x):
        hidden = jax.vmap(lambda layer: jax.nn.relu(linear(layer, x)))(p["up"])
        outputs = jax.vmap(jnp.matmul)(hidden, p["down"])
        return jnp.einsum("be,ebo->bo", jax.nn.softmax(x @ p["gate"]), outputs)

    return Case(apply, shapes, (BATCH, 3), [(4, (), 0, 0), (5, (4,), 1, 0)])


@case
def mapped_experts() -> Case:
    """The same by `lax.map`, a scan whose iterations do not depend on each other."""
    shapes = {"up": (4, 3, 5), "down": (4, 5, 2)}

    def apply(p, x):
        return lax.map(lambda layer: jax.nn.relu(x @ layer["up"]) @ layer["down"], p).sum(0)

    return Case(apply, shapes, (BATCH, 3), [(4, (), 0, 0), (5, (4,), 1, 0)])


@case
def sorted_units() -> Case:
    """Sorting forgets the order of hidden units; nothing after it may be relabelled."""
    shapes = {"in": (3, 5), "out": (5, 2)}

    def apply(p, x):
        return jnp.sort(x @ p["in"], -1) @ p["out"]

    return Case(apply, shapes, (BATCH, 3), [(5, (), 0, 0)])


@case
def embedding() -> Case:
    """Vocabulary rows are indexed, features are free; the tied table is read before and after the stream."""
    shapes = {"table": (7, 4), "mlp": (4, 6), "back": (6, 4)}

    def apply(p, x):
        tokens = jnp.int32(jnp.abs(x)) % 7
        x = p["table"][tokens]
        return jax.nn.relu(x @ p["mlp"]) @ p["back"] @ p["table"].T

    return Case(apply, shapes, (BATCH, 5), [(4, (), 1, 1), (6, (), 1, 0)])
