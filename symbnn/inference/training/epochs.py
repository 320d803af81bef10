"""Epochs of training for all members at once, by one of two loops that see the same batches and keys.

A `lax.scan` over the steps of an epoch costs next to nothing per step: right for small networks and for
accelerators. In a long training members are dealt to all devices in blocks, as chains are. On a CPU,
convolutions inside a compiled loop take more than twice their time outside
(github.com/jax-ml/jax/issues/12868; a step of LeNet on 256 images: 0.42 s against 0.17 s, and 0.17 s again
once the loop is unrolled to the end). There the host steps, one compiled step after the other; so it does if
the inputs stay on disk, as it must fetch every batch.

Side by side, members are grouped convolutions, which CPUs are slow at (32 OptuNets: 17 times the time of one
after the other); so every CPU device has one member at a time. The host's steps use all devices: if there are
not as many members, the examples of a batch lie on them. ResNet-20 trains nearly twice as fast on two
single-threaded CPU devices as on one with two threads.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from symbnn import tree
from symbnn.data import Streamed
from symbnn.density import Batch, Target
from symbnn.inference import placement
from symbnn.inference.training.recipe import Recipe
from symbnn.packed import packed
from symbnn.programs import KEPT_BARRIERS, has_convolution, operations
from symbnn.types import Key, Params

Loss = Callable[[Params, Params, Batch, Key], tuple[Array, Params]]
"""(weights, statistics, batch, key) -> (loss per data point, new statistics). Must be hashable."""

BY_MEMBER, BY_CHAIN, EVERYWHERE = PartitionSpec("members"), PartitionSpec("chain"), PartitionSpec()
LONG_WORK = 1e12
"""Operations of a whole training from which on it uses several devices: about ten seconds of a core.
Compiling for them takes longer, and changes the last bits of a member."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Training:
    """What stays the same in all epochs; losses and recipes are static to jit."""

    loss: Loss = field(metadata={"static": True})
    recipe: Recipe = field(metadata={"static": True})
    member_keys: Key
    data: Batch


class TrainingState(NamedTuple):
    """What training carries; every leaf has a leading member axis."""

    weights: Params
    statistics: Params
    optimizer: Any
    num_nonfinite: Array


def initial_state(recipe: Recipe, weights: Params, statistics: Params) -> TrainingState:
    """State before the first step of every member. Copies, because `advance` gives its buffers away."""
    weights, statistics = jax.tree.map(jnp.array, (weights, statistics))
    optimizer = jax.vmap(recipe.optimizer.init)(weights)
    return TrainingState(weights, statistics, optimizer, jnp.zeros(tree.num_samples(weights), jnp.int32))


def advance(
    training: Training, num_epochs: int, state: TrainingState, first_epoch: int
) -> tuple[TrainingState, Float[Array, "members epochs"]]:
    """`num_epochs` more epochs of every member, with the mean loss of each; `state` is used up."""
    if not steps_on_host(training, state):
        return scan_epochs(training, num_epochs, state, first_epoch)
    num_members = tree.num_samples(state.weights)
    at_once = len(jax.local_devices()) if jax.default_backend() == "cpu" else num_members
    blocks = []
    for block in (slice(first, first + at_once) for first in range(0, num_members, at_once)):
        part = replace(training, member_keys=training.member_keys[block])
        blocks.append(step_epochs(part, num_epochs, tree.take(state, block), first_epoch))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *blocks)


def scan_epochs(
    training: Training, num_epochs: int, state: TrainingState, first_epoch: int
) -> tuple[TrainingState, Float[Array, "members epochs"]]:
    """`advance` as one program; a long one uses all devices that there are members for."""
    num_members = tree.num_samples(state.weights)
    plan, given = _plan(training, state), (state, training.member_keys, training.data)
    if plan is None:
        return _scan(training.loss, training.recipe, num_epochs, plan, *given, first_epoch)
    rows = placement.positions(plan)
    source = np.zeros(plan.num_rows, int)
    source[rows] = np.arange(num_members)
    members = jax.tree.map(lambda leaf: leaf[source], given[:2])
    given = *_place(plan.mesh, members, BY_CHAIN), _place(plan.mesh, training.data, EVERYWHERE)
    found = _gathered(_scan(training.loss, training.recipe, num_epochs, plan, *given, first_epoch))
    return jax.tree.map(lambda leaf: leaf[rows], found)


