"""Chains on devices: where a chain runs changes nothing of what it draws.

A run has a mesh `chain × data`. Chains are grouped into blocks of `lanes`; a block is vmapped, blocks are
what is dealt to the rows of the mesh, and a device works through its blocks one after the other. With
`data_shards` > 1 every row has several devices, each with its share of the data, and a chain's
log-likelihood is a sum over them.

Why blocks: matrix libraries tile a batched product by its batch size, so a chain's last bits depend on how
many chains are vmapped with it. With the number of lanes fixed, draws are the same bit for bit on any
number of devices and processes. On CPU one lane per block is also fastest, but for small networks, whose
programs cost more than what they compute (`default_lanes`); an accelerator wants all its chains in one block,
so there the default is chains per device, and `lanes` must be given to compare layouts bit for bit.

Every sampler's programs are mapped over devices here, and so are the members of a training that is one
program (`training.epochs`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from symbnn.types import Params

BLOCKS_ON_CPU = 4
"""Blocks that chains of a small network are cut into on CPU, so that up to four devices share them."""
BUSY_OPERATIONS = 1e6
"""In the products of one gradient, from which a chain by itself keeps a core busy. Sixteen chains in four
blocks take as long as chain by chain for 8-16-2 on 1,000 points (one million), a fifth longer for 5-50-2 on
1,202 (2.5 million), and a quarter less for 8-16-2 on 300."""


class Placement(NamedTuple):
    """Where chains run."""

    devices: Sequence[Any] | None = None
    """All devices of all processes if None."""
    data_shards: int = 1
    """Devices that share the data of one chain."""
    lanes: int | None = None
    """Chains vmapped together; see the module's docstring for the default."""
    vmaps_one: bool | None = None
    """Whether a chain alone in its block is vmapped all the same: XLA then multiplies by all data in another
    order, on CPUs up to a third faster where examples are the rows of tall matrices, and up to a third slower
    where they are not. None is the faster one, read from the network's program."""


EVERYWHERE = Placement()


class Layout(NamedTuple):
    """A placement made definite for a number of chains."""

    mesh: Mesh
    num_chains: int
    num_rows: int
    """Chains with padding: rows of the mesh x blocks per row x lanes."""
    lanes: int
    vmaps_one: bool


class Shard(NamedTuple):
    """The data that one device sees; `weights` is None where nothing was padded."""

    batch: Any
    weights: Any


class Products(NamedTuple):
    """The products of one gradient of a chain, on which the defaults depend."""

    operations: float
    are_tall: bool
    """Most of the operations are in products whose rows are the examples: see `Placement.vmaps_one`."""


NO_PRODUCTS = Products(0.0, are_tall=False)


def layout(num_chains: int, placement: Placement, *, products: Products = NO_PRODUCTS) -> Layout:
    """Mesh and padding for `num_chains`; `ValueError` if there are not enough devices."""
    devices = list(jax.devices() if placement.devices is None else placement.devices)
    shards = placement.data_shards
    if shards < 1 or shards > len(devices):
        raise ValueError(
            f"data_shards must be between 1 and the number of devices, {len(devices)}; got {shards}"
        )
    if placement.lanes is not None and placement.lanes < 1:
        raise ValueError(f"lanes must be at least 1; got {placement.lanes}")
    rows = len(devices) // shards
    on_cpu = devices[0].platform == "cpu"
    lanes = placement.lanes or (
        default_lanes(num_chains, products.operations) if on_cpu else math.ceil(num_chains / rows)
    )
    num_blocks = math.ceil(num_chains / lanes)
    blocks_per_row = math.ceil(num_blocks / rows)
    # Rows that would only hold padding are left out; with several processes all of them must take part.
    used = rows if jax.process_count() > 1 else math.ceil(num_blocks / blocks_per_row)
    grid = np.array(devices[: used * shards]).reshape(used, shards)
    _require_busy(grid, num_blocks, f"{num_chains} chains in blocks of {lanes}")
    mesh = Mesh(grid, ("chain", "data"))
    vmaps_one = products.are_tall if placement.vmaps_one is None else placement.vmaps_one
    return Layout(mesh, num_chains, used * blocks_per_row * lanes, lanes, vmaps_one)


