"""Accidents to a run: killed, crowded out, without space, without rights, with other clocks and other files.

After each the rerun must end with the table of an undisturbed run, and lose nothing that was finished.
"""

import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.faults import ROOT, Fault, command, environment, is_one_clear_line, run

NUM_KILLS = 8
NOBODY = 65534


class Ground(NamedTuple):
    """Where accidents happen: a folder, compiled programs, and the undisturbed run."""

    folder: Path
    cache: Path
    finished: Path
    seconds: float

    def copy(self, name: str) -> Path:
        """The undisturbed run once more."""
        return Path(shutil.copytree(self.finished, self.folder / name))

    def is_same(self, directory: Path) -> bool:
        """Whether a run ended with the undisturbed run's table, numbers and report."""
        names = ("table.md", "metrics.jsonl")
        same = all((directory / name).read_bytes() == (self.finished / name).read_bytes() for name in names)
        return same and (directory / "report.html").exists()


def faults() -> Iterator[Fault]:
    """All accidents to a run."""
    with tempfile.TemporaryDirectory() as name:
        ground = _ground(Path(name))
        yield _kills(ground)
        yield _damaged(ground)
        yield _swapped(ground)
        yield _damaged_description(ground)
        yield _full_disk(ground)
        yield _read_only(ground)
        yield _two_processes(ground)
        yield _clocks(ground)


def _ground(folder: Path) -> Ground:
    cache, finished = folder / "cache", folder / "finished"
    # The first run compiles; the second is as long as a run is when it is killed.
    run(folder / "first", cache).check_returncode()
    begun = time.monotonic()
    run(finished, cache).check_returncode()
    return Ground(folder, cache, finished, time.monotonic() - begun)


def _kills(ground: Ground) -> Fault:
    """One run, killed at random moments; each start goes on from what the one before finished."""
    directory, moments = ground.folder / "killed", random.Random(0)
    survived, kept = 0, set[str]()
    for _ in range(NUM_KILLS):
        process = subprocess.Popen(
            command(directory), cwd=ROOT, env=environment(ground.cache), stdout=subprocess.DEVNULL
        )
        time.sleep(moments.uniform(0.2, 1.0) * ground.seconds)
        process.kill()
        process.wait()
        now = {path.name for path in (directory / "stages").glob("*.safetensors")}
        survived += kept <= now
        kept = now
    ended = run(directory, ground.cache)
    is_whole = ended.returncode == 0 and ground.is_same(directory)
    note = f"then the run ends with the same bytes in table and numbers; {len(kept)} stages were kept"
    return Fault("kill -9 while it samples, trains and writes", NUM_KILLS, survived * is_whole, note)


