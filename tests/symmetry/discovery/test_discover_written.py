"""Networks as users write them, of which discovery once missed something; and near misses of each.

Every network comes with the groups one derives by hand; a near miss differs in one detail that breaks what
the network beside it has. The slow tests try what is found in double precision.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from symbnn import symmetry
from tests.symmetry.cases import summary

ROWS, WIDTH = 8, 4
NETWORKS = {}


def network(expected, *, data=(ROWS, WIDTH), **shapes):
    """Register a network over weights of these shapes, with what must be found."""

    def register(function):
        NETWORKS[function.__name__] = function, shapes, data, sorted(expected)
        return function

    return register


def drawn(shapes, seed=0):
    random = np.random.default_rng(seed)
    return {name: np.float32(random.normal(size=shape)) for name, shape in shapes.items()}


def found(name):
    apply, shapes, data, expected = NETWORKS[name]
    params, x = drawn(shapes), np.float32(np.random.default_rng(1).normal(size=data))
    return symmetry.discover(apply, params, x), apply, params, x, expected


# Several layers in one array: fused queries, keys and values, stacked and interleaved gates.
HEADS, CHANNELS = 2, 3
FUSED = {"qkv": (4, 18), "bias": (18,), "out": (6, 4)}
ATTENTION = [(2, (), 0, 0), (3, (2,), 1, 1), (3, (2,), 1, 1)]
SHARED_ATTENTION = [(2, (), 0, 0), (3, (2,), 0, 1)]


def attend(q, k, v, out):
    """Over (heads, positions, channels)."""
    weights = jax.nn.softmax(q @ jnp.swapaxes(k, 1, 2) / CHANNELS**0.5)
    return jnp.swapaxes(weights @ v, 0, 1).reshape(ROWS, -1) @ out


@network(ATTENTION, **FUSED)
def fused_attention(p, x):
    """As timm writes it."""
    qkv = (x @ p["qkv"] + p["bias"]).reshape(ROWS, 3, HEADS, CHANNELS).transpose(1, 2, 0, 3)
    return attend(qkv[0], qkv[1], qkv[2], p["out"])


@network(ATTENTION, **FUSED)
def fused_attention_unpacked(p, x):
    q, k, v = jnp.moveaxis((x @ p["qkv"] + p["bias"]).reshape(ROWS, 3, HEADS, CHANNELS), 1, 0)
    return attend(*(jnp.swapaxes(each, 0, 1) for each in (q, k, v)), p["out"])


@network(ATTENTION, **FUSED)
def fused_attention_by_heads(p, x):
    """Every head with its own query, key and value beside each other."""
    qkv = (x @ p["qkv"] + p["bias"]).reshape(ROWS, HEADS, 3, CHANNELS)
    return attend(*(jnp.swapaxes(qkv[:, :, part], 0, 1) for part in range(3)), p["out"])


@network(ATTENTION, qkv=(4, 3, HEADS, CHANNELS), out=(6, 4))
def attention_stacked_in_one_array(p, x):
    q, k, v = jnp.einsum("nd,dshc->shnc", x, p["qkv"])
    return attend(q, k, v, p["out"])


@network(2 * ATTENTION, qkv=(2, 4, 18), out=(2, 6, 4))
def fused_attention_in_stacked_layers(p, x):
    for layer in range(2):
        qkv = (x @ p["qkv"][layer]).reshape(ROWS, 3, HEADS, CHANNELS).transpose(1, 2, 0, 3)
        x = attend(qkv[0], qkv[1], qkv[2], p["out"][layer]) + x
    return x


@network([(2, (2,), 0, 0), (3, (2, 2), 1, 1), (3, (2, 2), 1, 1)], qkv=(2, 4, 18), out=(2, 6, 4))
def fused_attention_in_scanned_layers(p, x):
    def layer(x, weights):
        qkv = (x @ weights[0]).reshape(ROWS, 3, HEADS, CHANNELS).transpose(1, 2, 0, 3)
        return x + attend(qkv[0], qkv[1], qkv[2], weights[1]), None

    return lax.scan(layer, x, (p["qkv"], p["out"]))[0]


@network(SHARED_ATTENTION, **FUSED)
def fused_attention_with_a_use_of_the_whole(p, x):
    """What is fused is also summed: queries, keys and values must move together."""
    qkv = (x @ p["qkv"] + p["bias"]).reshape(ROWS, 3, HEADS, CHANNELS).transpose(1, 2, 0, 3)
    return attend(qkv[0], qkv[1], qkv[2], p["out"]) * jnp.tanh(jnp.square(qkv.sum(0)).sum())


@network(SHARED_ATTENTION, **FUSED)
def fused_attention_with_parts_that_overlap(p, x):
    qkv = (x @ p["qkv"] + p["bias"]).reshape(ROWS, 3, HEADS, CHANNELS).transpose(1, 2, 0, 3)
    return attend(qkv[:2].sum(0), qkv[1], qkv[2], p["out"])


@network([(6, (), 1, 1)], kernel=(4, 2, 6), bias=(2, 6), out=(6, 2))
def stacked_gates(p, x):
    h = jnp.einsum("nd,dsf->nsf", x, p["kernel"]) + p["bias"]
    return jax.nn.gelu(h[:, 0]) * h[:, 1] @ p["out"]


@network([(6, (), 1, 1)], kernel=(4, 12), bias=(12,), out=(6, 2))
def gates_side_by_side(p, x):
    h = (x @ p["kernel"] + p["bias"]).reshape(ROWS, 6, 2)
    return jax.nn.gelu(h[..., 0]) * h[..., 1] @ p["out"]


@network([(6, (), 1, 1)], kernel=(4, 12), bias=(12,), out=(6, 2))
def interleaved_gates(p, x):
    h = x @ p["kernel"] + p["bias"]
    return jax.nn.gelu(h[:, ::2]) * h[:, 1::2] @ p["out"]


@network([(6, (), 0, 0)], kernel=(4, 12), bias=(12,), out=(6, 2))
def interleaved_gates_bent_together(p, x):
    h = jax.nn.gelu(x @ p["kernel"] + p["bias"])
    return h[:, ::2] * h[:, 1::2] @ p["out"]


@network([], kernel=(4, 12), out=(5, 2))
def steps_that_do_not_fit(p, x):
    h = x @ p["kernel"]
    return jax.nn.gelu(h[:, 0:10:2]) * h[:, 2:12:2] @ p["out"]


# Odd functions in other words.
ONE_LAYER = {"into": (4, 6), "bias": (6,), "out": (6, 2)}
ODD = {
    "hard tanh": jax.nn.hard_tanh,
    "clip": lambda h: jnp.clip(h, -1, 1),
    "clamp": lambda h: lax.clamp(-0.5, h, 0.5),
    "bounded below first": lambda h: jnp.maximum(jnp.minimum(h, 2.0), -2.0),
    "slope of tanh": lambda h: (lambda y: h * ((1 + y) * (1 - y)))(jnp.tanh(h)),
}
NOT_ODD = {
    "clip to unequal bounds": lambda h: jnp.clip(h, -1, 2),
    "relu6": jax.nn.relu6,
    "steps at unequal places": lambda h: jnp.where(h > 1, 1.0, jnp.where(h < -2, -2.0, h)),
    "steps to another number": lambda h: jnp.where(h > 1, 1.0, jnp.where(h < -1, 1.0, h)),
    "step of another value": lambda h: jnp.where(h > 1, 1.0, jnp.where(h + 1 < -1, -1.0, h)),
    "bounds the wrong way round": lambda h: jnp.minimum(jnp.maximum(h, 1.0), -1.0) + h * h,
    "unequal factors": lambda h: (lambda y: h * ((1 + y) * (2 - y)))(jnp.tanh(h)),
    "factors of two values": lambda h: (lambda y: h * ((1 + y) * (1 - 2 * y)))(jnp.tanh(h)),
}


def one_layer(bend):
    return lambda p, x: bend(x @ p["into"] + p["bias"]) @ p["out"]


NETWORKS |= {name: (one_layer(bend), ONE_LAYER, (ROWS, WIDTH), [(6, (), 0, 1)]) for name, bend in ODD.items()}
NETWORKS |= {
    name: (one_layer(bend), ONE_LAYER, (ROWS, WIDTH), [(6, (), 0, 0)]) for name, bend in NOT_ODD.items()
}


# Layers that a loop reads by its counter.
LAYERS = {"up": (3, 4, 6), "down": (3, 6, 4)}


def looped(index, other=lambda w, i: w[i]):
    def layer(p, i, h):
        return h + jax.nn.relu(h @ index(p["up"], i)) @ other(p["down"], i)

    return lambda p, x: lax.fori_loop(0, 3, lambda i, h: layer(p, i, h), x)


LOOPS = {
    "layers of a loop": (looped(lambda w, i: w[i]), [(6, (3,), 1, 0)]),
    "layers of a loop, one ahead": (looped(lambda w, i: w[i], lambda w, i: w[i - 1]), [(6, (), 1, 0)]),
    "layers of a loop, every second": (looped(lambda w, i: w[i // 2]), [(6, (), 1, 0)]),
    "the first layer of a loop": (looped(lambda w, i: w[0]), [(6, (), 1, 0)]),
}
NETWORKS |= {name: (apply, LAYERS, (ROWS, WIDTH), expected) for name, (apply, expected) in LOOPS.items()}


@network([(6, (), 1, 0)], **LAYERS)
def layers_scanned_backwards_and_counted(p, x):
    """The counter goes up while the scanned layers come down."""

    def layer(carry, up):
        h, i = carry
        return (h + jax.nn.relu(h @ up) @ p["down"][i], i + 1), None

    return lax.scan(layer, (x, 0), p["up"], reverse=True)[0][0]


# Experts that are chosen. Scores that may be equal, as those of dead units are, leave experts numbered.
EXPERTS = {"up": (3, 4, 6), "down": (3, 6, 2), "route": (4, 3), "prior": (3,), "gain": (4,), "shift": (4,)}
CHOSEN, NUMBERED = [(3, (), 0, 0), (6, (3,), 1, 0)], [(6, (3,), 1, 0)]


def all_experts(p, x):
    hidden = jax.nn.relu(jnp.einsum("bi,eih->ebh", x, p["up"]))
    return jnp.einsum("ebh,eho->beo", hidden, p["down"])


def best_expert(score, weight=lambda scores: jax.nn.softmax(scores)):
    """Top-1 routing by a one-hot vector."""

    def apply(p, x):
        scores = score(p, x)
        chosen = jax.nn.one_hot(jnp.argmax(scores, -1), 3)
        return jnp.einsum("be,be,beo->bo", weight(scores), chosen, all_experts(p, x))

    return apply


def normed(p, x):
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * p["gain"] + p["shift"]


def two_experts(p, x):
    weights, chosen = lax.top_k(jax.nn.softmax(x @ p["route"] + p["prior"]), 2)
    mixed = (jax.nn.one_hot(chosen, 3) * weights[..., None]).sum(1)
    return jnp.einsum("be,beo->bo", mixed, all_experts(p, x))


def gathered_experts(p, x):
    chosen = jnp.argmax(x @ p["route"] + p["prior"], -1)
    hidden = jax.nn.relu(jnp.einsum("bi,bih->bh", x, p["up"][chosen]))
    return jnp.einsum("bh,bho->bo", hidden, p["down"][chosen])


def experts_chosen_by_position(p, x):
    chosen = jax.nn.one_hot(jnp.argmax(x @ p["route"] + p["prior"] + jnp.arange(3.0), -1), 3)
    return jnp.einsum("be,beo->bo", chosen, all_experts(p, x))


def next_expert(p, x):
    chosen = jax.nn.one_hot((jnp.argmax(x @ p["route"] + p["prior"], -1) + 1) % 3, 3)
    return jnp.einsum("be,beo->bo", chosen, all_experts(p, x))


CHOICES = {
    "expert by a one-hot vector": (best_expert(lambda p, x: x @ p["route"] + p["prior"]), CHOSEN),
    "expert by softmax": (best_expert(lambda p, x: jax.nn.softmax(x @ p["route"] + p["prior"])), CHOSEN),
    "expert behind a norm": (best_expert(lambda p, x: normed(p, x) @ p["route"]), CHOSEN),
    "two experts": (two_experts, CHOSEN),
    "experts gathered": (gathered_experts, [(3, (), 0, 0), (6, (), 1, 0)]),
    "expert by data that may be zero": (best_expert(lambda p, x: x @ p["route"]), NUMBERED),
    "expert behind a relu": (best_expert(lambda p, x: jax.nn.relu(normed(p, x)) @ p["route"]), NUMBERED),
    "expert by scores cut off": (
        best_expert(lambda p, x: jax.nn.relu(x @ p["route"] + p["prior"])),
        NUMBERED,
    ),
    "expert by equal scores": (
        best_expert(lambda p, x: jnp.tile(normed(p, x).sum(-1, keepdims=True) + 1, (1, 3))),
        NUMBERED,
    ),
    "expert by scores that a number cuts off": (
        best_expert(lambda p, x: jnp.clip(x @ p["route"] + p["prior"], -1, 1)),
        NUMBERED,
    ),
    "expert by position": (experts_chosen_by_position, NUMBERED),
    "next expert": (next_expert, NUMBERED),
}
NETWORKS |= {name: (apply, EXPERTS, (ROWS, WIDTH), expected) for name, (apply, expected) in CHOICES.items()}


@network([(3, (), 0, 1), (7, (), 0, 0)], encode=(4, 3), codes=(7, 3), decode=(3, 2))
def code_book(p, x):
    """VQ: the nearest of many codes, with a gradient that goes past it."""
    z = x @ p["encode"]
    nearest = jnp.argmin(jnp.square(z[:, None] - p["codes"]).sum(-1), -1)
    return (z + lax.stop_gradient(p["codes"][nearest] - z)) @ p["decode"]


# Masks with equal rows (MADE). What differs between the blocks keeps them apart.
NUMBER = np.arange(4)


def masked(degrees, bend=jax.nn.relu):
    before = np.float32(NUMBER[:, None] <= degrees)
    after = np.float32(degrees[:, None] < NUMBER)
    return lambda p, x: bend(x @ (p["into"] * before) + p["bias"]) @ (p["out"] * after)


MASKED = {"into": (4, 6), "bias": (6,), "out": (6, 4)}
MASKS = {
    "masks in blocks": (masked(np.array([0, 0, 1, 1, 2, 2])), 3 * [(2, (), 1, 0)]),
    "masks in uneven blocks": (masked(np.array([0, 0, 0, 1, 2, 2])), [(2, (), 1, 0), (3, (), 1, 0)]),
    "masks in turn": (masked(np.array([0, 1, 2, 0, 1, 2])), [(2, (3,), 1, 0)]),
    "masks all over": (masked(np.array([0, 1, 2, 1, 0, 2])), []),
    "masks in blocks, added to their rest": (
        masked(np.array([0, 0, 1, 1, 2, 2]), lambda h: h + jnp.roll(h, 1, -1)),
        [],
    ),
}
NETWORKS |= {name: (apply, MASKED, (ROWS, WIDTH), expected) for name, (apply, expected) in MASKS.items()}


# Sums over mapped axes and over devices.


def batch_norm(h, p, mean):
    centred = h - mean(h)
    return centred * lax.rsqrt(mean(centred * centred) + 1e-5) * p["gain"] + p["shift"]


BATCH_NORM = {"into": (4, 6), "gain": (6,), "shift": (6,), "out": (6, 2)}


@network([(6, (), 1, 1)], **BATCH_NORM)
def batch_norm_in_training(p, x):
    def one(x):
        h = batch_norm(x @ p["into"], p, lambda h: lax.pmean(h, "batch"))
        return jax.nn.relu(h) @ p["out"]

    return jax.vmap(one, axis_name="batch")(x)


@network([(6, (), 0, 0)], **BATCH_NORM)
def mean_over_batch_and_bent(p, x):
    return jax.vmap(lambda x: jnp.exp(lax.pmean(x @ p["into"], "batch")) @ p["out"], axis_name="batch")(x)


def sharded(body, devices, specs):
    mesh = jax.sharding.AbstractMesh((devices,), ("model",))
    return jax.shard_map(body, mesh=mesh, in_specs=(specs, P()), out_specs=P())


COLUMNS_AND_ROWS = {"into": P(None, "model"), "out": P("model", None)}


def test_units_on_different_devices_stay_there():
    """Tensor parallelism: every device relabels the units that it has."""
    params = drawn({"into": (4, 6), "out": (6, 2)})
    x = np.float32(np.random.default_rng(1).normal(size=(5, 4)))

    def body(p, x):
        return lax.psum(jax.nn.relu(x @ p["into"]) @ p["out"], "model")

    spec = symmetry.discover(sharded(body, 2, COLUMNS_AND_ROWS), params, x)
    assert summary(spec) == [(3, (2,), 1, 0)]

    def whole(p, x):
        return jax.nn.relu(x @ p["into"]) @ p["out"]

    symmetry.verify(spec, whole, params, x, jax.random.key(0), float64=True).raise_if_broken()


def test_units_summed_over_devices_move_together():
    """A sum over devices adds units of the same place, so all devices relabel alike."""

    def body(p, x):
        return jnp.tanh(lax.psum(x @ p["into"], "model")) @ p["out"]

    params = drawn({"into": (4, 6), "out": (3, 2)})
    spec = symmetry.discover(
        sharded(body, 2, {"into": P(None, "model"), "out": P()}), params, np.ones((5, 4))
    )
    assert summary(spec) == [(3, (), 0, 1)]


def test_devices_that_count_themselves_are_understood_as_fixed():
    def body(p, x):
        hidden = jax.nn.relu(x @ p["into"]) * (1 + lax.axis_index("model"))
        return lax.psum(hidden @ p["out"], "model")

    params = drawn({"into": (4, 6), "out": (6, 2)})
    spec = symmetry.discover(sharded(body, 2, COLUMNS_AND_ROWS), params, np.ones((5, 4)))
    assert summary(spec) == [(3, (2,), 1, 0)]


# Fourier transforms along positions.


@network([(5, (), 1, 1), (5, (), 1, 0)], lift=(4, 5), real=(3, 5, 5), imag=(3, 5, 5), skip=(5, 5), out=(5, 2))
def fourier_neural_operator(p, x):
    h = x @ p["lift"]
    kept = jnp.fft.rfft(h, axis=0)[:3]
    mixed = jnp.einsum("kc,kcd->kd", kept, p["real"] + 1j * p["imag"])
    padded = jnp.zeros((ROWS // 2 + 1, 5), mixed.dtype).at[:3].set(mixed)
    return jax.nn.relu(jnp.fft.irfft(padded, n=ROWS, axis=0) + h @ p["skip"]) @ p["out"]


@network([(7, (), 1, 0)], lift=(4, 6), up=(6, 7), down=(7, 6), out=(6, 2))
def fourier_transform_of_channels(p, x):
    """FNet mixes positions and channels: the order of channels matters."""
    h = x @ p["lift"]
    h = h + jnp.fft.fft2(h).real
    return (h + jax.nn.relu(h @ p["up"]) @ p["down"]) @ p["out"]


def state_space_kernel(p):
    step = jnp.exp(p["step"])
    decay = (-jnp.exp(p["decay"]) + 1j * p["frequency"]) * step[:, None]
    weight = (p["real"] + 1j * p["imag"]) * (jnp.exp(decay) - 1.0)
    powers = jnp.exp(decay[:, :, None] * jnp.arange(ROWS))
    return 2 * jnp.einsum("hn,hnl->hl", weight, powers).real


STATES = dict.fromkeys(("decay", "frequency", "real", "imag"), (6, 3))


@network([(3, (6,), 0, 0), (6, (), 1, 2)], into=(4, 6), step=(6,), skip=(6,), out=(6, 2), **STATES)
def diagonal_state_space(p, x):
    """S4D: a convolution over time by Fourier transforms, one per channel."""
    u = (x @ p["into"]).T
    kernel = jnp.fft.rfft(state_space_kernel(p), n=2 * ROWS)
    y = jnp.fft.irfft(jnp.fft.rfft(u, n=2 * ROWS) * kernel, n=2 * ROWS)[:, :ROWS] + u * p["skip"][:, None]
    return jnp.tanh(y).T @ p["out"]


RECURRENCE = {"decay": (6,), "angle": (6,)} | dict.fromkeys(("real_in", "imag_in"), (6, 4))
RECURRENCE |= dict.fromkeys(("real_out", "imag_out"), (2, 6))


def recurrence(p, x, bend=lambda h: h):
    """LRU: a diagonal complex recurrence by an associative scan."""
    factor = jnp.exp(-jnp.exp(p["decay"]) + 1j * jnp.exp(p["angle"]))
    inputs = x @ (p["real_in"] + 1j * p["imag_in"]).T
    factors = jnp.tile(factor, (ROWS, 1))
    _, h = lax.associative_scan(lambda a, b: (b[0] * a[0], b[0] * a[1] + b[1]), (factors, inputs))
    return (bend(h) @ (p["real_out"] + 1j * p["imag_out"]).T).real


@network([(6, (), 1, 1)], **RECURRENCE)
def linear_recurrent_unit(p, x):
    return recurrence(p, x)


@network([(6, (), 0, 0)], **RECURRENCE)
def linear_recurrent_unit_with_an_offset(p, x):
    return recurrence(p, x, lambda h: h + 1j)


# Rows in groups, and messages.
SENDERS, RECEIVERS = np.int32([0, 1, 2, 3, 3, 1]), np.int32([1, 2, 0, 0, 2, 3])
MESSAGES = {"into": (4, 6), "message": (6, 6), "out": (6, 2)}


def messages(p, x, collect):
    sent = (jax.nn.relu(x @ p["into"]) @ p["message"])[SENDERS]
    return jax.nn.relu(collect(sent)) @ p["out"]


@network(2 * [(6, (), 1, 0)], **MESSAGES)
def message_passing(p, x):
    return messages(p, x, lambda sent: jax.ops.segment_sum(sent, RECEIVERS, ROWS))


@network(2 * [(6, (), 1, 0)], **MESSAGES)
def message_passing_by_the_largest(p, x):
    def largest(sent):
        return jnp.full((ROWS, 6), -jnp.inf, sent.dtype).at[RECEIVERS].max(sent)

    return messages(p, x, largest)


@network([(6, (), 1, 0), (6, (), 0, 0)], **MESSAGES)
def message_passing_onto_ones(p, x):
    return messages(p, x, lambda sent: jnp.ones((ROWS, 6), sent.dtype).at[RECEIVERS].add(sent))


@network([(6, (), 1, 0)], up=(3, 4, 6), down=(3, 6, 2))
def experts_in_ragged_groups(p, x):
    sizes = jnp.array([1, 3, 4], jnp.int32)
    return lax.ragged_dot(jax.nn.relu(lax.ragged_dot(x, p["up"], sizes)), p["down"], sizes)


# Powers are the fraction that the exponent rounds to, in the precision of the program.


def test_a_power_is_what_was_written():
    exponents = {1 / 3: "1/3", 0.3333333: "3333333/10000000", 1.5: "3/2", 0.1: "1/10"}
    for power, exponent in exponents.items():
        params = drawn({"into": (4, 6), "out": (6, 2)})
        spec = symmetry.discover(
            lambda p, x, k=power: jnp.abs(x @ p["into"]) ** k @ p["out"], params, np.ones((5, 4))
        )
        (scale,) = next(factor.scales for _, factor in spec.leaves[1].factors() if factor.scales)
        assert str(scale) == "-" + exponent


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_there_is_found(name):
    spec, *_, expected = found(name)
    assert summary(spec) == expected, spec.explain()


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_found_is_there(name):
    spec, apply, params, x, _ = found(name)
    if spec.groups:
        key = jax.random.key(0)
        symmetry.verify(spec, apply, params, x, key, float64=True, tolerance=1e-9).raise_if_broken()