def default_lanes(num_chains: int, operations: float) -> int:
    """Chains vmapped together on CPU: by numbers alone, so that draws depend on no clock and on no core."""
    return 1 if operations >= BUSY_OPERATIONS else max(1, num_chains // BLOCKS_ON_CPU)


def _require_busy(grid: np.ndarray, num_blocks: int, words: str) -> None:
    """`ValueError` if some process has devices, but none of the blocks: it would have nothing to keep."""
    processes, busy = ({device.process_index for device in rows.flat} for rows in (grid, grid[:num_blocks]))
    if idle := len(processes - busy):
        raise ValueError(
            f"{words} leave {idle} of {len(processes)} processes without a chain: take a block for each of "
            f"the {len(grid)} rows of devices, by more chains or fewer lanes, or start fewer processes"
        )


def map_chains(function: Callable[..., Any], plan: Layout) -> Callable[..., Any]:
    """`function(chain, shard, *shared)` for every chain, compiled, on the mesh of `plan`.

    `chain` is a tree with a leading axis of `plan.num_rows`, and so is the result; `shared` is the same
    everywhere.
    """
    mapped, number = jax.jit(spread(function, plan)), np.int32(blocks_per_device(plan))
    return lambda chains, shard, *shared: mapped(chains, shard, number, *shared)


def blocks_per_device(plan: Layout) -> int:
    """Blocks that a device works through."""
    return plan.num_rows // (plan.lanes * plan.mesh.shape["chain"])


def spread(function: Callable[..., Any], plan: Layout) -> Callable[..., Any]:
    """What `map_chains` compiles; takes the blocks of a device, too, as no constant where bits count."""
    lanes, num_blocks = plan.lanes, blocks_per_device(plan)
    rows, num_shards = plan.mesh.shape["chain"], plan.mesh.shape["data"]
    # Of the last turn; the other devices have only padding there. Where several share the data of a chain
    # they all go through it, so that they meet in every sum.
    in_last_turn = math.ceil(plan.num_chains / lanes) - rows * (num_blocks - 1) if num_shards == 1 else rows

    def on_device(chains: Any, shard: Shard, number: Array, *shared: Any) -> Any:
        number = number - (jax.lax.axis_index("chain") >= in_last_turn)
        blocks = jax.tree.map(lambda leaf: leaf.reshape(num_blocks, lanes, *leaf.shape[1:]), chains)

        def run(chain: Any) -> Any:
            return function(chain, shard, *shared)

        def run_block(block: Any) -> Any:
            if lanes > 1 or plan.vmaps_one:
                return jax.vmap(run)(block)
            return jax.tree.map(lambda leaf: leaf[None], run(jax.tree.map(lambda leaf: leaf[0], block)))

        def body(index: Array, _: Any) -> tuple[Any, Any]:
            return (), run_block(jax.tree.map(lambda leaf: leaf[index], blocks))

        _, results = collect(body, (), number, size=num_blocks)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), results)

    def mapped(chains: Any, shard: Shard, number: Array, *shared: Any) -> Any:
        specs = (PartitionSpec("chain"), PartitionSpec("data"), *(PartitionSpec() for _ in (number, *shared)))
        # Without the check: NUTS does not pass it, and `sum_over_shards` takes care of gradients itself.
        return jax.shard_map(
            on_device, mesh=plan.mesh, in_specs=specs, out_specs=PartitionSpec("chain"), check_vma=False
        )(chains, shard, number, *shared)

    return mapped


def collect(body: Callable[[Array, Any], tuple[Any, Any]], carry: Any, number: Any, *, size: int) -> Any:
    """(last carry, outputs) as of `lax.scan`, for `number` <= `size` steps; unused rows of outputs are zero.

    `body(index, carry)` gives the next carry and one output. The compiler does not know the length: XLA
    unrolls a loop of known length one and may then fuse its body with what surrounds it, which can change
    the last bits; draws must not depend on how many chains share a device or how many draws share a chunk.
    """
    _, shapes = jax.eval_shape(body, jnp.int32(0), carry)
    buffers = jax.tree.map(lambda leaf: jnp.zeros((size, *leaf.shape), leaf.dtype), shapes)

    def step(index: Array, state: tuple[Any, Any]) -> tuple[Any, Any]:
        carry, buffers = state
        carry, output = body(index, carry)
        return carry, jax.tree.map(lambda buffer, leaf: buffer.at[index].set(leaf), buffers, output)

    return jax.lax.fori_loop(0, number, step, (carry, buffers))


