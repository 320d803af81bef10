"""Speed of training: all members of an ensemble in one program against one after the other."""

import time
from collections.abc import Callable
from typing import Any

import jax

from symbnn import data, density, inference, models
from tests.bench import Row

NUM_MEMBERS = 16
ROUNDS = 5
SETTINGS = {"epochs": 20, "batch_size": 32, "learning_rate": 1e-3}


def rows() -> list[Row]:
    """One row: how many times faster sixteen 64-32-10 networks train side by side."""
    target = density.target(models.mlp((64,), 10, hidden=(32,)), data.load("digits", flatten=True).train)
    together = inference.ensemble(num_members=NUM_MEMBERS, **SETTINGS)
    apart = inference.ensemble(num_members=NUM_MEMBERS, members_per_block=1, **SETTINGS)
    key = jax.random.key(0)
    seconds = _interleaved(lambda: together(key, target), lambda: apart(key, target))
    ratio = seconds[1] / seconds[0]
    return [
        Row(
            name=f"ensemble of {NUM_MEMBERS} in one program, speed-up over one after the other",
            target=3.0,
            measured=ratio,
            unit="x",
            passed=ratio >= 3.0,
            note=f"{seconds[0]:.2f} s against {seconds[1]:.2f} s, least of {ROUNDS} interleaved rounds",
        )
    ]


def _interleaved(*functions: Callable[[], Any]) -> list[float]:
    """Least seconds of each, in turns, so that a busy machine slows all of them alike; compiled before."""
    for function in functions:
        jax.block_until_ready(jax.tree.leaves(function()))
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(ROUNDS):
        for function, record in zip(functions, times, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(jax.tree.leaves(function()))
            record.append(time.perf_counter() - start)
    return [min(record) for record in times]
