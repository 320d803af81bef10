"""Networks applied to inputs block by block, each block of outputs folded into statistics at once.

    for a block of samples:             taken from the tree, drawn from a posterior, or read from a store
        for a block of inputs:          inside one compiled scan
            statistics = summarise(apply(samples, inputs))
        total = merge(total, statistics)

`(summarise, merge)` is a commutative monoid (`Reduction`), so the result depends neither on the block sizes
nor on how many devices hold the samples. The last block is as long as the others: it starts earlier, and what
was already counted gets weight zero, so one shape is compiled. Memory holds one block of samples and of
activations.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from symbnn import keys, tree
from symbnn.evaluate import one_by_one
from symbnn.evaluate.given import Apply, count_samples, is_chunked, is_posterior, kept
from symbnn.frameworks import check_apply
from symbnn.types import Key, Samples


class Reduction(NamedTuple):
    """How outputs become statistics. Compiled once per pair of functions: build it once, not per call."""

    summarise: Callable[..., Any]
    """`(outputs (samples, inputs, ...), weights (samples,)) -> tree of (inputs, ...)`."""
    merge: Callable[[Any, Any], Any]


class Block(NamedTuple):
    """Some samples, and weight zero for those that an earlier block has counted."""

    samples: Samples
    weights: Any


def fold(
    apply: Apply,
    samples: Any,
    inputs: Any,
    reduction: Reduction,
    *,
    block_samples: int,
    block_inputs: int,
    key: Key | None = None,
    num_samples: int | None = None,
) -> Any:
    """Statistics of all samples at all inputs; the settings are those of `predict`."""
    check_apply(apply)
    check_inputs(inputs, block_samples, block_inputs)
    samples = kept(samples, key)
    mesh_axis = sample_axis(samples)
    inputs = replicate(mesh_axis, inputs)
    step = functools.partial(statistics, apply, reduction.summarise, block_inputs, mesh_axis)
    total = None
    for block in blocks(samples, block_samples, key=key, num_samples=num_samples):
        new = step(block, inputs)
        total = new if total is None else _merge(reduction, total, new)
    return _merge_devices(reduction, total)


def blocks(
    samples: Any, size: int, *, key: Key | None = None, num_samples: int | None = None
) -> Iterator[Block]:
    """The samples in blocks of one shape; draw `i` of a posterior is made here from `fold_in(key, i)`."""
    samples = kept(samples, key)
    if is_chunked(samples):
        yield from _read(samples, size)
        return
    mesh_axis = sample_axis(samples)
    samples = samples if mesh_axis is None else jax.device_put(samples, mesh_axis)
    shards = 1 if mesh_axis is None else mesh_axis.mesh.shape[mesh_axis.spec[0]]
    count = count_samples(samples, key, num_samples) // shards
    size = min(size, count)
    for done in range(0, count, size):
        start = min(done, count - size)
        weights = (np.arange(start, start + size) >= done).astype(np.float32)
        yield Block(_take(samples, start, size, key, mesh_axis), weights)


def _read(posterior: Any, size: int) -> Iterator[Block]:
    """Blocks of every chunk, in the order in which they are stored."""
    for chunk in posterior.chunks():
        yield from blocks(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), chunk), size)


def sample_axis(samples: Any) -> NamedSharding | None:
    """The sharding of the sample axis, if every leaf is split over one mesh axis along it and no other."""
    if is_posterior(samples):
        return None
    shardings = {getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(samples)}
    specs = {getattr(sharding, "spec", PartitionSpec()) for sharding in shardings}
    names = {tuple(axis for axis in spec if axis is not None) for spec in specs}
    sharding = next(iter(shardings), None)
    if len(names) != 1 or not isinstance(sharding, NamedSharding):
        return None
    axes = next(iter(names))
    if len(axes) != 1 or not isinstance(axes[0], str) or any(spec[0] is None for spec in specs):
        return None
    if isinstance(sharding.mesh, AbstractMesh):
        return None
    # The same devices with automatic axes: an explicit mesh forbids most operations on a split axis.
    return NamedSharding(Mesh(sharding.mesh.devices, sharding.mesh.axis_names), PartitionSpec(axes[0]))


def check_inputs(inputs: Any, block_samples: int, block_inputs: int) -> None:
    """Errors about the inputs and the block sizes, before anything is traced."""
    if np.ndim(inputs) == 0 or np.shape(inputs)[0] == 0:
        raise ValueError(f"inputs: expected at least one along axis 0, got shape {np.shape(inputs)}")
    for name, value in (("block_samples", block_samples), ("block_inputs", block_inputs)):
        if value < 1:
            raise ValueError(f"{name}: expected a positive integer, got {value}")


def _take(samples: Any, start: int, size: int, key: Key | None, mesh_axis: NamedSharding | None) -> Samples:
    if is_posterior(samples):
        assert key is not None
        return _draw(samples, keys.indexed(key, start, start + size))
    if all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(samples)):
        # Only this block goes to the device: samples on disk or in host memory may be larger than it.
        return jax.tree.map(lambda leaf: leaf[start : start + size], samples)
    return _slice(samples, start, size, mesh_axis)


@jax.jit
def _draw(posterior: Any, draw_keys: Key) -> Samples:
    return jax.vmap(lambda key: tree.take(posterior.sample(key, 1), 0))(draw_keys)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _slice(samples: Samples, start: Any, size: int, mesh_axis: NamedSharding | None) -> Samples:
    def local(shard: Samples) -> Samples:
        return jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, size), shard)

    if mesh_axis is None:
        return local(samples)
    # Each device cuts its own shard, so no sample ever travels.
    return jax.shard_map(
        local, mesh=mesh_axis.mesh, in_specs=mesh_axis.spec, out_specs=mesh_axis.spec, check_vma=False
    )(samples)


def statistics(
    apply: Apply,
    summarise: Callable[..., Any],
    block_inputs: int,
    mesh_axis: NamedSharding | None,
    block: Block,
    inputs: jax.Array,
) -> Any:
    """Statistics of one block of samples at all inputs, with a leading axis of devices."""
    if one_by_one.is_wanted(apply, block.samples, inputs, block_inputs):
        return one_by_one.summaries(apply, summarise, block_inputs, mesh_axis, *block, inputs)
    return _side_by_side(apply, summarise, block_inputs, mesh_axis, block, inputs)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _side_by_side(
    apply: Apply,
    summarise: Callable[..., Any],
    block_inputs: int,
    mesh_axis: NamedSharding | None,
    block: Block,
    inputs: jax.Array,
) -> Any:
    def local(block: Block, inputs: jax.Array) -> Any:
        def at(inputs: jax.Array) -> Any:
            outputs = jax.vmap(apply, in_axes=(0, None))(block.samples, inputs)
            return summarise(outputs, block.weights)

        return jax.tree.map(lambda leaf: leaf[None], map_blocks(at, (inputs,), block_inputs))

    if mesh_axis is None:
        return local(block, inputs)
    whole, split = PartitionSpec(), mesh_axis.spec
    specs: Any = (Block(split, whole), whole)
    mapped = jax.shard_map(local, mesh=mesh_axis.mesh, in_specs=specs, out_specs=split, check_vma=False)
    return mapped(block, inputs)


def map_blocks(function: Callable[..., Any], arrays: tuple[jax.Array, ...], size: int) -> Any:
    """`function(*arrays)` on at most `size` rows at a time.

    As few blocks as that allows, as short as they can be: the last overlaps the one before by less than a row
    for every block, and agrees with it there.
    """
    count = arrays[0].shape[0]
    if count <= size:
        return function(*arrays)
    size = math.ceil(count / math.ceil(count / size))
    starts = jnp.minimum(jnp.arange(0, count, size), count - size)
    cut = lambda start: (lax.dynamic_slice_in_dim(array, start, size) for array in arrays)  # noqa: E731
    shapes = jax.eval_shape(function, *(jax.ShapeDtypeStruct((size, *a.shape[1:]), a.dtype) for a in arrays))
    empty = jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape[1:]), leaf.dtype), shapes)

    def body(filled: Any, start: jax.Array) -> tuple[Any, None]:
        rows = function(*cut(start))
        return jax.tree.map(lambda a, b: lax.dynamic_update_slice_in_dim(a, b, start, 0), filled, rows), None

    return lax.scan(body, empty, starts)[0]


def widened(values: jax.Array) -> jax.Array:
    """At least float32: a softmax in half precision does not sum to one."""
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))


@functools.partial(jax.jit, static_argnums=0)
def _merge(reduction: Reduction, total: Any, new: Any) -> Any:
    return reduction.merge(total, new)


@functools.partial(jax.jit, static_argnums=0)
def _merge_devices(reduction: Reduction, total: Any) -> Any:
    devices = jax.tree.leaves(total)[0].shape[0]
    return functools.reduce(reduction.merge, (tree.take(total, device) for device in range(devices)))


def replicate(mesh_axis: NamedSharding | None, array: Any) -> jax.Array:
    """The array on every device that holds samples."""
    if mesh_axis is None:
        return jnp.asarray(array)
    return jax.device_put(array, NamedSharding(mesh_axis.mesh, PartitionSpec()))