def sum_over_shards(
    log_likelihood: Callable[..., Array], plan: Layout, shard: Shard
) -> Callable[[Params], Array]:
    """params -> log-likelihood over the data of all shards, with the gradient of that sum.

    Reverse mode through `psum` in a mapped function counts the cotangent of every device and gives a wrong
    gradient without a word. Here value and gradient are formed on the shard and both are summed; nothing is
    differentiated through the collective.
    """
    if plan.mesh.shape["data"] == 1:
        return lambda params: log_likelihood(params, shard.batch, shard.weights)

    @jax.custom_vjp
    def total(params: Params, shard: Shard) -> Array:
        return jax.lax.psum(log_likelihood(params, shard.batch, shard.weights), "data")

    def forward(params: Params, shard: Shard) -> tuple[Array, Params]:
        local = jax.value_and_grad(lambda p: log_likelihood(p, shard.batch, shard.weights))(params)
        return jax.lax.psum(local, "data")

    def backward(gradient: Params, cotangent: Array) -> tuple[Params, None]:
        return jax.tree.map(lambda leaf: cotangent * leaf, gradient), None

    total.defvjp(forward, backward)
    return lambda params: total(params, shard)


def place_data(plan: Layout, batch: Any) -> Shard:
    """The data on the devices: whole on every row, in equal shares within a row (padding has weight zero).

    Without data (`batch` is None) there is nothing to place.
    """
    if batch is None:
        return Shard(None, None)
    shards = plan.mesh.shape["data"]
    num = batch[0].shape[0]
    padding = -num % shards
    arrays = jax.tree.map(np.asarray, batch)
    weights = None
    if padding:
        weights = np.concatenate([np.ones(num), np.zeros(padding)]).astype(arrays[0].dtype)
        arrays = jax.tree.map(lambda a: np.concatenate([a, np.repeat(a[:1], padding, axis=0)]), arrays)
    return Shard(*(jax.tree.map(lambda a: _place(plan, "data", a), tree) for tree in (arrays, weights)))


def positions(plan: Layout) -> np.ndarray:
    """The row that every chain lies in: blocks are dealt in turns, so that every device has one first."""
    block, lane = np.divmod(np.arange(plan.num_chains), plan.lanes)
    turn, device = np.divmod(block, plan.mesh.shape["chain"])
    return (device * blocks_per_device(plan) + turn) * plan.lanes + lane


def local_chains(plan: Layout) -> np.ndarray:
    """Indices of the chains that this process holds, in order."""
    return np.flatnonzero(np.isin(positions(plan), _local_rows(plan)))


def place_chains(plan: Layout, rows: Any) -> Any:
    """Arrays of this process's chains (axis 0 as in `local_chains`) onto the devices; padding repeats one."""
    chains = local_chains(plan)
    source = np.zeros(plan.num_rows, dtype=int)
    source[positions(plan)[chains]] = np.arange(len(chains))
    return jax.tree.map(lambda array: _place(plan, "chain", np.asarray(array), source), rows)


def fetch_chains(plan: Layout, tree: Any) -> Any:
    """Arrays of this process's chains on the host: the inverse of `place_chains`."""
    places = np.searchsorted(_local_rows(plan), positions(plan)[local_chains(plan)])

    def fetch(array: Array) -> np.ndarray:
        # Of the devices that share the data of a chain, each holds its row.
        shards = {_first(shard.index).start or 0: shard.data for shard in array.addressable_shards}
        return np.concatenate([np.asarray(shards[start]) for start in sorted(shards)])[places]

    return jax.tree.map(fetch, tree)


def _local_rows(plan: Layout) -> np.ndarray:
    """Rows that lie on devices of this process, rising."""
    sharding = NamedSharding(plan.mesh, PartitionSpec("chain"))
    slices = sharding.addressable_devices_indices_map((plan.num_rows,)).values()
    return np.unique([row for index in slices for row in range(plan.num_rows)[_first(index)]])


def _first(index: tuple[Any, ...] | None) -> slice:
    return index[0] if index else slice(None)


def _place(plan: Layout, axis: str, array: np.ndarray, source: np.ndarray | None = None) -> Array:
    """A host array on the mesh, split along `axis`; row i is `array[source[i]]`."""
    sharding = NamedSharding(plan.mesh, PartitionSpec(axis))
    shape = array.shape if source is None else (len(source), *array.shape[1:])

    def rows(index: Any) -> np.ndarray:
        where = _first(index)
        return array[where] if source is None else array[source[where]]

    return jax.make_array_from_callback(shape, sharding, rows)
