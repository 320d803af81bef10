"""How a network is trained: epochs, minibatches, and any optimiser of Optax."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import optax

from symbnn.inference.base import check_count, documented
from symbnn.inference.progress import WORDS
from symbnn.inference.storage import program_checksum
from symbnn.types import Params

ADAM = optax.adam(1e-3)
"""The default optimiser; one object, because compiled training steps are known by it."""

SHARED = """batch_size: Examples per step; the last, incomplete minibatch of an epoch is left out.
        optimizer: Any of Optax; None is `optax.adam(1e-3)`, but SGD at 1e-2 with momentum 0.9 where `swag`
            collects. Make it once: a new object compiles anew.
        initial: Where training starts (for `ensemble`, one start per member); None is the model's own
            initialisation.
        (progress)
        checkpoint: Where the state is kept (`io.TrainingStore(directory)`), so that a training that was
            stopped goes on with the same result.""".replace("(progress)", WORDS)

trainer = documented("(settings of all trainings)", SHARED)
"""Decorates a method whose docstring lists the settings that all methods that train share."""


@dataclass(frozen=True)
class Recipe:
    """Settings of one training run; hashable, checked when it is made.

    Compiled steps are known by the optimiser's identity: make it once and use it for all fits alike. Its
    schedules count steps, `num_steps(num_data)` to an epoch.
    """

    epochs: int
    batch_size: int
    optimizer: Any = None
    """A gradient transformation of Optax; None becomes Adam with learning rate 1e-3."""
    steps_per_epoch: int | None = None
    """Minibatches of an epoch that is shorter than a pass over the data; None is a whole pass."""

    def __post_init__(self) -> None:
        if self.optimizer is None:
            object.__setattr__(self, "optimizer", ADAM)
        for name in ("epochs", "batch_size"):
            check_count(name, getattr(self, name))
        if self.steps_per_epoch is not None:
            check_count("steps_per_epoch", self.steps_per_epoch)
        if not isinstance(self.optimizer, optax.GradientTransformation):
            raise ValueError(
                "optimizer must be an optax.GradientTransformation, for instance optax.adam(1e-3); "
                f"got {self.optimizer!r}"
            )

    def check_data(self, num_data: int) -> None:
        """`ValueError` unless a minibatch fits into the data."""
        if self.batch_size > num_data:
            raise ValueError(f"batch_size is {self.batch_size}, but there are only {num_data} data points")

    def num_steps(self, num_data: int) -> int:
        """Minibatches of one epoch; those of a shorter one are drawn from all data, anew for every epoch."""
        whole = num_data // self.batch_size
        return whole if self.steps_per_epoch is None else min(whole, self.steps_per_epoch)


def pretraining(
    epochs: int, batch_size: int, optimizer: optax.GradientTransformation | None
) -> Recipe | None:
    """How a start is brought to a mode; None if it is one already, with no epochs."""
    check_count("pretrain_epochs", epochs, least=0)
    recipe = Recipe(max(1, epochs), batch_size, optimizer)
    return recipe if epochs else None


def optimizer_checksum(optimizer: optax.GradientTransformation, weights: Params) -> str:
    """What the optimiser does to weights of these shapes: the same in every process, another for another
    learning rate or schedule."""
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), weights)

    def start_and_step(gradient: Params, weights: Params) -> tuple[Params, Params]:
        start = optimizer.init(weights)
        update = optax.with_extra_args_support(optimizer).update
        return start, update(gradient, start, weights, value=np.float32(0))

    return program_checksum(start_and_step, shapes, shapes)


def refuse_temperature(method: str, temperature: float) -> None:
    """`ValueError` unless the temperature is one: this method's spread does not come from the density."""
    if temperature != 1.0:
        raise ValueError(
            f"{method} takes a target with temperature 1 only: its spread comes from how it trains, not from "
            f"the density; got temperature {temperature}"
        )
