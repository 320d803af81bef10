"""A bar for what the host reports, on terminals and in notebooks; plain lines everywhere else.

The only module of the library that knows rich, and only when a bar is drawn: without it there are lines.
"""

import contextlib
import importlib.util
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from symbnn.inference.base import Progress, ProgressCallback

SECONDS_BETWEEN_LINES = 10.0
# What a user steers by; the rest is for files and sinks.
RATES = ("acceptance", "step_size", "loss")
TROUBLE = ("divergences", "nonfinite_steps", "members_with_nonfinite_loss")
"""Told if they are not zero."""


@dataclass(frozen=True)
class Bar:
    """Made by `progress_bar`; what it draws lives as long as one loop on the host."""

    stream: Literal["stderr", "stdout"] = "stderr"
    leave: bool = True

    @contextlib.contextmanager
    def open(self) -> Iterator[ProgressCallback]:
        """The callback of one loop."""
        file = getattr(sys, self.stream)
        if not is_interactive(file) or not _can_draw():
            yield _lines(file)
            return
        from rich import console, progress

        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[words]}"),
        )
        # A notebook is recognised by rich itself.
        screen = console.Console(file=file, force_terminal=None if _is_notebook() else True)
        with progress.Progress(*columns, console=screen, transient=not self.leave) as bars:
            yield _bars(bars)


def is_interactive(file: Any) -> bool:
    """Whether somebody watches this stream: on a terminal that can draw, or in a notebook."""
    if file is None or file.closed:
        return False
    return _is_notebook() or (file.isatty() and os.environ.get("TERM") != "dumb")


def _is_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return "IPKernelApp" in getattr(shell, "config", ())


def _can_draw() -> bool:
    """Whether rich is there, and in a notebook the widgets that it draws with."""
    needed = ("rich", "ipywidgets") if _is_notebook() else ("rich",)
    return all(importlib.util.find_spec(name) is not None for name in needed)


def _bars(bars: Any) -> ProgressCallback:
    """A bar for every stage; until the first event, one that says that the program is being compiled."""
    clock = _clock()
    waiting = bars.add_task("compiling", total=None, words="")
    tasks: dict[str, Any] = {}

    def callback(event: Progress) -> None:
        bars.update(waiting, visible=False)
        if event.stage not in tasks:
            tasks[event.stage] = bars.add_task(event.stage, words="")
        words = _words(event, clock(event))
        bars.update(tasks[event.stage], completed=event.done, total=event.total, words=words)

    return callback


def _lines(file: Any) -> ProgressCallback:
    """A line at most every ten seconds, and at the end of every stage."""
    clock, last = _clock(), -math.inf

    def callback(event: Progress) -> None:
        nonlocal last
        now, rate = time.monotonic(), clock(event)
        if now - last >= SECONDS_BETWEEN_LINES or event.done >= event.total:
            last = now
            print(f"  {event.stage} {_words(event, rate)}", file=file, flush=True)

    return callback


def _clock() -> Callable[[Progress], float]:
    """Steps per second of a stage: since its first event, or since the end of the stage before it.

    That leaves out compilation and what is read back.
    """
    starts: dict[str, tuple[float, int]] = {}
    before: float | None = None

    def rate(event: Progress) -> float:
        nonlocal before
        now = time.monotonic()
        if event.replayed or (event.stage not in starts and before is None):
            starts[event.stage] = (now, event.done)
        start, done = starts.setdefault(event.stage, (before or now, 0))
        before = now
        return (event.done - done) / (now - start) if now > start and event.done > done else 0.0

    return rate


def _words(event: Progress, rate: float) -> str:
    """`200/1000, 12.0/s, 67 s left, acceptance 0.82`."""
    ahead = event.total - event.done
    parts = [f"{event.done}/{event.total}"]
    parts += [f"{rate:.1f}/s"] if rate else []
    parts += [f"{_duration(ahead / rate)} left"] if rate and ahead > 0 else []
    parts += ["read back"] if event.replayed else []
    told = [name for name in RATES if name in event.statistics]
    told += [name for name in TROUBLE if event.statistics.get(name)]
    return ", ".join([*parts, *(f"{name.replace('_', ' ')} {event.statistics[name]:.3g}" for name in told)])


def _duration(seconds: float) -> str:
    """`12 s`, `3 min 5 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
