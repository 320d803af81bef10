"""Deep ensembles: independently started networks, trained side by side in one program.

Members minimise, per data point,

    map:  -(1/B) Σ_batch log p(y | x, w) - log p(w) / N        (for an N(0, 1) prior: + ‖w‖² / 2N)
    mle:  -(1/B) Σ_batch log p(y | x, w)

(Lakshminarayanan, Pritzel and Blundell 2017). Nets with batch normalisation are welcome.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import keys, tree
from symbnn.density import Target
from symbnn.inference.base import Fit, Method, ProgressCallback, Sink
from symbnn.inference.recipe import Recipe, check_count
from symbnn.inference.storage import checksum, fingerprint
from symbnn.inference.training import (
    Checkpoint,
    NetworkLoss,
    Trained,
    join_statistics,
    problem_of,
    split_statistics,
    train,
    warn_nonfinite,
)
from symbnn.names import lookup
from symbnn.posteriors import Empirical
from symbnn.tree import check_same_shapes
from symbnn.types import Key, Params, Samples

OBJECTIVES = {"map": True, "mle": False}


def ensemble(
    *,
    num_members: int,
    epochs: int = 50,
    batch_size: int = 100,
    optimizer: str = "adam",
    learning_rate: float = 1e-3,
    momentum: float = 0.9,
    schedule: str = "constant",
    milestones: tuple[int, ...] = (),
    decay: float = 0.1,
    objective: str = "map",
    initial: Samples | None = None,
    members_per_block: int | None = None,
    snapshots: tuple[int, ...] = (),
    progress: ProgressCallback | None = None,
    sink: Sink | None = None,
) -> Method:
    """`num_members` networks as an `Empirical` posterior.

    `initial` holds one start per member (default: the model's own initialisation). `members_per_block` bounds
    memory: blocks of so many members are trained one after the other, with the same result up to rounding.
    A run with a `sink` that was stopped goes on after its last chunk of epochs, with the same result.
    Diagnostics: `loss` (members, epochs), `num_nonfinite` (members,): steps with a NaN or infinite loss, and,
    if epochs are asked for in `snapshots`, `snapshots`: the networks after each of them, as trees with axes
    (members, snapshots, ...).
    """
    recipe = Recipe(epochs, batch_size, optimizer, learning_rate, momentum, schedule, milestones, decay)
    with_prior = lookup(OBJECTIVES, objective, "objective")
    check_count("num_members", num_members)
    size = num_members if members_per_block is None else members_per_block
    check_count("members_per_block", size)
    _check_snapshots(snapshots, epochs)

    def method(key: Key, target: Target) -> Fit:
        recipe.check_data(target.num_data)
        loss = NetworkLoss(problem_of(target), with_prior)
        starts = member_starts(key, target, num_members, initial)
        if sink is not None:
            sink.open(
                fingerprint(key, target, _settings(recipe, objective, num_members, size, snapshots, starts))
            )
        blocks = []
        for block, first in enumerate(range(0, num_members, size)):
            last = min(first + size, num_members)
            weights, statistics = split_statistics(tree.take(starts, slice(first, last)))
            member_keys = keys.indexed(key, first, last)
            checkpoint = None if sink is None else Checkpoint(sink, block)
            trained_block = train(
                loss,
                recipe,
                member_keys,
                weights,
                statistics,
                target.data,
                progress=progress,
                checkpoint=checkpoint,
                snapshots=snapshots,
            )
            blocks.append(trained_block)
        trained: Trained = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *blocks)
        warn_nonfinite("ensemble", trained.num_nonfinite)
        samples = join_statistics(trained.weights, trained.statistics)
        diagnostics: dict[str, Any] = {"loss": trained.losses, "num_nonfinite": trained.num_nonfinite}
        if snapshots:
            diagnostics["snapshots"] = join_statistics(*trained.snapshots)
        return Fit(Empirical(samples, num_chains=num_members), diagnostics)

    return method


def member_starts(key: Key, target: Target, num_members: int, initial: Samples | None) -> Samples:
    """One start per member: `initial`, or the model's initialisation with the key of the member."""
    if initial is None:
        return _initialise(target.model.init, keys.indexed(key, 0, num_members))
    shapes = jax.eval_shape(target.model.init, key)
    check_same_shapes("initial", initial, shapes, num_leading=1)
    if tree.num_samples(initial) != num_members:
        raise ValueError(f"initial holds {tree.num_samples(initial)} networks; num_members is {num_members}")
    return initial


def _check_snapshots(snapshots: tuple[int, ...], epochs: int) -> None:
    if list(snapshots) != sorted(set(snapshots)) or any(not 1 <= epoch <= epochs for epoch in snapshots):
        raise ValueError(f"snapshots must be rising epochs in [1, {epochs}]; got {snapshots}")


def _settings(
    recipe: Recipe,
    objective: str,
    num_members: int,
    size: int,
    snapshots: tuple[int, ...],
    starts: Samples,
) -> dict[str, str]:
    """What a stored run must agree in, besides key, data and density."""
    leaves = [checksum(np.asarray(leaf)) for leaf in jax.tree.leaves(starts)]
    members = {"members": f"{num_members} in blocks of {size}", "starts": ", ".join(leaves)}
    members |= {"snapshots": repr(snapshots)}
    return {"method": "ensemble", "objective": objective, "recipe": repr(recipe), **members}


@functools.partial(jax.jit, static_argnames="init")
def _initialise(init: Callable[[Key], Params], member_keys: Key) -> Samples:
    return jax.vmap(lambda member_key: init(keys.named(member_key, "init")))(member_keys)