def _damaged(ground: Ground) -> Fault:
    """Every stage's file cut, flipped, emptied: named, computed again, and the same table."""
    damages: dict[str, Callable[[bytes], bytes]] = {
        "cut": lambda content: content[: len(content) // 2],
        "flipped": lambda content: content[:-3] + bytes([content[-3] ^ 4]) + content[-2:],
        "empty": lambda content: b"",
    }
    stages = sorted(path.name for path in (ground.finished / "stages").glob("*.safetensors"))
    survived = 0
    for damage, spoil in damages.items():
        # All stages at once, which also tries every combination with its neighbours.
        directory = ground.copy(f"damaged_{damage}")
        for stage in stages:
            path = directory / "stages" / stage
            path.write_bytes(spoil(path.read_bytes()))
        ended = run(directory, ground.cache)
        named = sum(f"{stage}" in ended.stdout for stage in stages)
        survived += named if ended.returncode == 0 and ground.is_same(directory) else 0
    note = "every file is named and its stage computed again, to the same table"
    return Fault("stage files cut, flipped, emptied", len(damages) * len(stages), survived, note)


def _swapped(ground: Ground) -> Fault:
    """Whole files of the wrong stage, or of another run."""
    other = ground.folder / "other"
    run(other, ground.cache, "--seed", "1").check_returncode()
    swapped, foreign = ground.copy("swapped"), ground.copy("foreign")
    stages = sorted(path.name for path in (swapped / "stages").glob("*.safetensors"))
    for path, source in zip(stages, [*stages[1:], stages[0]], strict=True):
        shutil.copy(ground.finished / "stages" / source, swapped / "stages" / path)
        shutil.copy(other / "stages" / path, foreign / "stages" / path)
    survived = 0
    for directory in (swapped, foreign):
        ended = run(directory, ground.cache)
        survived += ended.returncode == 0 and ground.is_same(directory)
    note = "every file knows its stage and its run; both runs end with the same table"
    return Fault("stage files exchanged, or of another run", 2, survived, note)


def _damaged_description(ground: Ground) -> Fault:
    """`run.json` cut, emptied, or of another config."""
    survived = 0
    for index, text in enumerate(("{half", "", '{"study": "compact_posterior", "config": {"seed": 5}}')):
        directory = ground.copy(f"described_{index}")
        (directory / "run.json").write_text(text)
        survived += is_one_clear_line(run(directory, ground.cache), str(directory), "--fresh")
        survived += run(directory, ground.cache, "--fresh").returncode == 0 and ground.is_same(directory)
    note = "one line names the folder and --fresh; that starts over, to the same table"
    return Fault("run.json cut, emptied, of another config", 6, survived, note)


def _full_disk(ground: Ground) -> Fault:
    """A file system of 256 kB where one may be mounted, else a limit on the size of files."""
    directory = ground.folder / "small"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(directory)]
    is_mounted = subprocess.run(mount, capture_output=True).returncode == 0
    try:
        limit = None if is_mounted else _limit_files
        ended = run(directory / "run", ground.cache, preexec_fn=limit)
        survived = int(is_one_clear_line(ended, str(directory), "free space"))
        if is_mounted:
            subprocess.run(["mount", "-o", "remount,size=64m", str(directory)], check=True)
        ended = run(directory / "run", ground.cache)
        survived += ended.returncode == 0 and ground.is_same(directory / "run")
    finally:
        if is_mounted:
            subprocess.run(["umount", str(directory)], check=True)
    where = "a file system of 256 kB" if is_mounted else "files limited to 64 kB"
    return Fault("full disk", 2, survived, f"{where}: one line; with space again the run ends as it should")


def _limit_files() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))


def _read_only(ground: Ground) -> Fault:
    """A folder without the right to write, as a user who is not root."""
    directory = ground.copy("read_only")
    for path in [directory, *directory.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    for path in (ground.folder, ground.cache):
        path.chmod(0o755)
    user = {"user": NOBODY} if os.getuid() == 0 else {}
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}
    ended = run(directory, ground.cache, **user)
    untouched = {path: path.stat().st_mtime_ns for path in before} == before
    survived = int(is_one_clear_line(ended, str(directory)) and untouched)
    for path in [directory, *directory.rglob("*")]:
        path.chmod(0o755)
    return Fault("run directory without the right to write", 1, survived, "one line; no file was touched")


def _two_processes(ground: Ground) -> Fault:
    """Two processes in one run directory at the same time."""
    directory = ground.folder / "crowded"
    first = subprocess.Popen(
        command(directory), cwd=ROOT, env=environment(ground.cache), stdout=subprocess.PIPE, text=True
    )
    assert first.stdout is not None
    first.stdout.readline()
    second = run(directory, ground.cache)
    first.communicate(timeout=600)
    survived = int(is_one_clear_line(second, "another process works in"))
    survived += first.returncode == 0 and ground.is_same(directory)
    return Fault(
        "two processes in one run directory", 2, survived, "the second says so; the first is undisturbed"
    )


def _clocks(ground: Ground) -> Fault:
    """Files from the future, and from before there were computers: nothing may depend on the clock."""
    survived = 0
    for year, seconds in (("future", 4_000_000_000), ("past", 0)):
        directory = ground.copy(f"clock_{year}")
        for path in directory.rglob("*"):
            os.utime(path, (seconds, seconds))
        ended = run(directory, ground.cache)
        stages = len(list((directory / "stages").glob("*.safetensors")))
        survived += ended.stdout.count(": reused") == stages and ground.is_same(directory)
    return Fault("clock gone back or forward", 2, survived, "every stage is reused, to the same table")
