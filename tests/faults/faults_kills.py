"""kill -9 while a run samples, trains, aligns, fills a zoo, draws figures and writes its report.

Every start goes on from what the one before finished. Nothing finished is lost or written again, and the last
start ends with the table of an undisturbed run.
"""

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.faults import Fault
from tests.faults.ground import Ground, ground, in_pairs

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
        "sampling": _there("chunks/chunk-*.safetensors"),
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
    directory, source = place.folder / "killed", random.Random(0)
    survived, before = 0, dict[Path, str]()
    for moment in [*moments.values(), *[None] * NUM_RANDOM]:
        is_time = place.after(source) if moment is None else lambda moment=moment: moment(directory)
        place.kill_when(directory, is_time)
        now = _checksums(directory, kept)
        survived += before.items() <= now.items()
        before = now
    is_whole = place.run(directory).returncode == 0 and place.is_same(directory)
    tried = len(moments) + NUM_RANDOM
    note = (
        f"at {', '.join(moments)}, and {NUM_RANDOM} random moments: finished files stay as they were; "
        "the next start ends with the same bytes in table and numbers"
    )
    return Fault(f"kill -9 of {place.study}", tried, survived * is_whole, note)


def _checksums(directory: Path, patterns: Sequence[str]) -> dict[Path, str]:
    paths = [path for pattern in patterns for path in directory.glob(pattern)]
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
