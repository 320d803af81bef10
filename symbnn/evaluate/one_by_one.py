"""Networks that convolve, applied one after the other, as CPUs want them.

Side by side (`vmap`), kernels of several networks are one grouped convolution, which CPUs are slow at: a
ResNet-20 takes six times as long per image so. Inside a compiled loop convolutions do without threads
(github.com/jax-ml/jax/issues/12868). So the host goes through networks and blocks of inputs, and runs one
program for one network at one block; what it gives is summarised as in `symbnn.evaluate.stream`. Which
networks this is for is read from their program.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from symbnn.evaluate.given import Apply
from symbnn.programs import has_convolution
from symbnn.types import Samples

# Images at a time: the activations of 64 stay in the cache (ResNet-20: 1.4 ms an image, 1.75 ms at 250).
BLOCK_IMAGES = 64


def is_wanted(apply: Apply, samples: Samples, inputs: Any, block_inputs: int) -> bool:
    """Whether the network convolves, on a CPU."""
    if jax.default_backend() != "cpu":
        return False
    network = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), samples)
    rows = min(block_inputs, inputs.shape[0])
    some = jax.ShapeDtypeStruct((rows, *inputs.shape[1:]), inputs.dtype)
    # Traced through jit, which remembers it for the same network function and shapes.
    return has_convolution(_of_one.trace(apply, network, some).jaxpr)


def summaries(
    apply: Apply,
    summarise: Any,
    block_inputs: int,
    mesh_axis: NamedSharding | None,
    samples: Samples,
    weights: Any,
    inputs: jax.Array,
) -> Any:
    """`summarise(outputs (samples, inputs, ...), weights)` at all inputs, with a leading axis of devices."""
    count = inputs.shape[0]
    size = min(block_inputs, BLOCK_IMAGES, count)
    # Networks of weight zero repeat those of another block: they are left out, as each takes its time.
    numbers = np.flatnonzero(weights)
    weights = np.asarray(weights)[numbers]
    parts = []
    for done in range(0, count, size):
        # The last block is as long as the others, so one shape is compiled; what is known is cut off.
        start = min(done, count - size)
        each: list[jax.Array] = []
        for number in numbers:
            each.append(_outputs(apply, size, mesh_axis, samples, number, inputs, start))
            # One ahead of the device, so that it never waits; no more, as activations take memory.
            jax.block_until_ready(each[-2:-1])
        new = _summarised(summarise, each, weights)
        parts.append(jax.tree.map(lambda leaf, known=done - start: leaf[:, known:], new))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), *parts)


@functools.partial(jax.jit, static_argnums=0)
def _of_one(apply: Apply, network: Any, inputs: jax.Array) -> Any:
    return apply(network, inputs)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _outputs(
    apply: Apply,
    size: int,
    mesh_axis: NamedSharding | None,
    samples: Samples,
    number: Any,
    inputs: jax.Array,
    start: Any,
) -> jax.Array:
    """Outputs `(devices, size, ...)` of the network `number` of every device, at inputs from `start`."""

    def local(samples: Samples, inputs: jax.Array) -> jax.Array:
        network = jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, number, keepdims=False), samples)
        return apply(network, lax.dynamic_slice_in_dim(inputs, start, size))[None]

    if mesh_axis is None:
        return local(samples, inputs)
    specs = (mesh_axis.spec, PartitionSpec())
    mapped = jax.shard_map(
        local, mesh=mesh_axis.mesh, in_specs=specs, out_specs=mesh_axis.spec, check_vma=False
    )
    return mapped(samples, inputs)


@functools.partial(jax.jit, static_argnums=0)
def _summarised(summarise: Any, outputs: list[jax.Array], weights: jax.Array) -> Any:
    return jax.vmap(summarise, in_axes=(0, None))(jnp.stack(outputs, axis=1), weights)
