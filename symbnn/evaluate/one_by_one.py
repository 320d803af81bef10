"""Networks that convolve, applied one after the other, as CPUs want them.

Side by side (`vmap`), kernels of several networks are one grouped convolution, which CPUs are slow at: a
ResNet-20 takes six times as long per image so. Inside a compiled loop convolutions do without threads
(github.com/jax-ml/jax/issues/12868). So the host goes through networks and blocks of inputs, and runs one
program for one network at one block, spread over all CPU devices; what it gives is summarised as in
`symbnn.evaluate.stream`. Which networks this is for is read from their program.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from symbnn import tree
from symbnn.evaluate.given import Apply
from symbnn.packed import packed
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
    return has_convolution(_traced.trace(apply, network, some).jaxpr)


@functools.partial(jax.jit, static_argnums=0)
def _traced(apply: Apply, network: Any, inputs: jax.Array) -> Any:
    return apply(network, inputs)


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
    # Networks of weight zero repeat those of another block: they are left out, as each takes its time.
    numbers = np.flatnonzero(weights).tolist()
    given = (apply, samples, numbers, inputs, block_inputs)
    outputs_at = _inputs_on_devices(*given) if mesh_axis is None else _networks_on_devices(mesh_axis, *given)
    known, summed = 0, []
    # The last part is as long as the others, so one shape is compiled; what is known is cut off.
    for start, outputs in outputs_at:
        new = _summarised(summarise, outputs, np.asarray(weights)[numbers])
        summed.append((known - start, new))
        known = start + outputs[0].shape[1]
        jax.block_until_ready(summed[-2:-1])
    # From the devices that images were spread over back to one.
    gathered = [(known, jax.device_get(new) if mesh_axis is None else new) for known, new in summed]
    parts = [jax.tree.map(lambda leaf, known=known: leaf[:, known:], new) for known, new in gathered]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), *parts)


def _inputs_on_devices(
    apply: Apply, samples: Samples, numbers: Sequence[int], inputs: jax.Array, block_inputs: int
) -> Iterator[tuple[int, list[jax.Array]]]:
    """Where a part starts, and outputs `(1, size, ...)` of every network there; images lie on all devices."""
    count = inputs.shape[0]
    shards = min(len(jax.local_devices()), count, block_inputs)
    size = shards * min(BLOCK_IMAGES, block_inputs // shards, count // shards)
    mesh = Mesh(np.array(jax.local_devices()[:shards]), ("inputs",))
    # On CPUs without a copy. One network at a time goes to the devices: each would copy all of them.
    networks = jax.tree.map(np.asarray, samples)
    for start in _starts(count, size):
        some = jax.device_put(inputs[start : start + size], NamedSharding(mesh, PartitionSpec("inputs")))
        yield start, _one_ahead(_of_one(apply, mesh, tree.take(networks, number), some) for number in numbers)


def _networks_on_devices(
    mesh_axis: NamedSharding,
    apply: Apply,
    samples: Samples,
    numbers: Sequence[int],
    inputs: jax.Array,
    block_inputs: int,
) -> Iterator[tuple[int, list[jax.Array]]]:
    """The same `(devices, size, ...)` of networks that lie on devices: each does its own."""
    count = inputs.shape[0]
    size = min(BLOCK_IMAGES, block_inputs, count)
    for start in _starts(count, size):
        given = apply, size, mesh_axis, samples
        yield start, _one_ahead(_of_each(*given, number, inputs, start) for number in numbers)


def _starts(count: int, size: int) -> list[int]:
    return [min(start, count - size) for start in range(0, count, size)]


def _one_ahead(outputs: Iterable[jax.Array]) -> list[jax.Array]:
    """All of them, one ahead of the device, so that it never waits; no more, as activations take memory."""
    each: list[jax.Array] = []
    for one in outputs:
        each.append(one)
        jax.block_until_ready(each[-2:-1])
    return each


@functools.partial(jax.jit, static_argnums=(0, 1))
def _of_one(apply: Apply, mesh: Mesh, network: Any, inputs: jax.Array) -> jax.Array:
    split = PartitionSpec("inputs")
    specs = (PartitionSpec(), split)
    spread = jax.shard_map(packed(apply), mesh=mesh, in_specs=specs, out_specs=split, check_vma=False)
    return spread(network, inputs)[None]


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _of_each(
    apply: Apply,
    size: int,
    mesh_axis: NamedSharding,
    samples: Samples,
    number: Any,
    inputs: jax.Array,
    start: Any,
) -> jax.Array:
    def local(samples: Samples, inputs: jax.Array) -> jax.Array:
        network = tree.take(samples, number)
        return packed(apply)(network, lax.dynamic_slice_in_dim(inputs, start, size))[None]

    specs = (mesh_axis.spec, PartitionSpec())
    mapped = jax.shard_map(
        local, mesh=mesh_axis.mesh, in_specs=specs, out_specs=mesh_axis.spec, check_vma=False
    )
    return mapped(samples, inputs)


@functools.partial(jax.jit, static_argnums=0)
def _summarised(summarise: Any, outputs: list[jax.Array], weights: jax.Array) -> Any:
    return jax.vmap(summarise, in_axes=(0, None))(jnp.stack(outputs, axis=1), weights)
