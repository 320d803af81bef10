"""The optimisers that configs name, as Optax's own objects."""

import functools
from collections.abc import Callable
from typing import Any

import optax

OPTIMIZERS: dict[str, Callable[[Any, float], optax.GradientTransformation]] = {
    "sgd": lambda rate, momentum: optax.sgd(rate),
    "momentum": lambda rate, momentum: optax.sgd(rate, momentum=momentum),
    "nesterov": lambda rate, momentum: optax.sgd(rate, momentum=momentum, nesterov=True),
    "adam": lambda rate, momentum: optax.adam(rate),
}
"""(learning rate or schedule, momentum) -> optimiser."""
STEP_DECAY = 0.1


def rate_schedule(
    schedule: str,
    learning_rate: float,
    *,
    num_steps: int = 1,
    milestones: tuple[int, ...] = (),
    factor: float = STEP_DECAY,
) -> optax.Schedule:
    """step -> rate: `cosine` falls to zero over `num_steps`, `one_cycle` rises to the learning rate first,
    `step` is multiplied by `factor` at `milestones`, which are steps."""
    known = {
        "constant": lambda: optax.constant_schedule(learning_rate),
        "cosine": lambda: optax.cosine_decay_schedule(learning_rate, num_steps),
        "one_cycle": lambda: optax.cosine_onecycle_schedule(num_steps, learning_rate),
        "step": lambda: optax.piecewise_constant_schedule(learning_rate, dict.fromkeys(milestones, factor)),
    }
    return known[schedule]()


# Cached, because compiled training steps are known by the object: equal settings, one object.
@functools.cache
def create(
    name: str,
    learning_rate: float,
    *,
    momentum: float = 0.9,
    schedule: str = "constant",
    num_steps: int = 1,
    milestones: tuple[int, ...] = (),
    factor: float = STEP_DECAY,
) -> optax.GradientTransformation:
    """The optimiser of that name, its rate by `rate_schedule`."""
    rates = rate_schedule(schedule, learning_rate, num_steps=num_steps, milestones=milestones, factor=factor)
    return OPTIMIZERS[name](rates, momentum)


def rate_words(settings: Any) -> str:
    """`learning rate 0.04, times 0.5 after epochs 15 and 30`, of a config with `Milestones`."""
    start = f"learning rate {settings.learning_rate:g}"
    if not settings.milestones:
        return start
    epochs = " and ".join(map(str, settings.milestones))
    return f"{start}, times {settings.rate_factor:g} after epochs {epochs}"
