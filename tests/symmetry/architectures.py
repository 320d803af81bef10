"""Every network of these tests, in a shape in which inputs and outputs see all of it, by name.

Where inputs have fewer dimensions than the units they reach, or outputs fewer than the units they read, a
network has directions that nothing sees: they belong to the shape and to no architecture. `WIDER` replaces
those shapes. Weights are normal, of size 1 / sqrt(fan-in); what must be positive is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from symbnn import models, tree
from tests.symmetry import gpt
from tests.symmetry.cases import CASES, inputs
from tests.symmetry.cases.base import is_shape
from tests.symmetry.discovery.test_discover_frameworks import NETS
from tests.symmetry.discovery.test_kinds import LINEAR

POSITIVE = ("var", "scale", "gain", "gamma", "epsilon")


class Network(NamedTuple):
    apply: Callable[..., Any]
    params: Any
    inputs: np.ndarray


class Wider(NamedTuple):
    shapes: dict[str, tuple[int, ...]]
    input_shape: tuple[int, ...]


WIDER = {
    "scanned_layers": Wider({"in": (7, 6), "out": (6, 6)}, (3, 7)),
    "mixer": Wider({"in": (5, 4), "out": (4, 4)}, (3, 5, 5)),
    "split_qkv": Wider({"out": (3, 4)}, (3, 5, 4)),
    "packed_heads": Wider({"out": (6, 4)}, (3, 5, 4)),
    "unstacked_heads": Wider({"qkv": (3, 6, 5), "out": (5, 6)}, (3, 6, 6)),
    "sorted_units": Wider({"in": (6, 5), "out": (5, 5)}, (3, 6)),
    "deep linear net": Wider({"a": (6, 5), "b": (5, 5), "c": (5, 5)}, (4, 6)),
    "low-rank convolution": Wider({"down": (3, 3, 4, 3), "out": (3, 3, 4, 4)}, (2, 5, 5, 4)),
    "attention with biases": Wider({"out": (2, 3, 7)}, (3, 5, 4)),
    "masked attention": Wider({"in": (7, 6), "out": (6, 6)}, (2, 5, 7)),
    "stream of RMSNorm": Wider({"in": (7, 6), "out": (6, 6)}, (4, 7)),
    "stream of LayerNorm": Wider({"in": (7, 6), "out": (6, 6)}, (4, 7)),
    "tied linear autoencoder": Wider({"kernel": (6, 5)}, (4, 6)),
    "distances": Wider({"in": (6, 5), "prototypes": (24, 5), "out": (24, 6)}, (4, 6)),
    "state space": Wider({"in": (5, 4), "out": (4, 4)}, (6, 2, 5)),
    "squeeze_excite": Wider({"conv": (3, 3, 2, 4), "out": (4, 4)}, (3, 4, 4, 2)),
}


def weights(shapes, seed: int = 0):
    """Normal weights of size 1 / sqrt(fan-in); vectors that are gains or variances between 0.5 and 1.5."""
    random = np.random.default_rng(seed)

    def leaf(name, shape):
        if any(word in name.split("/")[-1].lower() for word in POSITIVE):
            return np.float32(random.uniform(0.5, 1.5, shape))
        fan_in = int(np.prod(shape[:-1])) if len(shape) > 1 else 4
        return np.float32(random.normal(size=shape) / np.sqrt(fan_in))

    names = tree.leaf_names(jax.tree.map(np.zeros, shapes, is_leaf=is_shape))
    leaves, structure = jax.tree.flatten(shapes, is_leaf=is_shape)
    return jax.tree.unflatten(structure, [leaf(*pair) for pair in zip(names, leaves, strict=True)])


def of_case(name: str) -> Network:
    case = CASES[name]() if name in CASES else LINEAR[name]
    wider = WIDER.get(name, Wider({}, case.input_shape))
    shapes = case.shapes | wider.shapes if wider.shapes else case.shapes
    # Wide inputs, because some networks read them as tokens.
    return Network(case.apply, weights(shapes), 2 * inputs(wider.input_shape))


def of_framework(name: str) -> Network:
    build, shape, _ = NETS[name]
    net = build()
    return Network(net.apply, weights(jax.tree.map(np.shape, net.params)), inputs(shape))


def of_gpt(**settings) -> Network:
    shapes = gpt.shapes(**settings)
    tokens = np.arange(24).reshape(-1, shapes["positions"][0]) % shapes["tokens"][0]
    return Network(gpt.apply, weights(shapes), tokens)


def of_model(name: str, input_shape: tuple[int, ...], **settings) -> Network:
    model = models.create(name, input_shape, 4, **settings)
    shapes = jax.tree.map(lambda leaf: leaf.shape, jax.eval_shape(model.init, jax.random.key(0)))
    return Network(model.apply, weights(shapes), inputs((2, *input_shape)))


MODELS = {
    "model mlp": ("mlp", (6,), {"hidden": (5, 4)}),
    "model vit": ("vit", (8, 8, 3), {"dimension": 6, "depth": 2, "num_heads": 2, "mlp_units": 5}),
}
ARCHITECTURES: dict[str, Callable[[], Network]] = {
    **{name: lambda name=name: of_case(name) for name in (*CASES, *LINEAR)},
    **{name: lambda name=name: of_framework(name) for name in NETS},
    "tied GPT": lambda: of_gpt(tied=True, hidden=12, positions=4),
    "untied GPT": lambda: of_gpt(vocabulary=10, width=6, hidden=5, positions=4, layers=1),
    **{name: lambda call=call: of_model(call[0], call[1], **call[2]) for name, call in MODELS.items()},
}
