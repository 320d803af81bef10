"""kill -9 while a run samples, trains, aligns, fills a zoo, draws figures and writes its report.

Every start goes on from what the one before finished. Nothing finished is lost or written again, and the last
start ends with the table of an undisturbed run.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.faults import Fault
from tests.faults.ground import Ground, contents, ground, in_pairs

Moment = Callable[[Path], bool]
NUM_RANDOM = 4


def faults() -> Iterator[Fault]:
    """Both studies."""
    return in_pairs([_sampling, _zoo])


def _there(pattern: str, count: int = 1) -> Moment:
    """As soon as the run directory holds so many files of that name."""
    return lambda directory: len(list(directory.glob(pattern))) >= count


def _sampling() -> Fault:
    moments = {
        "sampling": _there("chunks/hmc/chunk-*.safetensors"),
        "training": _there("stages/hmc.safetensors"),
        "variational inference": _there("stages/ensemble.safetensors"),
        "aligning": _there("stages/variational.safetensors"),
        "drawing": _there("figures/*.png"),
        "writing": _there("table.md"),
    }
    return _killed(ground(), moments, "stages/*.safetensors")


def _zoo() -> Fault:
    moments = {f"shard {index}": _there("zoo/shard-*.safetensors", index + 1) for index in range(3)}
    moments |= {"reading the zoo": _there("stages/*.safetensors"), "writing": _there("table.md")}
    return _killed(ground("model_zoo"), moments, "zoo/shard-*.safetensors", "stages/*.safetensors")


def _killed(place: Ground, moments: dict[str, Moment], *kept: str) -> Fault:
    """One run killed at the given moments, and one at random moments."""
    source = random.Random(0)
    survived = _survived(place, "killed", [partial(_at, moment) for moment in moments.values()], kept)
    survived += _survived(place, "killed_at_random", [lambda _: place.after(source)] * NUM_RANDOM, kept)
    note = (
        f"at {', '.join(moments)}, and {NUM_RANDOM} random moments: finished files keep what they held; "
        "the next start ends with the same bytes in table and numbers"
    )
    return Fault(f"kill -9 of {place.study}", len(moments) + NUM_RANDOM, survived, note)


def _at(moment: Moment, directory: Path) -> Callable[[], bool]:
    return lambda: moment(directory)


def _survived(
    place: Ground, name: str, times: Sequence[Callable[[Path], Callable[[], bool]]], kept: Sequence[str]
) -> int:
    """Kills after which nothing was lost; none if the run does not end well at last."""
    directory, survived, before = place.folder / name, 0, dict[str, str]()
    for time_of in times:
        place.kill_when(directory, time_of(directory))
        now = contents(directory, *kept)
        survived += before.items() <= now.items()
        before = now
    return survived if place.run(directory).returncode == 0 and place.is_same(directory) else 0