def _plan(training: Training, state: TrainingState) -> placement.Layout | None:
    """How members lie on devices; None side by side on one of them, which compiles faster."""
    # A CPU has one member at a time: 32 OptuNets side by side fall out of its cache, and take twice as long.
    lanes = 1 if jax.default_backend() == "cpu" else None
    given = placement.Placement(jax.local_devices(), lanes=lanes, vmaps_one=False)
    plan = placement.layout(tree.num_samples(state.weights), given)
    is_beside = plan.mesh.size == 1 and lanes is None
    return None if is_beside or _work(training, state) <= LONG_WORK else plan


def _work(training: Training, state: TrainingState) -> float:
    """Operations of the whole training: a step goes forwards and, twice as long, backwards."""
    steps = training.recipe.epochs * training.recipe.num_steps(len(training.data.targets))
    return 3 * tree.num_samples(state.weights) * steps * operations(_program(training, state))


@functools.partial(jax.jit, static_argnames=("loss", "recipe", "num_epochs", "plan"), donate_argnames="state")
def _scan(
    loss: Loss,
    recipe: Recipe,
    num_epochs: int,
    plan: placement.Layout | None,
    state: TrainingState,
    member_keys: Key,
    data: Batch,
    first_epoch: Any,
) -> tuple[TrainingState, Float[Array, "members epochs"]]:
    """Epochs of every member, side by side or by the plan."""

    def member(
        given: tuple[TrainingState, Key], shard: placement.Shard, first_epoch: Array
    ) -> tuple[TrainingState, Array]:
        state, key = given
        data = shard.batch

        def epoch(state: TrainingState, epoch: Array) -> tuple[TrainingState, Array]:
            batches, step_keys = _shuffle(recipe, data.inputs.shape[0], key, epoch)

            def step(state: TrainingState, inputs: tuple[Array, Key]) -> tuple[TrainingState, Array]:
                indices, step_key = inputs
                return _step(loss, recipe.optimizer, state, fetch(data, indices), step_key)

            state, values = jax.lax.scan(step, state, (batches, step_keys))
            return state, jnp.mean(values)

        return jax.lax.scan(epoch, state, first_epoch + jnp.arange(num_epochs))

    members, shard = (state, member_keys), placement.Shard(data, None)
    if plan is None:
        return jax.vmap(member, in_axes=(0, None, None))(members, shard, first_epoch)
    # A constant will do: members are promised up to rounding.
    number = jnp.int32(placement.blocks_per_device(plan))
    return placement.spread(member, plan)(members, shard, number, first_epoch)


def step_epochs(
    training: Training, num_epochs: int, state: TrainingState, first_epoch: int
) -> tuple[TrainingState, Float[Array, "members epochs"]]:
    """`advance` with the loop on the host, all members side by side."""
    recipe, data = training.recipe, training.data
    mesh = _mesh(tree.num_samples(state.weights), recipe.batch_size)
    state = _place(mesh, state, BY_MEMBER)
    one_step = _one_step_on_cpu if jax.default_backend() == "cpu" else _one_step
    losses = []
    for epoch in range(first_epoch, first_epoch + num_epochs):
        batches, step_keys = _shuffles(recipe, data.inputs.shape[0], training.member_keys, epoch)
        step_keys = _place(mesh, step_keys, BY_MEMBER)
        values: list[Array] = []
        for index, indices in enumerate(np.asarray(batches).swapaxes(0, 1)):
            batch = _place(mesh, fetch(data, indices), PartitionSpec("members", "examples"))
            state, value = one_step(training.loss, recipe, mesh, state, batch, step_keys, index)
            # One step ahead of the device, so that it never waits; no more, as every batch takes memory.
            if values:
                values[-1].block_until_ready()
            values.append(value)
        losses.append(jnp.mean(jnp.stack(values), axis=0))
    return _gathered((state, jnp.stack(losses, axis=1)))


def _gathered(spread: Any) -> Any:
    """Back from the devices that it was spread over, so that what follows may choose its own."""
    return jax.tree.map(jnp.asarray, jax.device_get(spread))


def _mesh(num_members: int, batch_size: int) -> Mesh | None:
    """All devices for the members or, if these do not divide into them, for the examples of a batch."""
    devices = jax.local_devices()
    if len(devices) == 1:
        return None
    rows = len(devices) if num_members % len(devices) == 0 else 1
    columns = 1 if rows > 1 else math.gcd(batch_size, len(devices))
    return Mesh(np.array(devices[: rows * columns]).reshape(rows, columns), ("members", "examples"))


def _place(mesh: Mesh | None, arrays: Any, spec: PartitionSpec) -> Any:
    return arrays if mesh is None else jax.device_put(arrays, NamedSharding(mesh, spec))


def fetch(data: Batch, indices: Any) -> Batch:
    """The examples at `indices`."""
    return Batch(data.inputs[indices], data.targets[indices])


