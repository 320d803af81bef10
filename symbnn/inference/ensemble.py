"""Deep ensembles: independently started networks, trained side by side in one program.

Members minimise, per data point,

    map:  -(1/B) Σ_batch log p(y | x, w) - log p(w) / N        (for an N(0, 1) prior: + ‖w‖² / 2N)
    mle:  -(1/B) Σ_batch log p(y | x, w)

(Lakshminarayanan, Pritzel and Blundell 2017). Nets with batch normalisation are welcome.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from symbnn import keys, tree
from symbnn.density import Target, require_network
from symbnn.inference.base import Checkpoint, Fit, Method, check_count
from symbnn.inference.progress import ShowProgress
from symbnn.inference.training.recipe import Recipe, trainer
from symbnn.inference.training.train import (
    NetworkLoss,
    Trained,
    problem_of,
    train,
    warn_nonfinite,
)
from symbnn.models.base import join_statistics, split_statistics
from symbnn.names import lookup
from symbnn.posteriors import Empirical
from symbnn.tree import check_same_shapes
from symbnn.types import Key, Params, Samples

OBJECTIVES = {"map": True, "mle": False}


@trainer
def ensemble(
    *,
    num_members: int,
    epochs: int = 50,
    batch_size: int = 100,
    optimizer: optax.GradientTransformation | None = None,
    objective: str = "map",
    initial: Samples | None = None,
    members_per_block: int | None = None,
    snapshots: tuple[int, ...] = (),
    progress: ShowProgress = "auto",
    checkpoint: Checkpoint | None = None,
) -> Method:
    """`num_members` networks as an `Empirical` posterior.

    Args:
        num_members: Networks that are trained.
        epochs: Passes of every member over the data.
        objective: `"map"` with the prior as regulariser, `"mle"` without.
        members_per_block: Members trained at once, which bounds memory; None is all. The result is the same
            up to rounding.
        snapshots: Rising epochs after which the networks are kept too.
        (settings of all trainings)

    Diagnostics: `loss` (members, epochs); `num_nonfinite` (members,), steps with a NaN or infinite loss;
    with `snapshots` also `snapshots`, trees with axes (members, snapshots, ...).
    """
    recipe = Recipe(epochs, batch_size, optimizer)
    with_prior = lookup(OBJECTIVES, objective, "objective")
    check_count("num_members", num_members)
    size = num_members if members_per_block is None else members_per_block
    check_count("members_per_block", size)
    if list(snapshots) != sorted(set(snapshots)) or any(not 1 <= epoch <= epochs for epoch in snapshots):
        raise ValueError(f"snapshots must be rising epochs in [1, {epochs}]; got {snapshots}")

    def method(key: Key, target: Target) -> Fit:
        require_network(target, "ensemble")
        starts = member_starts(key, target, num_members, initial)
        loss = NetworkLoss(problem_of(target), with_prior)
        run = functools.partial(train, loss, recipe, data=target.data, progress=progress, snapshots=snapshots)
        trained = _in_blocks(run, key, starts, size, checkpoint)
        warn_nonfinite("ensemble", trained.num_nonfinite)
        samples = join_statistics(trained.weights, trained.statistics)
        diagnostics = trained.diagnostics()
        if snapshots:
            diagnostics["snapshots"] = join_statistics(*trained.snapshots)
        one_draw_each = jax.tree.map(lambda leaf: leaf[:, None], samples)
        return Fit(Empirical.from_chains(one_draw_each), diagnostics)

    return method


def _in_blocks(
    run: Callable[..., Trained], key: Key, starts: Samples, size: int, checkpoint: Checkpoint | None
) -> Trained:
    """All members, `size` at a time."""
    blocks = []
    for first in range(0, tree.num_samples(starts), size):
        weights, statistics = split_statistics(tree.take(starts, slice(first, first + size)))
        member_keys = keys.indexed(key, first, first + tree.num_samples(weights))
        kept = {"checkpoint": checkpoint, "slot": f"ensemble-{first}"}
        blocks.append(run(member_keys=member_keys, weights=weights, statistics=statistics, **kept))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *blocks)


def member_starts(key: Key, target: Target, num_members: int, initial: Samples | None) -> Samples:
    """One start per member: `initial`, or the model's initialisation with the key of the member."""
    require_network(target)
    if initial is None:
        return _initialise(target.model.init, keys.indexed(key, 0, num_members))
    shapes = jax.eval_shape(target.model.init, key)
    check_same_shapes("initial", initial, shapes, num_leading=1)
    if tree.num_samples(initial) != num_members:
        raise ValueError(f"initial holds {tree.num_samples(initial)} networks; num_members is {num_members}")
    return initial


@functools.partial(jax.jit, static_argnames="init")
def _initialise(init: Callable[[Key], Params], member_keys: Key) -> Samples:
    return jax.vmap(lambda member_key: init(keys.named(member_key, "init")))(member_keys)
