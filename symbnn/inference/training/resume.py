"""Where a training keeps how far it has come, and how it is recognised when it is started again."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn.inference.base import Checkpoint
from symbnn.inference.storage import checksum, flatten, program_checksum, unflatten
from symbnn.inference.training.epochs import Training, TrainingState, is_streamed, step_shapes
from symbnn.inference.training.recipe import optimizer_checksum


class Slot(NamedTuple):
    """The place of one stage of training in a checkpoint; without one, nothing is kept."""

    checkpoint: Checkpoint | None
    stage: str
    fingerprint: dict[str, str]

    def restore(self, course: Any) -> Any:
        """The stored course, or the given one if nothing was stored."""
        stored = None
        if self.checkpoint is not None:
            stored = self.checkpoint.read(self.stage, self.fingerprint)
        return course if stored is None else jax.tree.map(jnp.asarray, unflatten("course", stored, course))

    def keep(self, epoch: int, course: Any) -> None:
        """Write the course after `epoch` epochs."""
        if self.checkpoint is not None:
            self.checkpoint.write(self.stage, epoch, self.fingerprint, flatten("course", course))


def open_slot(
    checkpoint: Checkpoint | None, stage: str, training: Training, state: TrainingState, **settings: Any
) -> Slot:
    """The place of this training, which is recognised by all that decides its result."""
    if checkpoint is None:
        return Slot(None, stage, {})
    shapes, recipe, data = step_shapes(training, state), training.recipe, training.data
    # Inputs on disk are known by a few of them: reading all may take hours.
    few = np.arange(min(64, len(data.targets)))
    known = {
        "keys": jax.random.key_data(training.member_keys),
        "data": (data.inputs[few] if is_streamed(data) else data.inputs, data.targets),
        "starts": (state.weights, state.statistics),
    }
    fingerprint = {
        **{name: ", ".join(map(checksum, jax.tree.leaves(arrays))) for name, arrays in known.items()},
        "loss": program_checksum(training.loss, *shapes),
        "optimizer": optimizer_checksum(recipe.optimizer, shapes[0]),
        "epochs": str(recipe.epochs),
        "batch_size": str(recipe.batch_size),
        **({} if recipe.steps_per_epoch is None else {"steps_per_epoch": str(recipe.steps_per_epoch)}),
        "jax": jax.__version__,
        **{name: repr(value) for name, value in settings.items()},
    }
    return Slot(checkpoint, stage, fingerprint)
