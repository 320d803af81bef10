"""The last layer as a network of its own, on what enters it: that is computed once for every image.

outputs(x) = features(x) · kernel + bias,   so   features(x) = ∂ first output / ∂ first column of the kernel
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.problem import Problem
from symbnn import models, tree
from symbnn.inference.last_layer import last_layer
from symbnn.types import Params, Samples

# Images at a time, whose activations stay in a CPU's cache.
BLOCK = 100


class Head(NamedTuple):
    """The last layer of a network, by the names of its leaves."""

    kernel: str
    bias: str

    def of(self, network: Params) -> Params:
        """Its weights, as the parameters of `head_model`."""
        leaves = tree.named_leaves(network)
        return {"kernel": leaves[self.kernel], "bias": leaves[self.bias]}


def find_head(problem: Problem) -> Head:
    """The last layer; `ValueError` unless it is a matrix and a vector."""
    names = last_layer(problem.model.apply, problem.shapes, problem.inputs[:1])
    shapes = {name: tree.named_leaves(problem.shapes)[name].shape for name in names}
    by_rank = {len(shape): name for name, shape in shapes.items()}
    if sorted(map(len, shapes.values())) != [1, 2]:
        raise ValueError(
            f"--last-layer: that of {problem.network} has leaves {shapes}; a kernel and a bias are needed, "
            "so vary the whole network instead"
        )
    return Head(by_rank[2], by_rank[1])


def features(problem: Problem, head: Head, network: Params, images: Any) -> np.ndarray:
    """What enters the last layer, (images, features); blocks of images are dealt to the devices in turns."""
    devices = jax.local_devices()
    networks = [jax.device_put(network, device) for device in devices]
    parts: list[jax.Array] = []
    for number, start in enumerate(range(0, len(images), BLOCK)):
        turn = number % len(devices)
        block = jax.device_put(np.asarray(images[start : start + BLOCK]), devices[turn])
        parts.append(_features(problem.model.apply, head.kernel, networks[turn], block))
        # Two blocks for every device at a time, so that none waits; no more, as activations take memory.
        jax.block_until_ready(parts[: 1 - 2 * len(devices)][-1:])
    return np.concatenate([np.asarray(part) for part in parts])


@functools.partial(jax.jit, static_argnums=(0, 1))
def _features(apply: Any, kernel: str, network: Params, images: jax.Array) -> jax.Array:
    def first_output(column: jax.Array) -> jax.Array:
        def leaf(name: str, array: jax.Array) -> jax.Array:
            return array.at[:, 0].set(column) if name == kernel else array

        return apply(tree.map_named(leaf, network), images)[:, 0]

    return jax.jacfwd(first_output)(tree.named_leaves(network)[kernel][:, 0])


def _outputs(weights: Params, inputs: jax.Array) -> jax.Array:
    return inputs @ weights["kernel"] + weights["bias"]


@functools.lru_cache(maxsize=8)
def head_model(num_features: int, num_classes: int) -> models.Model:
    """The last layer as a `Model`; equal arguments give the same one, so that programs compile once."""

    def init(key: jax.Array) -> Params:
        kernel = jax.random.normal(key, (num_features, num_classes)) / np.sqrt(num_features)
        return {"kernel": kernel, "bias": jnp.zeros(num_classes)}

    return models.wrap(_outputs, jax.ShapeDtypeStruct((2, num_features), jnp.float32), init=init)


@jax.jit
def probabilities(heads: Samples, inputs: jax.Array) -> jax.Array:
    """Of every one of the stacked last layers, (heads, images, classes)."""
    return jax.nn.softmax(jax.vmap(_outputs, in_axes=(0, None))(heads, inputs))
