"""What every inference method takes and returns.

A method is made by a factory, `factory(**settings) -> method`, and called as `method(key, target) -> Fit`.
Long runs are loops on the host over jitted chunks: after each chunk the host reports `Progress` and hands the
draws of a sampler to a `Sink`, the state of a training to a `Checkpoint`, from which a stopped run goes on.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from symbnn.density import Target
from symbnn.types import Key, Params

SLOW_COMPILATION = 10.0
"""Seconds from which a compilation is worth a line in the log."""


class Fit(NamedTuple):
    """What every inference method returns."""

    posterior: Any
    """Something with `sample(key, num) -> Samples`."""
    diagnostics: dict[str, Any]
    """Arrays and floats by name; methods say in their docstring which."""


@dataclass(frozen=True)
class MemberStart:
    """`init` of the target around one member, as `multimode` hands it to a method: always that network."""

    network: Params

    def __call__(self, key: Key) -> Params:
        """The member."""
        return self.network


class Progress(NamedTuple):
    """What the host reports once per jitted chunk."""

    stage: str
    done: int
    total: int
    statistics: dict[str, float]
    replayed: bool = False
    """Whether the chunk was read back, after a resume, instead of computed."""


ProgressCallback = Callable[[Progress], None]
Method = Callable[[Key, Target], Fit]
Factory = TypeVar("Factory", bound=Callable[..., Any])

Chunk = dict[str, np.ndarray]
"""One chunk of a run: arrays by name (`draws/hidden/kernel`, `state/...`, `info/...`), float32, float16,
bfloat16, int32 or bool, of any rank including 0."""


@runtime_checkable
class Sink(Protocol):
    """Where a run keeps its chunks; `symbnn.io.ChunkStore(directory)` is the one on disk.

    A chunk that was written must come back bit for bit or not at all: the run trusts what it reads.
    """

    def open(self, fingerprint: Mapping[str, str]) -> None:
        """Bind to one run. The first call keeps `fingerprint`; later ones raise a `ValueError` that names
        the first entry that differs, so that chunks of another run are never mixed in."""
        ...

    def read(self, index: int) -> Chunk | None:
        """Chunk `index`, or None if it was never written; `ValueError` naming the file if it is damaged."""
        ...

    def write(self, index: int, chunk: Chunk) -> None:
        """Keep chunk `index`, atomically: a process killed in the middle leaves no chunk or the old one."""
        ...


@runtime_checkable
class Checkpoint(Protocol):
    """Where training keeps its latest state; `symbnn.io.TrainingStore(directory)` is the one on disk.

    What was written must come back bit for bit or not at all: training trusts what it reads.
    """

    def read(self, stage: str, fingerprint: Mapping[str, str]) -> Chunk | None:
        """Arrays by name as of the last step of `stage`, or None if there is none; `ValueError` if they are
        damaged or were written with another fingerprint."""
        ...

    def write(self, stage: str, step: int, fingerprint: Mapping[str, str], arrays: Chunk) -> None:
        """Keep the arrays of step `step`, atomically: a process killed in the middle leaves those before."""
        ...


def documented(mark: str, text: str) -> Callable[[Factory], Factory]:
    """A decorator that puts `text`, on settings that several factories share, in place of `mark`."""

    def decorate(factory: Factory) -> Factory:
        factory.__doc__ = (factory.__doc__ or "").replace(mark, text)
        return factory

    return decorate


@contextlib.contextmanager
def noting_compilation(logger: logging.Logger, stage: str) -> Iterator[None]:
    """Log how long the first call of a compiled program takes, if that is long."""
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    if seconds >= SLOW_COMPILATION:
        logger.info("%s: the first call, compilation included, took %.0f s", stage, seconds)


def check_count(name: str, value: Any, *, least: int = 1) -> None:
    """`ValueError` unless `value` is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}")