def is_streamed(data: Batch) -> bool:
    """Whether the inputs stay on disk."""
    return isinstance(data.inputs, Streamed)


def require_in_memory(method: str, target: Target) -> None:
    """`ValueError` if the inputs stay on disk: for methods whose compiled programs index them."""
    if target.data is not None and is_streamed(target.data):
        raise ValueError(
            f"{method} needs its inputs in memory, but they are streamed from disk; load them as arrays, or "
            "use ensemble, variational, swag or dropout, which read them batch by batch"
        )


def steps_on_host(training: Training, state: TrainingState) -> bool:
    """Which of the two loops trains: whether inputs stay on disk, or a step convolves on a CPU."""
    if is_streamed(training.data) or jax.default_backend() != "cpu":
        return is_streamed(training.data)
    return has_convolution(_program(training, state))


def _program(training: Training, state: TrainingState) -> Any:
    """The jaxpr of a loss; traced through jit, which remembers it for the same loss and shapes."""
    return _value.trace(training.loss, *step_shapes(training, state)).jaxpr


def step_shapes(training: Training, state: TrainingState) -> tuple[Any, ...]:
    """Shapes of what a loss is called with: one member's weights and statistics, a minibatch, a key."""
    weights, statistics, key = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype),
        (state.weights, state.statistics, training.member_keys),
    )
    size = training.recipe.batch_size
    batch = (jax.ShapeDtypeStruct((size, *part.shape[1:]), part.dtype) for part in training.data)
    return weights, statistics, Batch(*batch), key


@functools.partial(jax.jit, static_argnames="loss")
def _value(loss: Loss, weights: Params, statistics: Params, batch: Batch, key: Key) -> Array:
    return loss(weights, statistics, batch, key)[0]


@functools.partial(jax.jit, static_argnames=("recipe", "num_data"))
def _shuffles(recipe: Recipe, num_data: int, member_keys: Key, epoch: Any) -> tuple[Array, Key]:
    """`_shuffle` of every member."""
    return jax.vmap(lambda key: _shuffle(recipe, num_data, key, epoch))(member_keys)


def _shuffle(recipe: Recipe, num_data: int, key: Key, epoch: Any) -> tuple[Array, Key]:
    """Indices (steps, batch_size) of the minibatches of one member's epoch, and a key for each."""
    steps, batch_size = recipe.num_steps(num_data), recipe.batch_size
    step_keys = jax.random.split(jax.random.fold_in(key, epoch), steps + 1)
    # Ties among 32 random bits are too rare to matter, and one sort compiles faster than a `permutation`.
    order = jnp.argsort(jax.random.bits(step_keys[0], (num_data,)))
    return order[: steps * batch_size].reshape(steps, batch_size), step_keys[1:]


def _all_members(
    loss: Loss,
    recipe: Recipe,
    mesh: Mesh | None,
    state: TrainingState,
    batch: Batch,
    step_keys: Key,
    index: Any,
) -> tuple[TrainingState, Float[Array, " members"]]:
    """Step `index` of every member's epoch; leaves of `batch` have a member axis."""
    step = jax.vmap(functools.partial(_step, loss, recipe.optimizer))
    if mesh is not None:
        # Members are mapped by hand, as the compiler does not cut convolutions by kernel; examples by it.
        step = jax.shard_map(
            step, mesh=mesh, in_specs=BY_MEMBER, out_specs=BY_MEMBER, axis_names=frozenset({"members"})
        )
    return step(state, batch, step_keys[:, index])


_STATIC, _GIVEN_AWAY = ("loss", "recipe", "mesh"), "state"
_one_step = jax.jit(_all_members, static_argnames=_STATIC, donate_argnames=_GIVEN_AWAY)
_one_step_on_cpu = jax.jit(
    _all_members, static_argnames=_STATIC, donate_argnames=_GIVEN_AWAY, compiler_options=KEPT_BARRIERS
)


def _step(
    loss: Loss, optimizer: optax.GradientTransformation, state: TrainingState, batch: Batch, key: Key
) -> tuple[TrainingState, Float[Array, ""]]:
    """One step of one member, with its loss."""
    (value, statistics), gradient = jax.value_and_grad(packed(loss), has_aux=True)(
        state.weights, state.statistics, batch, key
    )
    # With the loss, for transformations that look at it (`reduce_on_plateau`); others ignore it.
    update = optax.with_extra_args_support(optimizer).update
    updates, optimizer_state = update(gradient, state.optimizer, state.weights, value=value)
    weights = optax.apply_updates(state.weights, updates)
    num_nonfinite = state.num_nonfinite + ~jnp.isfinite(value)
    return TrainingState(weights, statistics, optimizer_state, num_nonfinite), value
