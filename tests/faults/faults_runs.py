"""Accidents to the files of a run: damaged, exchanged, another run's; other processes, clocks and data.

After each the rerun must end with the table of an undisturbed run, and lose nothing that was finished.
"""

import os
import shutil
from collections.abc import Callable, Iterator

import numpy as np

from symbnn.data.uci import NUM_ROWS
from tests.faults import Fault
from tests.faults.ground import contents, ground, in_pairs, is_one_clear_line

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[: len(content) // 2],
    "flipped": lambda content: content[:-3] + bytes([content[-3] ^ 4]) + content[-2:],
    "empty": lambda content: b"",
}
SHARDS = "zoo/shard-*.safetensors"


def faults() -> Iterator[Fault]:
    """All of them."""
    ground()
    return in_pairs(
        [_damaged, _swapped, _damaged_description, _damaged_zoo, _two_processes, _clocks, _no_numbers]
    )


def _damaged() -> Fault:
    """Every stage's file cut, flipped, emptied: named, computed again, and the same table."""
    place = ground()
    stages = sorted(path.name for path in (place.finished / "stages").glob("*.safetensors"))
    survived = 0
    for damage, spoil in DAMAGES.items():
        # All stages at once, which also tries every combination with its neighbours.
        directory = place.copy(f"damaged_{damage}")
        for stage in stages:
            path = directory / "stages" / stage
            path.write_bytes(spoil(path.read_bytes()))
        ended = place.run(directory)
        named = sum(stage in ended.stdout for stage in stages)
        survived += named if ended.returncode == 0 and place.is_same(directory) else 0
    note = "every file is named and its stage computed again, to the same table"
    return Fault("stage files cut, flipped, emptied", len(DAMAGES) * len(stages), survived, note)


def _swapped() -> Fault:
    """Whole files of the wrong stage, or of another run."""
    place = ground()
    other = place.folder / "other"
    place.run(other, "--seed", "1").check_returncode()
    swapped, foreign = place.copy("swapped"), place.copy("foreign")
    stages = sorted(path.name for path in (swapped / "stages").glob("*.safetensors"))
    for path, source in zip(stages, [*stages[1:], stages[0]], strict=True):
        shutil.copy(place.finished / "stages" / source, swapped / "stages" / path)
        shutil.copy(other / "stages" / path, foreign / "stages" / path)
    survived = 0
    for directory in (swapped, foreign):
        ended = place.run(directory)
        named = sum(f"{stage} belongs to another" in ended.stdout for stage in stages)
        survived += named if ended.returncode == 0 and place.is_same(directory) else 0
    note = "every file knows its stage and its run and is computed again, to the same table"
    return Fault("stage files exchanged, or of another run", 2 * len(stages), survived, note)


def _damaged_description() -> Fault:
    """`run.json` cut, emptied, nested too deep, or of another config."""
    place, survived = ground(), 0
    foreign = '{"study": "compact_posterior", "config": {"seed": 5}}'
    contents = ("{half", "", "[" * 200_000, '{"study": 1}', foreign)
    for index, text in enumerate(contents):
        directory = place.copy(f"described_{index}")
        (directory / "run.json").write_text(text)
        survived += is_one_clear_line(place.run(directory), str(directory), "--fresh")
    ended = place.run(directory, "--fresh")
    survived += ended.returncode == 0 and place.is_same(directory)
    note = "one line names the folder and --fresh; that starts over, to the same table"
    return Fault("run.json cut, emptied, nested, foreign", len(contents) + 1, survived, note)


def _damaged_zoo() -> Fault:
    """A shard damaged, a shard of another place, one lost: trained again, alone, to the same weights."""
    place, survived = ground("model_zoo"), 0
    shards = sorted(place.finished.glob(SHARDS))
    whole = [shard.read_bytes() for shard in shards]
    damages = {name: spoil(whole[1]) for name, spoil in DAMAGES.items()} | {"exchanged": whole[2]}
    for damage, content in damages.items():
        directory = place.copy(f"zoo_{damage}")
        (directory / "zoo" / shards[1].name).write_bytes(content)
        ended = place.run(directory)
        restored = contents(directory, SHARDS) == contents(place.finished, SHARDS)
        named = shards[1].name in ended.stdout and ended.stdout.count("training it again") == 1
        survived += named and restored and place.is_same(directory)
    note = "the shard is named and trained again, alone, to the same weights"
    return Fault("shard of a zoo cut, flipped, emptied, exchanged", len(damages), survived, note)


def _two_processes() -> Fault:
    """Two processes in one run directory at the same time."""
    place = ground()
    directory = place.folder / "crowded"
    first = place.start(directory)
    assert first.stdout is not None
    first.stdout.readline()
    refused = [place.run(directory), place.run(directory, "--fresh")]
    first.communicate(timeout=600)
    survived = sum(is_one_clear_line(ended, "another process works in", str(directory)) for ended in refused)
    survived += first.returncode == 0 and place.is_same(directory)
    note = "the second says so, with --fresh too; the first is undisturbed"
    return Fault("two processes in one run directory", 3, survived, note)


def _clocks() -> Fault:
    """Files from the future, and from before there were computers: nothing may depend on the clock."""
    place, survived = ground(), 0
    for year, seconds in (("future", 4_000_000_000), ("past", 0)):
        directory = place.copy(f"clock_{year}")
        for path in directory.rglob("*"):
            os.utime(path, (seconds, seconds))
        ended = place.run(directory)
        stages = len(list((directory / "stages").glob("*.safetensors")))
        survived += ended.stdout.count(": reused") == stages and place.is_same(directory)
    survived += _clock_goes_back()
    note = (
        "files of the year 2096 and of 1970: every stage is reused, to the same table; "
        "a clock that goes back a minute with every look: the same table"
    )
    return Fault("clock gone back or forward", 3, survived, note)


def _clock_goes_back() -> bool:
    """A whole run whose every look at the clock shows an earlier time than the one before."""
    place = ground()
    patch = place.folder / "clock_patch"
    patch.mkdir()
    (patch / "sitecustomize.py").write_text(
        "import itertools, time\n"
        "begun, looks = time.time(), itertools.count()\n"
        "time.time = lambda: begun - 60.0 * next(looks)\n"
        "time.time_ns = lambda: int(1e9 * time.time())\n"
    )
    directory = place.folder / "clock_goes_back"
    ended = place.run(directory, environment={"PYTHONPATH": str(patch)})
    return ended.returncode == 0 and place.is_same(directory)


def _no_numbers() -> Fault:
    """NaN and infinity in a table of data."""
    place, survived = ground(), 0
    values = ("nan", "inf", "1e999", "NA")
    for value in values:
        folder = place.folder / f"data_{value}" / "uci" / "yacht"
        folder.mkdir(parents=True)
        table = np.random.default_rng(0).normal(size=(NUM_ROWS["yacht"], 7)).astype(str)
        table[17, 3] = value
        (folder / "data.txt").write_text("\n".join(map(" ".join, table)) + "\n")
        (folder / "index_features.txt").write_text("\n".join(map(str, range(6))) + "\n")
        (folder / "index_target.txt").write_text("6\n")
        options = ("--data.name", "uci/yacht", "--data.directory", str(folder.parent.parent))
        ended = place.run(place.folder / f"run_{value}", *options)
        survived += is_one_clear_line(ended, str(folder / "data.txt"), "row")
    return Fault("NaN, infinity or a word in the data", len(values), survived, "one line names file and row")
