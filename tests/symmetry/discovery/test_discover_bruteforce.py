"""Discovery against brute force: all permutations of all axes of tiny networks.

Every axis of every leaf is permuted on its own, in every way; those combinations that leave a generic
network's outputs alone are its symmetries of this form. The elements of the group that was found, as far as
they permute whole axes, must be exactly these: nothing is invented, nothing is missed. Elements that vary
over an axis are no permutations of whole axes; they must leave the outputs alone too.
"""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from symbnn import symmetry
from symbnn.symmetry.group import Element
from tests.symmetry.cases.base import batch_norm, bn, draw

BATCH, INPUTS = 4, 2


def conv(x, kernel, groups=1):
    """Along one axis, `(batch, position, channel)`."""
    return lax.conv_general_dilated(
        x, kernel, (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC"), feature_group_count=groups
    )


def attention(p, x):
    """Two heads of two channels over three tokens."""
    q, k, v = (jnp.einsum("btd,dhc->bthc", x, p[name]) for name in "qkv")
    weights = jax.nn.softmax(jnp.einsum("bqhc,bkhc->bhqk", q, k))
    return jnp.einsum("bhqk,bkhc,hcd->bqd", weights, v, p["o"])


def recurrent(p, x):
    def step(state, x):
        return jnp.tanh(x @ p["in"] + state @ p["state"]), None

    return lax.scan(step, jnp.zeros((BATCH, 3)), x.swapaxes(0, 1))[0] @ p["out"]


def experts(p, x):
    hidden = jax.nn.relu(jnp.einsum("bi,eih->ebh", x, p["up"]))
    return jnp.einsum("ebh,ehk,be->bk", hidden, p["down"], jax.nn.softmax(x @ p["gate"]))


def scanned(p, x):
    def layer(x, weights):
        return x + jax.nn.relu(x @ weights[0]) @ weights[1], None

    return lax.scan(layer, x, (p["up"], p["down"]))[0]


def indexed(p, x):
    for number in range(2):
        x = x + jax.nn.relu(x @ p["up"][number]) @ p["down"][number]
    return x


def pooled(x, p):
    return x.mean(1) @ p["out"]


# No unit may be dead on all inputs: any permutation of dead ones leaves the outputs alone.
IMAGE, TOKENS = (BATCH, 3, 2), (BATCH, 3, 2)
# shapes, function, input shape
NETWORKS = {
    "perceptron": (
        {"in": (2, 3), "bias": (3,), "out": (3, 2), "last": (2,)},
        lambda p, x: jax.nn.relu(x @ p["in"] + p["bias"]) @ p["out"] + p["last"],
        (BATCH, 2),
    ),
    "deep perceptron": (
        {"in": (2, 2), "hidden": (2, 3), "out": (3, 2)},
        lambda p, x: jnp.tanh(jax.nn.gelu(x @ p["in"]) @ p["hidden"]) @ p["out"],
        (BATCH, 2),
    ),
    "residual": (
        {"in": (2, 3), "up": (3, 2), "down": (2, 3), "out": (3, 2)},
        lambda p, x: (x @ p["in"] + jax.nn.relu(x @ p["in"] @ p["up"]) @ p["down"]) @ p["out"],
        (BATCH, 2),
    ),
    "tied autoencoder": (
        {"kernel": (2, 3), "bias": (3,)},
        lambda p, x: jax.nn.relu(x @ p["kernel"] + p["bias"]) @ p["kernel"].T,
        (BATCH, 2),
    ),
    "convolution": (
        {"conv": (2, 2, 3), "bias": (3,), "out": (3, 2)},
        lambda p, x: pooled(jax.nn.relu(conv(x, p["conv"]) + p["bias"]), p),
        IMAGE,
    ),
    "flattened convolution": (
        {"conv": (2, 2, 2), "out": (6, 2)},
        lambda p, x: jax.nn.relu(conv(x, p["conv"])).reshape(BATCH, 6) @ p["out"],
        IMAGE,
    ),
    "batch norm": (
        {"conv": (1, 2, 2), "bn": bn(2), "out": (2, 2)},
        lambda p, x: pooled(jax.nn.relu(batch_norm(p["bn"], conv(x, p["conv"]))), p),
        IMAGE,
    ),
    "grouped convolution": (
        {"conv": (1, 2, 4), "grouped": (1, 2, 4), "out": (4, 2)},
        lambda p, x: pooled(jnp.tanh(conv(jnp.tanh(conv(x, p["conv"])), p["grouped"], 2)), p),
        IMAGE,
    ),
    "depthwise convolution": (
        {"point": (1, 2, 3), "depth": (2, 1, 3), "out": (3, 2)},
        lambda p, x: pooled(jax.nn.relu(conv(jax.nn.relu(conv(x, p["point"])), p["depth"], 3)), p),
        IMAGE,
    ),
    "attention": (
        {"q": (2, 2, 2), "k": (2, 2, 2), "v": (2, 2, 2), "o": (2, 2, 2)},
        attention,
        TOKENS,
    ),
    "recurrent": ({"in": (2, 3), "state": (3, 3), "out": (3, 2)}, recurrent, TOKENS),
    "experts": ({"up": (2, 2, 2), "down": (2, 2, 2), "gate": (2, 2)}, experts, (BATCH, 2)),
    "scanned layers": ({"up": (2, 2, 3), "down": (2, 3, 2)}, scanned, (BATCH, 2)),
    "indexed layers": ({"up": (2, 2, 3), "down": (2, 3, 2)}, indexed, (BATCH, 2)),
    "maxout": (
        {"in": (2, 2, 3), "out": (2, 2)},
        lambda p, x: jnp.einsum("bi,iuk->buk", x, p["in"]).max(-1) @ p["out"],
        (BATCH, 2),
    ),
    "concatenation": (
        {"stem": (2, 2), "grow": (2, 2), "out": (4, 2)},
        lambda p, x: jnp.concatenate([x @ p["stem"], jax.nn.relu(x @ p["stem"] @ p["grow"])], -1) @ p["out"],
        (BATCH, 2),
    ),
    "masked": (
        {"in": (2, 3), "out": (3, 2)},
        lambda p, x: (jax.nn.relu(x @ p["in"]) * np.array([1.0, 2.0, 3.0])) @ p["out"],
        (BATCH, 2),
    ),
    "accumulated": (
        {"in": (2, 3), "out": (3, 2)},
        lambda p, x: jnp.cumsum(jax.nn.relu(x @ p["in"]), -1) @ p["out"],
        (BATCH, 2),
    ),
}
FAST = (
    "perceptron",
    "tied autoencoder",
    "convolution",
    "experts",
    "scanned layers",
    "indexed layers",
    "maxout",
)


def all_permutations(shapes) -> list[np.ndarray]:
    """For every axis of every leaf `(combinations, length)`: where each position is taken from."""
    lengths = [length for shape in jax.tree.leaves(shapes, is_leaf=is_shape) for length in shape]
    orders = [np.array(list(itertools.permutations(range(length)))) for length in lengths]
    grid = np.indices([len(order) for order in orders]).reshape(len(orders), -1)
    return [order[chosen] for order, chosen in zip(orders, grid, strict=True)]


def is_shape(node) -> bool:
    return isinstance(node, tuple)


def changes(apply, params, moved_params, x) -> np.ndarray:
    """By how much the outputs of moved networks differ, relative."""
    outputs = apply(params, x)
    moved = jax.jit(lambda many: lax.map(lambda one: apply(one, x), many, batch_size=32))(moved_params)
    return np.abs(np.asarray(moved - outputs)).reshape(len(moved), -1).max(1) / np.abs(outputs).max()


def by_axes(params, places):
    """Every leaf with its axes permuted, for all combinations."""
    remaining = iter(places)

    def moved(leaf):
        index = [next(remaining) for _ in range(leaf.ndim)]
        return jax.vmap(lambda *rows: leaf[jnp.ix_(*rows)])(*map(jnp.asarray, index))

    return jax.tree.map(moved, params)


def all_elements(spec) -> Element:
    """Every permutation of every group, on every fibre, stacked."""
    ways = [
        list(
            itertools.product(
                itertools.permutations(range(group.size)), repeat=math.prod(spec.shape(group)[:-1])
            )
        )
        for group in spec.groups
    ]
    chosen = list(zip(*itertools.product(*ways), strict=True))
    permutations = {
        group.name: jnp.asarray(rows).reshape(-1, *spec.shape(group))
        for group, rows in zip(spec.groups, chosen, strict=True)
    }
    return Element(permutations, {}, {})


def moved_by_all(spec, params):
    """The network moved by every element; once, as it is, if there is none."""
    if not spec.groups:
        return jax.tree.map(lambda leaf: leaf[None], params)
    return jax.jit(jax.vmap(lambda element: symmetry.act(spec, element, params)))(all_elements(spec))


def as_axes(moved: list[np.ndarray]) -> tuple[tuple[int, ...], ...] | None:
    """Moved places of every leaf as one permutation per axis; None if they are no such thing."""
    found = []
    for leaf in moved:
        places = np.arange(leaf.size).reshape(leaf.shape)
        origin = np.unravel_index(leaf, leaf.shape)
        axes = [
            np.moveaxis(part, axis, 0).reshape(leaf.shape[axis], -1)[:, 0] for axis, part in enumerate(origin)
        ]
        if not (places[np.ix_(*axes)] == leaf).all():
            return None
        found.extend(tuple(map(int, axis)) for axis in axes)
    return tuple(found)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in NETWORKS]
)
def test_what_is_found_is_what_there_is(name):
    shapes, apply, input_shape = NETWORKS[name]
    with jax.enable_x64(True):
        params = jax.tree.map(jnp.float64, draw(shapes, seed=3))
        x = jnp.asarray(np.random.default_rng(4).normal(size=input_shape))
        spec = symmetry.discover(apply, params, x)
        assert changes(apply, params, moved_by_all(spec, params), x).max() < 1e-9
        places = all_permutations(shapes)
        is_symmetry = changes(apply, params, by_axes(params, places), x) < 1e-9
        numbered = jax.tree.map(lambda leaf: jnp.arange(leaf.size).reshape(leaf.shape), params)
        moved = [np.asarray(leaf) for leaf in jax.tree.leaves(moved_by_all(spec, numbered))]
    there_are = {tuple(tuple(map(int, axis[row])) for axis in places) for row in np.flatnonzero(is_symmetry)}
    elements = [as_axes([leaf[row] for leaf in moved]) for row in range(len(moved[0]))]
    assert {axes for axes in elements if axes is not None} == there_are, spec.explain()
    assert len(there_are) > 1 or name in ("masked", "accumulated")
