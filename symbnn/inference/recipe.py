"""How a network is trained: epochs, minibatches, optimiser, learning-rate schedule.

| optimizer  | update                     | schedule   | learning rate at step t of T              |
|------------|----------------------------|------------|-------------------------------------------|
| `sgd`      | gradient                   | `constant` | η                                         |
| `momentum` | heavy ball with `momentum` | `cosine`   | η (1 + cos πt/T) / 2                      |
| `nesterov` | Nesterov's with `momentum` | `step`     | η · decay^(milestones, in epochs, passed) |
| `adam`     | Kingma and Ba 2015         |            |                                           |
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import optax

from symbnn.names import lookup


@dataclass(frozen=True)
class Recipe:
    """Settings of one training run; hashable, checked when it is made."""

    epochs: int
    batch_size: int
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    momentum: float = 0.9
    schedule: str = "constant"
    milestones: tuple[int, ...] = ()
    decay: float = 0.1

    def __post_init__(self) -> None:
        lookup(OPTIMIZERS, self.optimizer, "optimizer")
        lookup(SCHEDULES, self.schedule, "schedule")
        for name in ("epochs", "batch_size"):
            check_count(name, getattr(self, name))
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive; got {self.learning_rate}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be in [0, 1); got {self.momentum}")
        if bool(self.milestones) != (self.schedule == "step"):
            raise ValueError(
                f"milestones are the epochs of schedule 'step'; got {self.milestones} for {self.schedule!r}"
            )
        if any(not 0 < milestone <= self.epochs for milestone in self.milestones):
            raise ValueError(f"milestones must be epochs in [1, {self.epochs}]; got {self.milestones}")

    def check_data(self, num_data: int) -> None:
        """`ValueError` unless a minibatch fits into the data."""
        if self.batch_size > num_data:
            raise ValueError(f"batch_size is {self.batch_size}, but there are only {num_data} data points")

    def build(self, steps_per_epoch: int) -> optax.GradientTransformation:
        """The optimiser, its schedule counted in steps."""
        schedule = SCHEDULES[self.schedule](self, steps_per_epoch)
        return OPTIMIZERS[self.optimizer](schedule, self)


def check_count(name: str, value: int, *, least: int = 1) -> None:
    """`ValueError` unless `value` is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}")


def refuse_temperature(method: str, temperature: float) -> None:
    """`ValueError` unless the temperature is one: this method's spread does not come from the density."""
    if temperature != 1.0:
        raise ValueError(
            f"{method} has no temperature: its spread comes from how it trains, not from the density; "
            f"expected a target with temperature 1, got {temperature}"
        )


def _step(recipe: Recipe, steps_per_epoch: int) -> Any:
    boundaries = {milestone * steps_per_epoch: recipe.decay for milestone in recipe.milestones}
    return optax.piecewise_constant_schedule(recipe.learning_rate, boundaries)


SCHEDULES: dict[str, Callable[[Recipe, int], Any]] = {
    "constant": lambda recipe, _: optax.constant_schedule(recipe.learning_rate),
    "cosine": lambda recipe, steps: optax.cosine_decay_schedule(recipe.learning_rate, recipe.epochs * steps),
    "step": _step,
}

OPTIMIZERS: dict[str, Callable[[Any, Recipe], optax.GradientTransformation]] = {
    "sgd": lambda schedule, _: optax.sgd(schedule),
    "momentum": lambda schedule, recipe: optax.sgd(schedule, momentum=recipe.momentum),
    "nesterov": lambda schedule, recipe: optax.sgd(schedule, momentum=recipe.momentum, nesterov=True),
    "adam": lambda schedule, _: optax.adam(schedule),
}
