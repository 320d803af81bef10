"""Monte Carlo dropout: train with hidden units dropped at random, and keep dropping them to predict.

The units are those of the model's symmetry spec, and dropping one means dropping every weight that reads it
(`DroppedUnits`), so any network with a spec has dropout without a layer for it. In training every minibatch
is cut into `masks_per_batch` parts, each with its own masks (Gal and Ghahramani 2016).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from symbnn.density import Batch, Target, refuse_batch_statistics
from symbnn.inference.base import Checkpoint, check_count
from symbnn.inference.multimode import ModeMethod
from symbnn.inference.progress import ShowProgress
from symbnn.inference.training.recipe import Recipe, refuse_temperature, trainer
from symbnn.inference.training.train import Problem, problem_of, train, warn_nonfinite
from symbnn.models.base import join_statistics, split_statistics
from symbnn.names import nearest
from symbnn.posteriors import DroppedUnits, Reading, Units
from symbnn.posteriors.dropped import draw_masks, drop
from symbnn.symmetry import SymmetrySpec
from symbnn.symmetry.spec import Factor, Leaf, Segments, word_size, words_by_axis
from symbnn.types import Key, Params, Samples


@dataclass(frozen=True)
class DropoutLoss:
    """Mean negative log-likelihood under random masks, minus log-prior / N of the whole weights."""

    problem: Problem
    units: tuple[Units, ...]
    rate: float
    masks_per_batch: int

    def __call__(
        self, weights: Params, statistics: Params, batch: Batch, key: Key
    ) -> tuple[Float[Array, ""], Params]:
        """Loss; running statistics stay as they are."""
        parts = jax.tree.map(lambda array: array.reshape(self.masks_per_batch, -1, *array.shape[1:]), batch)

        def log_likelihood(mask_key: Key, part: Batch) -> Array:
            masks = draw_masks(mask_key, self.units, self.rate)
            dropped = drop(join_statistics(weights, statistics), self.units, masks, self.rate)
            outputs = self.problem.model.apply(dropped, part.inputs)
            return jnp.mean(self.problem.likelihood.log_prob(outputs, part.targets))

        mask_keys = jax.random.split(key, self.masks_per_batch)
        fitted = jnp.mean(jax.vmap(log_likelihood)(mask_keys, parts))
        return -fitted - self.problem.prior.log_prob(weights) / self.problem.num_data, statistics


@trainer
def dropout(
    *,
    rate: float = 0.1,
    units: Sequence[str] | None = None,
    masks_per_batch: int = 10,
    epochs: int = 50,
    steps_per_epoch: int | None = None,
    batch_size: int = 100,
    optimizer: optax.GradientTransformation | None = None,
    initial: Params | None = None,
    progress: ShowProgress = "auto",
    checkpoint: Checkpoint | None = None,
) -> ModeMethod:
    """A `DroppedUnits` posterior: one trained network, drawn with new masks each time.

    Args:
        rate: Probability that a unit is dropped.
        units: Groups of the model's spec that are dropped; None is all hidden units.
        masks_per_batch: Parts of a minibatch, each with its own masks; it must divide `batch_size`.
        epochs: Passes over the data.
        steps_per_epoch: Minibatches of an epoch, if fewer than a pass over the data.
        (settings of all trainings)

    Diagnostics: `loss` (epochs,); `num_nonfinite`, steps with a NaN or infinite loss.
    """
    recipe = Recipe(epochs, batch_size, optimizer, steps_per_epoch)
    kept: Any = {"progress": progress, "checkpoint": checkpoint}
    check_count("masks_per_batch", masks_per_batch)
    if batch_size % masks_per_batch:
        raise ValueError(f"masks_per_batch must divide batch_size; got {masks_per_batch} and {batch_size}")
    if not 0.0 < rate < 1.0:
        raise ValueError(f"rate must be a probability in (0, 1); got {rate}")

    def fit_modes(mode_keys: Key, target: Target, starts: Samples) -> tuple[Any, dict[str, Any]]:
        problem = problem_of(target)
        refuse_temperature("dropout", target.temperature)
        refuse_batch_statistics(starts, target.model)
        dropped = hidden_units(target.model.spec, units)
        loss = DropoutLoss(problem, dropped, rate, masks_per_batch)
        parts = split_statistics(starts)
        trained = train(loss, recipe, mode_keys, *parts, target.data, stage="dropout", **kept)
        warn_nonfinite("dropout", trained.num_nonfinite)
        networks = join_statistics(trained.weights, trained.statistics)
        samples = jax.tree.map(lambda leaf: leaf[:, None], networks)
        return jax.vmap(lambda one: DroppedUnits(one, dropped, rate))(samples), trained.diagnostics()

    return ModeMethod(fit_modes, initial)


def hidden_units(spec: SymmetrySpec, names: Sequence[str] | None = None) -> tuple[Units, ...]:
    """The groups of `spec` with the leaf axes that read them; `ValueError` if nothing can be dropped.

    Left out by default are groups that vary over others (experts, heads) and groups that no axis reads alone.
    """
    known = {group.name: group for group in spec.groups if not group.over}
    for name in names or ():
        if name not in known:
            raise ValueError(f"unknown units {name!r}; {nearest(name, known)}")
    found = [
        Units(group.name, group.size, tuple(_readings(spec, group.name)))
        for group in known.values()
        if names is None or group.name in names
    ]
    found = [group for group in found if group.readings]
    if not found:
        raise ValueError(
            f"The model's spec has no hidden units to drop; its groups are {[g.name for g in spec.groups]}"
        )
    return tuple(found)


def _readings(spec: SymmetrySpec, name: str) -> Iterator[Reading]:
    for leaf in spec.leaves:
        for axis, word in enumerate(words_by_axis(leaf.axes)):
            for start, before, factor, after in _placed(word, 0):
                if factor.group == name and _is_read(leaf, axis, factor):
                    yield Reading(leaf.name, axis, start, before, after)


def _placed(word: Any, start: int) -> Iterator[tuple[int, int, Factor, int]]:
    """Atoms of a word that lie in one stretch: (start, positions before, atom, positions after)."""
    for index, factor in enumerate(word):
        before, after = word_size(word[:index]), word_size(word[index + 1 :])
        if isinstance(factor, Factor):
            yield start, before, factor, after
        elif isinstance(factor, Segments) and before == after == 1:
            for inner in factor.words:
                yield from _placed(inner, start)
                start += word_size(inner)


def _is_read(leaf: Leaf, axis: int, factor: Factor) -> bool:
    """Whether the axis sums over the units. A spec written by hand has no roles: there the last axis of an
    array makes units, and the axes before it read them."""
    if factor.role is not None:
        return factor.role == "consumes"
    return axis < len(leaf.shape) - 1
