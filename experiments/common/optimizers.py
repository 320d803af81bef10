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
) -> optax.GradientTransformation:
    """The optimiser of that name; `cosine` falls to zero over `num_steps`, `one_cycle` rises to the learning
    rate first, `step` falls tenfold at `milestones`."""
    schedules = {
        "constant": lambda: optax.constant_schedule(learning_rate),
        "cosine": lambda: optax.cosine_decay_schedule(learning_rate, num_steps),
        "one_cycle": lambda: optax.cosine_onecycle_schedule(num_steps, learning_rate),
        "step": lambda: optax.piecewise_constant_schedule(
            learning_rate, dict.fromkeys(milestones, STEP_DECAY)
        ),
    }
    return OPTIMIZERS[name](schedules[schedule](), momentum)
