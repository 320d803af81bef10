"""Networks with the groups one derives by hand: (units, units of what they vary over, scales, signs).

Every case is a plain function over a tree of weights: what is tested is discovery and not a framework.
Weights are drawn by NumPy: initialisers would take longer to compile than the networks.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

BATCH = 3


class Case(NamedTuple):
    apply: Callable[..., Any]
    shapes: Any
    input_shape: tuple[int, ...]
    groups: list[tuple[int, tuple[int, ...], int, int]]


CASES: dict[str, Callable[[], Case]] = {}


def case(function):
    CASES[function.__name__] = function
    return function


def is_shape(node) -> bool:
    return isinstance(node, tuple) and all(isinstance(size, int) for size in node)


def draw(shapes, seed: int = 0):
    """Weights between 0.3 and 1, of either sign in matrices; positive in vectors, which may be variances."""
    random = np.random.default_rng(seed)

    def leaf(shape):
        values = random.uniform(0.3, 1.0, size=shape)
        is_matrix = sum(size > 1 for size in shape) > 1
        return np.float32(values * random.choice([-1, 1], size=shape) if is_matrix else values)

    return jax.tree.map(leaf, shapes, is_leaf=is_shape)


def inputs(shape: tuple[int, ...], seed: int = 1) -> np.ndarray:
    return np.float32(np.random.default_rng(seed).normal(size=shape))


def summary(spec) -> list[tuple[int, tuple[int, ...], int, int]]:
    return sorted(
        (group.size, tuple(spec.size(name) for name in group.over), group.num_scales, group.num_signs)
        for group in spec.groups
    )


def dense(size_in: int, size_out: int):
    return {"kernel": (size_in, size_out), "bias": (size_out,)}


def linear(layer, x):
    return x @ layer["kernel"] + layer["bias"]


def conv(kernel, x, *, groups: int = 1, stride: int = 1, padding: str = "SAME"):
    return lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def norm(layer, x, axis=-1):
    """LayerNorm with affine."""
    centred = x - x.mean(axis, keepdims=True)
    return centred * lax.rsqrt(centred.var(axis, keepdims=True) + 1e-5) * layer["scale"] + layer["bias"]


def batch_norm(layer, x):
    return (x - layer["mean"]) * (layer["scale"] * lax.rsqrt(layer["var"] + 1e-3)) + layer["bias"]


def bn(size: int):
    return dict.fromkeys(("mean", "var", "scale", "bias"), (size,))


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
def unstacked_heads() -> Case:
    """Queries, keys and values in one array, taken apart along its first axis."""
    shapes = {"qkv": (3, 4, 5), "out": (5, 2)}

    def apply(p, x):
        q, k, v = (x @ kernel for kernel in jnp.unstack(p["qkv"]))
        return jax.nn.softmax(q @ k.swapaxes(1, 2)) @ v @ p["out"]

    return Case(apply, shapes, (BATCH, 6, 4), [(5, (), 1, 1), (5, (), 1, 1)])


@case
def maxout() -> Case:
    """Four units of three pieces: pieces change places within each unit."""
    shapes = {"kernel": (3, 4, 3), "bias": (4, 3), "out": (4, 2)}

    def apply(p, x):
        return (jnp.einsum("bi,iuk->buk", x, p["kernel"]) + p["bias"]).max(-1) @ p["out"]

    return Case(apply, shapes, (BATCH, 3), [(4, (), 1, 0), (3, (4,), 0, 0)])


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
def squeeze_excite() -> Case:
    shapes = {"conv": (3, 3, 2, 4), "squeeze": (4, 3), "excite": (3, 4), "out": (4, 2)}

    def apply(p, x):
        x = jax.nn.relu(conv(p["conv"], x))
        gate = jax.nn.sigmoid(jax.nn.relu(x.mean((1, 2)) @ p["squeeze"]) @ p["excite"])
        return (x * gate[:, None, None, :]).mean((1, 2)) @ p["out"]

    return Case(apply, shapes, (BATCH, 4, 4, 2), [(4, (), 1, 0), (3, (), 1, 0)])


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
def tuples_and_lists() -> Case:
    shapes = ([(3, 5), (5,)], ((5, 2), {"bias": (2,)}))

    def apply(p, x):
        (kernel, bias), (out, last) = p
        return jax.nn.relu(x @ kernel + bias) @ out + last["bias"]

    return Case(apply, shapes, (BATCH, 3), [(5, (), 1, 0)])


@case
def vmapped_conv_experts() -> Case:
    """vmap over kernels turns experts into groups of one convolution, and back by a transposing reshape."""
    shapes = {"conv1": (3, 3, 3, 2, 4), "conv2": (3, 3, 3, 4, 2)}

    def apply(p, x):
        hidden = jax.vmap(lambda kernel: jax.nn.relu(conv(kernel, x)))(p["conv1"])
        return jax.vmap(conv)(p["conv2"], hidden).sum(0)

    return Case(apply, shapes, (BATCH, 4, 4, 2), [(3, (), 0, 0), (4, (3,), 1, 0)])


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


@case
def sorted_units() -> Case:
    """Sorting forgets the order of hidden units; nothing after it may be relabelled."""
    shapes = {"in": (3, 5), "out": (5, 2)}

    def apply(p, x):
        return jnp.sort(x @ p["in"], -1) @ p["out"]

    return Case(apply, shapes, (BATCH, 3), [(5, (), 0, 0)])


@case
def weight_norm() -> Case:
    """Unit columns times a gain: the direction's length is free, and so are gain and bias."""
    shapes = {"direction": (3, 5), "gain": (5,), "bias": (5,), "out": (5, 2)}

    def apply(p, x):
        kernel = p["direction"] * lax.rsqrt(jnp.square(p["direction"]).sum(0)) * p["gain"]
        return jax.nn.relu(x @ kernel + p["bias"]) @ p["out"]

    return Case(apply, shapes, (BATCH, 3), [(5, (), 2, 1)])


@case
def embedding() -> Case:
    """Vocabulary rows are indexed, features are free; the tied table is read before and after the stream."""
    shapes = {"table": (7, 4), "mlp": (4, 6), "back": (6, 4)}

    def apply(p, x):
        tokens = jnp.int32(jnp.abs(x)) % 7
        x = p["table"][tokens]
        return jax.nn.relu(x @ p["mlp"]) @ p["back"] @ p["table"].T

    return Case(apply, shapes, (BATCH, 5), [(4, (), 1, 1), (6, (), 1, 0)])
