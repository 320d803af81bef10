"""Accidents to the place of a run: a full disk, no right to write, an install that was interrupted."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults import ROOT, Fault
from tests.faults.ground import contents, ground, in_pairs, is_one_clear_line

INSTALL = ".venv/installed"


def faults() -> Iterator[Fault]:
    """All of them."""
    ground()
    return in_pairs([_full_disk, _read_only, _interrupted_install])


def _full_disk() -> Fault:
    """Disks that are full at the first chunk, within the stages, and at the figures."""
    place, survived = ground(), 0
    whole = sum(path.stat().st_size for path in place.finished.rglob("*") if path.is_file())
    sizes = (32 * 1024, whole // 4, whole - 64 * 1024)
    is_mountable = _can_mount(place.folder / "probe")
    for index, size in enumerate(sizes):
        directory = place.folder / f"small_{index}"
        directory.mkdir()
        with _disk(directory, size) if is_mountable else contextlib.nullcontext():
            limit = None if is_mountable else _limit(size // 4)
            ended = place.run(directory / "run", limit=limit)
            survived += is_one_clear_line(ended, str(directory), "free space")
            before = contents(directory / "run", "stages/*.safetensors")
            if is_mountable:
                _mount("-o", "remount,size=64m", str(directory))
            ended = place.run(directory / "run")
            is_kept = before.items() <= contents(directory / "run", "stages/*.safetensors").items()
            survived += ended.returncode == 0 and is_kept and place.is_same(directory / "run")
    where = "file systems" if is_mountable else "files limited to a quarter"
    note = (
        f"{where} of {', '.join(f'{size // 1024} kB' for size in sizes)}: one line names the file; "
        "with space again the run keeps its finished stages and ends with the same table"
    )
    return Fault("full disk", 2 * len(sizes), survived, note)


def _read_only() -> Fault:
    """A run directory that cannot be written to, finished and not."""
    place, survived = ground(), 0
    finished, begun = (place.folder / f"{name}_read_only" for name in ("finished", "begun"))
    is_mountable = _can_mount(place.folder / "probe_read_only")
    for directory in (finished, begun):
        directory.mkdir()
        with _disk(directory, 64 * 2**20) if is_mountable else _without_rights(directory):
            shutil.copytree(place.finished, directory / "run")
            if directory == begun:
                for stage in list((directory / "run" / "stages").iterdir())[:3]:
                    stage.unlink()
            before = _times(directory)
            if is_mountable:
                _mount("-o", "remount,ro", str(directory))
            else:
                _chmod(directory, 0o555, 0o444)
            ended = place.run(directory / "run")
            survived += is_one_clear_line(ended, str(directory)) and _times(directory) == before
    way = "a file system mounted read-only, which binds root too" if is_mountable else "no right to write"
    return Fault("read-only run directory", 2, survived, f"{way}: one line names it; no file was touched")


def _interrupted_install() -> Fault:
    """`make` killed with all its children, first while it makes the environment, then while pip installs."""
    moments: tuple[Callable[[Path], bool], ...] = (
        lambda folder: (folder / ".venv" / "pyvenv.cfg").exists(),
        lambda folder: _is_installing(folder),
    )
    survived = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("Makefile", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
            shutil.copy(ROOT / file, folder)
        (folder / "symbnn").mkdir()
        (folder / "symbnn" / "__init__.py").write_text("")
        for is_time in moments:
            _killed_make(folder, lambda is_time=is_time: is_time(folder))
            is_unmarked = not (folder / INSTALL).exists()
            planned = subprocess.run(["make", "-n", "run"], cwd=folder, capture_output=True, text=True)
            steps = [planned.stdout.find(step) for step in ("-m venv", "pip install", "compact_posterior")]
            survived += is_unmarked and -1 not in steps and steps == sorted(steps)
        finished = subprocess.run(["make", INSTALL], cwd=folder, capture_output=True)
        program = "import blackjax, flax, jax, numpyro, optax, symbnn"
        works = [folder / ".venv" / "bin" / "python", "-c", program]
        survived += finished.returncode == 0 and subprocess.run(works, capture_output=True).returncode == 0
    note = "no stamp is left, so the next `make` installs again; the third, left alone, makes it whole"
    return Fault("install interrupted by kill -9", len(moments) + 1, survived, note)


def _is_installing(folder: Path) -> bool:
    """pip runs and has begun to build or fetch: two seconds after its own files are there."""
    started = folder / ".venv" / "bin" / "pip"
    return started.exists() and time.time() - started.stat().st_mtime > 2.0


def _killed_make(folder: Path, is_time: Callable[[], bool]) -> None:
    process = subprocess.Popen(
        ["make", INSTALL],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    end = time.monotonic() + 120
    while process.poll() is None and not is_time() and time.monotonic() < end:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


def _can_mount(probe: Path) -> bool:
    probe.mkdir()
    try:
        with _disk(probe, 2**16):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@contextlib.contextmanager
def _disk(directory: Path, size: int) -> Iterator[None]:
    """A file system of that many bytes at the directory."""
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory))
    try:
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def _limit(size: int) -> Callable[[], None]:
    """No file of the process may be larger: writing then fails as on a full disk."""

    def limited() -> None:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limited


@contextlib.contextmanager
def _without_rights(directory: Path) -> Iterator[None]:
    try:
        yield
    finally:
        _chmod(directory, 0o755, 0o644)


def _chmod(directory: Path, folders: int, files: int) -> None:
    for path in [*directory.rglob("*"), directory]:
        path.chmod(folders if path.is_dir() else files)


def _times(directory: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}
