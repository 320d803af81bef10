"""Random programs over a few weights, for `jax.numpy` and NumPy alike.

A step maps hidden activations `(BATCH, HIDDEN)` to others. Either it is one of `OPS`, or it goes through
several experts, heads or layers, `block/place/operations`: the operations of `OVER` then sit on the axis over
which permutations may vary, at one place of the block (a weight, the hidden activations, the results).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

HIDDEN, BATCH, INPUTS = 6, 3, 2
EXPERTS, UNITS = 3, 4
WEIGHTS = {"in": (INPUTS, HIDDEN), "out": (HIDDEN, 2), "v": (HIDDEN,), "w": (HIDDEN,), "m": (HIDDEN, HIDDEN)}
WEIGHTS |= {"a": (2, 3), "scalar": (), "up": (EXPERTS, HIDDEN, UNITS), "down": (EXPERTS, UNITS, HIDDEN)}
WEIGHTS |= {"gate": (EXPERTS,), "mix": (EXPERTS, EXPERTS)}
SHAPES = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in WEIGHTS.items()}
PERMUTATION = np.array([5, 3, 1, 0, 2, 4])
ROWS = np.array([True, False, True])[:, None]
CONSTANT = np.array([1.0, 2, 2, 1, 3, 1])
SEEN = np.tri(BATCH, dtype=bool)


def softmax(xp, h, axis=-1):
    shifted = xp.exp(h - h.max(axis, keepdims=True))
    return shifted / shifted.sum(axis, keepdims=True)


def layer_norm(xp, h):
    centred = h - h.mean(-1, keepdims=True)
    return centred / xp.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-2)


def one_pass(xp, h, weight=1.0):
    """LayerNorm by E[x²] − E[x]²."""
    mean = h.mean(-1, keepdims=True)
    variance = xp.maximum((h * h).mean(-1, keepdims=True) - weight * mean * mean, 0)
    return (h - mean) / xp.sqrt(variance + 1e-2)


def square_rows(xp, h):
    """Means of the rows, taken from the columns of a square array."""
    scores = h @ h.T
    return (scores - scores.mean(-1)[None, :]) @ h


def state_space(xp, h, p):
    """A linear recurrence over the rows, from zero."""

    def step(state, w):
        state = state @ p["m"] + w[0]
        return state, state

    return loop(xp, step, xp.zeros(HIDDEN, h.dtype), (h,))[1]


# Each maps a (BATCH, HIDDEN) array to another, by the module it is given and the weights.
OPS = {
    "relu": lambda xp, h, p: xp.maximum(h, 0),
    "leaky": lambda xp, h, p: xp.where(h > 0, h, 0.1 * h),
    "tanh": lambda xp, h, p: xp.tanh(h),
    "abs": lambda xp, h, p: xp.abs(h),
    "sign": lambda xp, h, p: xp.sign(h) + 0 * h,
    "square": lambda xp, h, p: h * h,
    "cube": lambda xp, h, p: h**3,
    "root": lambda xp, h, p: xp.sqrt(xp.abs(h)),
    "sine": lambda xp, h, p: xp.sin(h),
    "cosine": lambda xp, h, p: xp.cos(h),
    "exp": lambda xp, h, p: xp.exp(-xp.abs(h)),
    "bias": lambda xp, h, p: h + p["v"],
    "gain": lambda xp, h, p: h * p["w"],
    "gate": lambda xp, h, p: h * xp.tanh(h @ p["m"]),
    "dense": lambda xp, h, p: h @ p["m"],
    "tied": lambda xp, h, p: h @ p["m"] @ p["m"].T,
    "residual": lambda xp, h, p: h + xp.maximum(h @ p["m"], 0),
    "threshold": lambda xp, h, p: xp.maximum(h, p["v"]),
    "clip": lambda xp, h, p: xp.clip(h, -1, 1),
    "shift": lambda xp, h, p: h + 0.5,
    "scale": lambda xp, h, p: 2 * h,
    "scalar": lambda xp, h, p: h * p["scalar"],
    "centre": lambda xp, h, p: h - h.mean(-1, keepdims=True),
    "rms": lambda xp, h, p: h / xp.sqrt((h * h).mean(-1, keepdims=True) + 1e-2),
    "batch rms": lambda xp, h, p: h / xp.sqrt((h * h).mean(0, keepdims=True)),
    "softmax": lambda xp, h, p: softmax(xp, h),
    "minmax": lambda xp, h, p: h - h.min(-1, keepdims=True) + h.max(0),
    "halves": lambda xp, h, p: xp.concatenate([h[:, :2], xp.tanh(h[:, 2:])], -1),
    "glu": lambda xp, h, p: xp.concatenate([h[:, :3] * h[:, 3:], h[:, 3:]], -1),
    "swap": lambda xp, h, p: xp.concatenate([h[:, 3:], h[:, :3]], -1),
    "matrix": lambda xp, h, p: (h.reshape(BATCH, 2, 3) * p["a"]).reshape(BATCH, HIDDEN),
    "transpose": lambda xp, h, p: xp.swapaxes(h.reshape(BATCH, 2, 3), 1, 2).reshape(BATCH, HIDDEN),
    "maxout": lambda xp, h, p: xp.repeat(h.reshape(BATCH, 2, 3).max(-1), 3, axis=-1),
    "group norm": lambda xp, h, p: (
        h.reshape(BATCH, 2, 3) - h.reshape(BATCH, 2, 3).mean(-1, keepdims=True)
    ).reshape(BATCH, HIDDEN),
    "attention": lambda xp, h, p: softmax(xp, h.T @ h)[0].sum() * h,
    "outer": lambda xp, h, p: (h[:, :, None] * h[:, None, :]).sum(1),
    "tile": lambda xp, h, p: xp.tile(h[:, :3], (1, 2)),
    "pad": lambda xp, h, p: xp.pad(h[:, 1:], ((0, 0), (0, 1))),
    "pad with one": lambda xp, h, p: xp.pad(h[:, 2:], ((0, 0), (2, 0)), constant_values=1.0),
    "broadcast": lambda xp, h, p: h + xp.zeros((BATCH, 1)),
    "divide": lambda xp, h, p: h / (1 + xp.abs(p["v"])),
    "ratio": lambda xp, h, p: h / (h.sum(-1, keepdims=True) ** 2 + 1),
    "power": lambda xp, h, p: xp.abs(h) ** 1.5,
    "compare": lambda xp, h, p: xp.where(h > p["v"], h, p["w"]),
    "equal": lambda xp, h, p: xp.where(h == h.max(-1, keepdims=True), h, 0),
    "crossed experts": lambda xp, h, p: xp.einsum("ebk,fkh->bh", xp.tanh(h @ p["up"]), p["down"]),
    "indexed layers": lambda xp, h, p: h + xp.maximum(h @ p["up"][0], 0) @ p["down"][0] + p["down"][2].sum(0),
    "gram": lambda xp, h, p: h * (p["a"] @ p["a"].T).sum(),
    "gram of columns": lambda xp, h, p: h * xp.tanh(p["a"].T @ p["a"]).sum(),
    "squared sum": lambda xp, h, p: h * xp.tanh(p["a"]).sum(),
    # Linear in the hidden units: matrices mix them.
    "linear": lambda xp, h, p: h @ p["m"] + h,
    "low rank": lambda xp, h, p: h @ p["up"][0] @ p["down"][0],
    "linear attention": lambda xp, h, p: (h @ h.T) @ h,
    "gram of units": lambda xp, h, p: h @ (h.T @ h),
    "rms by product": lambda xp, h, p: h / xp.sqrt(1 + xp.einsum("bh,bh->b", h, h)[:, None]),
    "layer norm": lambda xp, h, p: layer_norm(xp, h),
    "linear layers": lambda xp, h, p: loop(
        xp, lambda h, w: (h + h @ w[0] @ w[1], None), h, (p["up"], p["down"])
    )[0],
    "state": lambda xp, h, p: state_space(xp, h, p),
    "masked rows": lambda xp, h, p: xp.where(ROWS, h, 0),
    "gated by a norm": lambda xp, h, p: h * xp.tanh((h * h).sum(-1, keepdims=True)),
    "weighed norm": lambda xp, h, p: h * xp.tanh((h * h) @ xp.ones((HIDDEN, 1), h.dtype)),
    "tied linear": lambda xp, h, p: h @ (p["m"] + p["m"].T),
    # Nearly so: one use is not linear.
    "filled rows": lambda xp, h, p: xp.where(ROWS, h, -1.5),
    "bias that is constant": lambda xp, h, p: h + p["scalar"],
    "mean added": lambda xp, h, p: h + h.mean(-1, keepdims=True),
    "square kept": lambda xp, h, p: h * (h * h).sum(-1, keepdims=True) + h * h,
    "square bent": lambda xp, h, p: h * xp.tanh(h * h).sum(-1, keepdims=True),
    "square times": lambda xp, h, p: h * (h * h * h).sum(-1, keepdims=True),
    "norm with a gain": lambda xp, h, p: h / xp.sqrt(1 + (h * h).sum(-1, keepdims=True)) * p["w"],
    "square and plain": lambda xp, h, p: h * xp.tanh(h * h + h).sum(-1, keepdims=True),
    "weighed by a leaf": lambda xp, h, p: h * xp.tanh((h * h) @ p["w"])[:, None],
    "layer norm with a gain": lambda xp, h, p: layer_norm(xp, h) * p["w"] + p["v"],
    "exponential": lambda xp, h, p: xp.exp(0.1 * h),
    "reciprocal": lambda xp, h, p: h / (9 + h),
    "above a half": lambda xp, h, p: xp.where(h > 0.5, h, 0),
    "largest of rows": lambda xp, h, p: h + h.max(0),
    "bent state": lambda xp, h, p: xp.tanh(state_space(xp, h, p)),
    "constant broadcast": lambda xp, h, p: h + xp.ones((BATCH, HIDDEN), h.dtype) * p["scalar"],
    # Some leaf may be moved freely, or nearly so.
    "key bias": lambda xp, h, p: softmax(xp, h @ (h + p["v"]).T) @ h,
    "value bias": lambda xp, h, p: softmax(xp, h @ h.T) @ (h + p["v"]) + p["w"],
    "value bias before a gain": lambda xp, h, p: (softmax(xp, h @ h.T) @ (h @ p["m"] + p["v"])) * p["w"],
    "shift moves on": lambda xp, h, p: (layer_norm(xp, h) + p["v"]) @ p["m"] + p["w"],
    "two biases": lambda xp, h, p: xp.maximum((h + p["v"]) + (h @ p["m"] + p["w"]), 0),
    "gain, then read": lambda xp, h, p: (layer_norm(xp, h) * p["w"]) @ p["m"] + p["v"],
    "written, then centred": lambda xp, h, p: layer_norm(xp, h @ p["m"] + p["v"]),
    "softmax, then read": lambda xp, h, p: softmax(xp, h + p["v"]) @ p["m"] + p["w"],
    "variance in one pass": lambda xp, h, p: one_pass(xp, h @ p["m"] + p["v"]),
    "masked scores": lambda xp, h, p: softmax(xp, xp.where(SEEN, h @ (h + p["v"]).T, -np.inf)) @ h,
    "threshold moves along": lambda xp, h, p: xp.maximum(h + p["v"], p["w"]) @ p["m"],
    "centred along the rows": lambda xp, h, p: (h + p["v"]) - (h + p["v"]).mean(0),
    "key bias that is squared": lambda xp, h, p: softmax(xp, h @ (h + p["v"]).T ** 2) @ h,
    "key bias that is read twice": lambda xp, h, p: softmax(xp, h @ (h + p["v"]).T) @ (h + p["v"]),
    "scores of the other axis": lambda xp, h, p: softmax(xp, (h + p["v"]) @ h.T, 0) @ h,
    "mean of the other axis": lambda xp, h, p: square_rows(xp, h @ p["m"] + p["v"]),
    "nearly a variance": lambda xp, h, p: one_pass(xp, h @ p["m"] + p["v"], 0.5),
    "masked by a number": lambda xp, h, p: softmax(xp, xp.where(SEEN, h @ (h + p["v"]).T, -2.0)) @ h,
    "a quotient of other sums": lambda xp, h, p: xp.exp(h) / xp.exp(0.5 * h).sum(-1, keepdims=True) @ p["m"],
    "mean of a part": lambda xp, h, p: (
        (h @ p["m"] + p["v"]) - (h @ p["m"] + p["v"])[:, :3].mean(-1, keepdims=True)
    ),
    # Order matters in these: they are what wrong rules get wrong.
    "cumsum": lambda xp, h, p: xp.cumsum(h, -1),
    "argmax": lambda xp, h, p: h * xp.argmax(h, -1)[:, None],
    "reverse": lambda xp, h, p: h + xp.flip(h, -1),
    "sort": lambda xp, h, p: xp.sort(h, -1) + 0 * h,
    "sorted only": lambda xp, h, p: xp.sort(h, -1),
    "gather": lambda xp, h, p: h + h[:, PERMUTATION],
    "constant": lambda xp, h, p: h * CONSTANT.astype(h.dtype),
    "roll": lambda xp, h, p: h + xp.roll(h, 1, -1),
    "position": lambda xp, h, p: h + xp.arange(HIDDEN),
}


def scattered(xp, h, rows):
    """Rows added up by where they are sent."""
    if xp is np:
        total = np.zeros_like(h)
        np.add.at(total, rows, h)
        return total
    return jnp.zeros_like(h).at[rows].add(h)


def largest_sent(xp, h, rows, start):
    if xp is np:
        total = np.full_like(h, start)
        np.maximum.at(total, rows, h)
        return total
    return jnp.full_like(h, start).at[rows].max(h)


def ragged(xp, h, weights):
    """A matrix for the first row, another for the other two."""
    if xp is np:
        return np.concatenate([h[:1] @ weights[0], h[1:] @ weights[1]])
    return lax.ragged_dot(h, weights[:2], jnp.array([1, BATCH - 1], jnp.int32))


def spread(xp, h):
    """Less the mean over a mapped axis."""
    if xp is np:
        return h - h.mean(0)
    return jax.vmap(lambda row: row - lax.pmean(row, "batch"), axis_name="batch")(h)


def paired(xp, u):
    """Two units at a time, one bent and one not."""
    return xp.concatenate([u[..., 0], xp.maximum(u[..., 1], 0)], -1)


def gated(xp, u, p):
    return u[..., 0] * xp.tanh(u[..., 1]) @ p["down"][0][:2]


def even_times_odd(xp, u, p):
    return xp.maximum(u[:, ::2] * u[:, 1::2], 0) @ p["m"][:3]


def largest(xp, scores):
    """One where the first of the largest is, as of `jax.nn.one_hot`."""
    return (xp.argmax(scores, -1)[:, None] == xp.arange(HIDDEN)).astype(scores.dtype)


SENT = np.array([1, 1, 0], np.int32)
# What networks of later kinds are made of. What is read in parts is taken apart.
OPS |= {
    "fourier of rows": lambda xp, h, p: xp.fft.fft(h, axis=0).real,
    "fourier of units": lambda xp, h, p: xp.fft.fft(h, axis=-1).real,
    "complex": lambda xp, h, p: ((h + 1j * (h @ p["m"])) * (2 + 0j)).imag,
    "complex offset": lambda xp, h, p: (1j * h + 1).imag + (1j * h + 1).real,
    "messages": lambda xp, h, p: scattered(xp, h, SENT),
    "messages and one": lambda xp, h, p: scattered(xp, h, SENT) + 1,
    "largest message": lambda xp, h, p: xp.maximum(largest_sent(xp, h, SENT, -np.inf), 0),
    "largest message or one": lambda xp, h, p: largest_sent(xp, h, SENT, 1.0),
    "ragged": lambda xp, h, p: xp.maximum(ragged(xp, h, p["up"]), 0) @ p["down"][0],
    "ragged twice": lambda xp, h, p: ragged(xp, xp.maximum(ragged(xp, h, p["up"]), 0), p["down"]),
    "mean over the batch": lambda xp, h, p: spread(xp, h),
    "hard tanh": lambda xp, h, p: xp.where(h > 1, 1.0, xp.where(h < -1, -1.0, h)),
    "uneven clip": lambda xp, h, p: xp.clip(h, -1, 2),
    "uneven steps": lambda xp, h, p: xp.where(h > 1, 1.0, xp.where(h < -2, -2.0, h)),
    "conjugates": lambda xp, h, p: (1 + h) * (1 - h),
    "uneven conjugates": lambda xp, h, p: (1 + h) * (2 - h),
    "third root": lambda xp, h, p: xp.abs(h) ** 0.3333333,
    "interleaved": lambda xp, h, p: even_times_odd(xp, h @ p["m"], p),
    "gates side by side": lambda xp, h, p: gated(xp, (h @ p["up"][0]).reshape(BATCH, 2, 2), p),
    "gates in halves": lambda xp, h, p: gated(
        xp, xp.swapaxes((h @ p["up"][0]).reshape(BATCH, 2, 2), 1, 2), p
    ),
    "pairs of units": lambda xp, h, p: paired(xp, h.reshape(BATCH, 3, 2)),
    "halves of units": lambda xp, h, p: paired(xp, xp.swapaxes(h.reshape(BATCH, 2, 3), 1, 2)),
    "pairs and all": lambda xp, h, p: paired(xp, h.reshape(BATCH, 3, 2)) + h,
    "even and odd": lambda xp, h, p: xp.concatenate([h[:, ::2], -h[:, 1::2]], -1),
    "every third": lambda xp, h, p: xp.concatenate([h[:, ::3], h[:, 1::3], xp.tanh(h[:, 2::3])], -1),
    # The largest, where it is one and where it may be many.
    "largest kept": lambda xp, h, p: h * largest(xp, h),
    "largest of scores": lambda xp, h, p: h * largest(xp, h @ p["m"] + p["v"]),
    "largest of scores alone": lambda xp, h, p: h * largest(xp, h @ p["m"]),
    "largest of scores cut off": lambda xp, h, p: h * largest(xp, xp.maximum(h @ p["m"] + p["v"], 0)),
    "largest of signs": lambda xp, h, p: h * largest(xp, xp.sign(h @ p["m"] + p["v"])),
    "row of the largest": lambda xp, h, p: h * p["m"][xp.argmax(softmax(xp, h @ p["m"] + p["w"]), -1)],
    "row of the nearest": lambda xp, h, p: p["m"][xp.argmin(((h[:, None] - p["m"]) ** 2).sum(-1), -1)],
    "columns of layers": lambda xp, h, p: xp.tanh(h @ p["up"][:, :, 0].T) @ p["down"][:, 0],
}

LINEAR_STEPS = (
    *("linear attention", "gram of units", "rms by product", "masked rows", "gated by a norm", "scale"),
    *("weighed norm", "rms", "broadcast", "scalar"),
)
"""They leave matrices of the hidden units: any invertible ones, or orthogonal ones."""
NEAR_MISSES = (
    *("bias that is constant", "gain", "norm with a gain", "square kept", "square bent", "square times"),
    *("square and plain", "weighed by a leaf", "layer norm with a gain", "exponential", "reciprocal"),
    *("above a half", "largest of rows", "filled rows", "mean added", "constant broadcast", "shift"),
)
"""One of them between linear steps takes the matrices away, but for those that fix the vector of ones."""


def along(u, numbers):
    """Three numbers along the first axis."""
    return np.asarray(numbers, u.dtype).reshape(EXPERTS, *[1] * (u.ndim - 1))


def padded(xp, u, value):
    """Two rows, because an axis of length 1 cannot be rescaled."""
    return xp.pad(u[2:], ((0, 2), *[(0, 0)] * (u.ndim - 1)), constant_values=value)


def running_maximum(xp, u):
    return np.maximum.accumulate(u, 0) if xp is np else lax.cummax(u, 0)


def raised_rows(xp, u):
    if xp is np:
        u = u.copy()
        u[[0, 2]] += 1
        return u
    return u.at[np.array([0, 2])].add(1)


def moving_slice(xp, u):
    part = u[1:] if xp is np else lax.dynamic_slice_in_dim(u, jnp.int32(1), EXPERTS - 1)
    return xp.concatenate([u[:1], part])


# Each maps an array (EXPERTS, ...) to another of the same shape.
OVER = {
    "same": lambda xp, u, p: u,
    "relu": lambda xp, u, p: xp.maximum(u, 0),
    "tanh": lambda xp, u, p: xp.tanh(u),
    "square": lambda xp, u, p: u * u,
    "gated": lambda xp, u, p: u * p["gate"].reshape(-1, *[1] * (u.ndim - 1)),
    "shifted by a gate": lambda xp, u, p: u + p["gate"].reshape(-1, *[1] * (u.ndim - 1)),
    "mixed": lambda xp, u, p: xp.einsum("ef,f...->e...", p["mix"], u),
    "centred": lambda xp, u, p: u - u.mean(0),
    "softmax": lambda xp, u, p: softmax(xp, u, 0),
    "largest": lambda xp, u, p: xp.maximum(u, u.max(0)),
    "less the first": lambda xp, u, p: u - u[:1],
    "units reversed": lambda xp, u, p: xp.flip(u, -1),
    "units accumulated": lambda xp, u, p: xp.cumsum(u, -1),
    "units weighed": lambda xp, u, p: u * np.arange(1, 1 + u.shape[-1], dtype=u.dtype),
    # Order matters along the experts.
    "reversed": lambda xp, u, p: xp.flip(u, 0),
    "reversed and added": lambda xp, u, p: u + xp.flip(u, 0),
    "accumulated": lambda xp, u, p: xp.cumsum(u, 0),
    "multiplied up": lambda xp, u, p: xp.cumprod(u, 0),
    "running maximum": lambda xp, u, p: running_maximum(xp, u),
    "rolled": lambda xp, u, p: xp.roll(u, 1, 0),
    "sorted": lambda xp, u, p: xp.sort(u, 0),
    "best": lambda xp, u, p: u * xp.argmax(u, 0),
    "gathered": lambda xp, u, p: u[np.array([2, 0, 1])],
    "taken twice": lambda xp, u, p: u[np.array([0, 0, 2])],
    "one row": lambda xp, u, p: u[np.zeros(EXPERTS, int)],
    "weighed": lambda xp, u, p: u * along(u, [1, 2, 3]),
    "weighed in part": lambda xp, u, p: u * along(u, [1, 1, 2]),
    "shifted": lambda xp, u, p: u + along(u, [0, 1, 0]),
    "masked": lambda xp, u, p: xp.where(along(u, [1, 1, 0]) > 0, u, 0),
    "positions": lambda xp, u, p: u + xp.arange(EXPERTS).reshape(-1, *[1] * (u.ndim - 1)),
    "padded": lambda xp, u, p: padded(xp, u, 0.0),
    "padded with one": lambda xp, u, p: padded(xp, u, 1.0),
    "stacked": lambda xp, u, p: xp.stack([u[0], u[2], u[1]]),
    "strided": lambda xp, u, p: xp.concatenate([u[::2], u[1:2]]),
    "swapped": lambda xp, u, p: xp.concatenate([u[2:], u[:2]]),
    "replaced": lambda xp, u, p: xp.concatenate([0 * u[:1] + 1, u[1:]]),
    "raised": lambda xp, u, p: raised_rows(xp, u),
    "moving slice": lambda xp, u, p: moving_slice(xp, u),
}


def loop(xp, step, carry, scanned):
    """`lax.scan`, and what it means."""
    if xp is jnp:
        return lax.scan(step, carry, scanned)
    results = []
    for weights in zip(*scanned, strict=True):
        carry, result = step(carry, weights)
        results.append(result)
    return carry, None if results[0] is None else np.stack(results)


def mapped(xp, function, arrays):
    """`lax.map`, and what it means."""
    if xp is jnp:
        return lax.map(function, arrays)
    return np.stack([function(each) for each in zip(*arrays, strict=True)])


def experts(xp, h, p, at):
    hidden = at("hidden", xp.maximum(h @ at("up", p["up"]), 0))
    return at("results", hidden @ at("down", p["down"])).sum(0)


def gated_experts(xp, h, p, at):
    hidden = at("hidden", xp.tanh(h @ at("up", p["up"])))
    results = at("results", hidden @ at("down", p["down"]))
    return xp.einsum("e,ebh->bh", softmax(xp, p["gate"]), results)


def mapped_experts(xp, h, p, at):
    arrays = at("up", p["up"]), at("down", p["down"])
    return at("results", mapped(xp, lambda w: xp.maximum(h @ w[0], 0) @ w[1], arrays)).sum(0)


def heads(xp, h, p, at):
    q = at("hidden", h @ at("up", p["up"]))
    attended = at("results", softmax(xp, q @ xp.swapaxes(q, 1, 2)) @ q)
    return xp.einsum("ebk,ekh->bh", attended, at("down", p["down"]))


def packed_heads(xp, h, p, at):
    """Heads laid out on one axis with their channels."""
    u = xp.swapaxes(h.reshape(BATCH, EXPERTS, 2), 0, 1)
    u = at("results", at("hidden", u))
    return xp.swapaxes(u, 0, 1).reshape(BATCH, HIDDEN)


def layers(xp, h, p, at):
    def step(h, w):
        return h + xp.maximum(h @ w[0], 0) @ w[1], None

    return loop(xp, step, h, (at("up", p["up"]), at("down", p["down"])))[0]


def collected_layers(xp, h, p, at):
    """Hidden activations leave the loop and are read afterwards."""

    def step(h, w):
        hidden = xp.tanh(h @ w[0])
        return h + hidden @ w[1], hidden

    h, hidden = loop(xp, step, h, (at("up", p["up"]), at("down", p["down"])))
    return h + xp.einsum("ebk,ekh->bh", at("hidden", hidden), at("results", p["down"]))


ALL_BLOCKS = (experts, gated_experts, mapped_experts, heads, packed_heads, layers, collected_layers)
BLOCKS = {block.__name__: block for block in ALL_BLOCKS}
PLACES = ("up", "hidden", "down", "results")


def take_step(xp, name, h, params):
    if "/" not in name:
        return OPS[name](xp, h, params)
    block, place, operations = name.split("/")

    def at(here, u):
        for operation in operations.split("+") if here == place else ():
            u = OVER[operation](xp, u, params)
        return u

    return BLOCKS[block](xp, h, params, at)


def program(xp, names):
    def apply(params, x):
        h = x @ params["in"]
        for name in names:
            h = take_step(xp, name, h, params)
        return h @ params["out"]

    return apply


def random_step(random):
    """An operation on hidden units, or, as often, operations on the axis of experts, heads or layers."""
    if random.integers(2):
        return str(random.choice(list(OPS)))
    operations = random.choice(list(OVER), random.integers(1, 3))
    return f"{random.choice(list(BLOCKS))}/{random.choice(PLACES)}/{'+'.join(operations)}"


def random_names(random, *, containing=None):
    names = [random_step(random) for _ in range(random.integers(1, 5))]
    return [*names[:2], containing, *names[2:]] if containing else names


def linear_names(random):
    """Steps that use the hidden units linearly."""
    return [str(name) for name in random.choice(LINEAR_STEPS, random.integers(1, 4))]


def nearly_linear_names(random):
    """The same with one step among them that does not."""
    names = linear_names(random)
    names.insert(random.integers(0, len(names) + 1), str(random.choice(NEAR_MISSES)))
    return names
