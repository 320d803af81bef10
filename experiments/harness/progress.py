"""Progress of sampling and training: a bar on a terminal, plain lines elsewhere."""

import contextlib
import time
from collections.abc import Callable, Iterator

from rich import progress as rich_progress
from rich.console import Console

from symbnn.inference import Progress

SECONDS_BETWEEN_LINES = 10.0


@contextlib.contextmanager
def show() -> Iterator[Callable[[Progress], None]]:
    """A callback for the methods of `inference`, called once per jitted chunk."""
    console = Console()
    if not console.is_terminal:
        yield _Lines()
        return
    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TextColumn("{task.fields[rate]}"),
        rich_progress.TimeRemainingColumn(),
        rich_progress.TextColumn("{task.fields[statistics]}"),
    )
    with rich_progress.Progress(*columns, console=console, transient=True) as bars:
        yield _Bars(bars)


class _Bars:
    def __init__(self, bars: rich_progress.Progress) -> None:
        self.bars = bars
        self.tasks: dict[str, rich_progress.TaskID] = {}
        self.clock = _Clock()

    def __call__(self, event: Progress) -> None:
        if event.stage not in self.tasks:
            self.tasks[event.stage] = self.bars.add_task(event.stage, rate="", statistics="")
        self.bars.update(
            self.tasks[event.stage],
            completed=event.done,
            total=event.total,
            rate=f"{self.clock.rate(event):.1f}/s",
            statistics=_words(event.statistics),
        )


class _Lines:
    def __init__(self) -> None:
        self.clock = _Clock()
        self.last = 0.0

    def __call__(self, event: Progress) -> None:
        rate, now = self.clock.rate(event), time.monotonic()
        ahead = event.total - event.done
        if now - self.last < SECONDS_BETWEEN_LINES and ahead > 0:
            return
        self.last = now
        left = f", {ahead / rate:.0f} s left" if rate and ahead > 0 else ""
        words = f" ({_words(event.statistics)})" if event.statistics else ""
        print(f"  {event.stage} {event.done}/{event.total}, {rate:.1f}/s{left}{words}", flush=True)


class _Clock:
    """Steps per second since the stage was first heard of, which leaves compilation out."""

    def __init__(self) -> None:
        self.starts: dict[str, tuple[float, int]] = {}

    def rate(self, event: Progress) -> float:
        now = time.monotonic()
        start, done = self.starts.setdefault(event.stage, (now, event.done))
        return (event.done - done) / (now - start) if now > start and event.done > done else 0.0


def _words(statistics: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in statistics.items())
