"""Who hears of progress: a bar by default, JSON lines, sinks of scalars, or any callable.

`progress=` of every method is one of

    "auto"                           a bar on a terminal or in a notebook, nothing elsewhere
    progress_bar()                   the same bar, and a line every ten seconds elsewhere
    json_lines("run.jsonl")          one line of JSON for every event
    scalars(writer)                  writer(step, {"sampling/acceptance": 0.8, ...})
    any callable of a `Progress`     called by the host after every compiled chunk
    a tuple of these                 all of them
    None                             nobody
"""

import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import jax

from symbnn.inference.bar import Bar, is_interactive
from symbnn.inference.base import Progress, ProgressCallback


@runtime_checkable
class Display(Protocol):
    """What is opened for every loop on the host, and closed when that ends, also by an error."""

    def open(self) -> contextlib.AbstractContextManager[ProgressCallback]:
        """The callback of one loop."""
        ...


ShowProgress: TypeAlias = Literal["auto"] | ProgressCallback | Display | tuple[Any, ...] | None
"""What every method takes as `progress`."""

WORDS = """progress: `"auto"`, a bar on a terminal or in a notebook; a callable of a `Progress`, called by the
            host after every compiled chunk; a tuple of such; or None."""
"""For the docstrings of methods."""


@contextlib.contextmanager
def reporting(progress: ShowProgress) -> Iterator[ProgressCallback | None]:
    """The callback of one loop on the host, from what the user gave as `progress`; None if nobody listens."""
    if isinstance(progress, tuple | list):
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(reporting(each)) for each in progress]
            yield _together([callback for callback in opened if callback is not None])
        return
    if progress == "auto":
        # One process of several is enough.
        progress = Bar() if is_interactive(sys.stderr) and jax.process_index() == 0 else None
    if isinstance(progress, Display):
        with progress.open() as callback:
            yield callback
    elif progress is None or callable(progress):
        yield progress
    else:
        raise ValueError(f"progress must be 'auto', a callable, a tuple of such, or None; got {progress!r}")


def progress_bar(*, stream: Literal["stderr", "stdout"] = "stderr", leave: bool = True) -> Bar:
    """A bar with acceptance (or loss) and the time left; lines where there is neither terminal nor notebook.

    Args:
        stream: Where it is drawn.
        leave: Whether it stays when its loop has ended.
    """
    return Bar(stream, leave)


def json_lines(path: str | Path) -> ProgressCallback:
    """A callback that appends every event to a file, as one line of JSON.

    Its fields are `time` (seconds since 1970), `stage`, `done`, `total`, `replayed` (read back after a
    resume) and the statistics by name; numbers that are not finite are null.

    Args:
        path: The file. A line is whole, and on its way to the disk, when the callback returns.
    """
    path = Path(path)

    def callback(event: Progress) -> None:
        fields = {"time": time.time(), **event._asdict()}
        statistics = {name: _finite(value) for name, value in fields.pop("statistics").items()}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fields | statistics) + "\n")

    return callback


def scalars(sink: Callable[[int, dict[str, float]], Any], *, replayed: bool = False) -> ProgressCallback:
    """A callback for writers of TensorBoard's kind: `sink(step, {"sampling/acceptance": 0.8, ...})`.

    The step is that of the stage: draws, epochs or chunks done.

    Args:
        sink: Called with the step and its numbers, say a function that calls `add_scalar` for each.
        replayed: Whether events that were read back after a resume are sent too, which the sink may have
            already.
    """

    def callback(event: Progress) -> None:
        if replayed or not event.replayed:
            sink(event.done, {f"{event.stage}/{name}": value for name, value in event.statistics.items()})

    return callback


def _together(callbacks: list[ProgressCallback]) -> ProgressCallback | None:
    def callback(event: Progress) -> None:
        for each in callbacks:
            each(event)

    return callback if callbacks else None


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
