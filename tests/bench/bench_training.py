"""Speed of training: all members of an ensemble in one program against one after the other."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from symbnn import data, density, inference, models
from tests.bench import Row

NUM_MEMBERS = 16
ROUNDS = 5


def rows() -> list[Row]:
    """How many times faster sixteen small networks train side by side."""
    return [
        _row("2-8-2 on 400 points, batches of 10", _toy(), batch_size=10, least=3.0),
        _row("64-32-10 on digits, batches of 32", _digits(), batch_size=32, least=1.3),
    ]


def _row(name: str, target: density.Target, *, batch_size: int, least: float) -> Row:
    together, apart = (
        inference.ensemble(num_members=NUM_MEMBERS, members_per_block=size, epochs=20, batch_size=batch_size)
        for size in (NUM_MEMBERS, 1)
    )
    key = jax.random.key(0)
    seconds = _interleaved(lambda: together(key, target), lambda: apart(key, target))
    ratio = seconds[1] / seconds[0]
    return Row(
        name=f"{NUM_MEMBERS} networks {name}: one program against one after the other",
        target=least,
        measured=ratio,
        unit="x",
        passed=ratio >= least,
        note=f"{seconds[0]:.2f} s against {seconds[1]:.2f} s, least of {ROUNDS} interleaved rounds",
    )


def _toy() -> density.Target:
    """Two classes of points in the plane."""
    random = np.random.default_rng(0)
    inputs = random.normal(size=(400, 2)).astype(np.float32)
    labels = (inputs[:, 0] * inputs[:, 1] > 0).astype(np.int32)
    return density.target(models.mlp((2,), 2, hidden=(8,)), density.Batch(inputs, labels))


def _digits() -> density.Target:
    return density.target(models.mlp((64,), 10, hidden=(32,)), data.load("digits", flatten=True).train)


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
