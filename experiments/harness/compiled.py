"""Programs that XLA has compiled are kept for the next run: a quarter of `make run` is waiting for them.

They are machine code, which is run as it is read. So they lie in the user's own cache folder, never in a run
directory, which people pass on. Who keeps them elsewhere, or not at all, says so to JAX as always, by
JAX_COMPILATION_CACHE_DIR or JAX_ENABLE_COMPILATION_CACHE=false.
"""

import os
import zlib
from collections.abc import MutableMapping
from pathlib import Path

FOLDER, SECONDS = "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
LEAST_SECONDS = "0.1"
"""A program that is compiled sooner is not worth its file."""
CHECKED = "checked"
"""Touched when all files that were there had been checked."""
ZLIB = b"\x78"
"""How a file begins, unless JAX has found another library to shorten it by."""


def keep_programs(environment: MutableMapping[str, str]) -> None:
    """Tell JAX, before it starts, where compiled programs are kept, unless it was told already."""
    if FOLDER in environment:
        return
    caches = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(caches) / "symbnn" / "programs"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _drop_torn(folder)
    except OSError:
        # Who may not write there compiles anew: no reason to stop.
        return
    environment[FOLDER] = str(folder)
    environment.setdefault(SECONDS, LEAST_SECONDS)


def _drop_torn(folder: Path) -> None:
    """Files that a killed run left half written: JAX would warn of them for ever, and keep them."""
    checked = folder / CHECKED
    since = checked.stat().st_mtime if checked.exists() else 0.0
    for file in folder.glob("*-cache"):
        if file.stat().st_mtime >= since and not _is_whole(file.read_bytes()):
            file.unlink(missing_ok=True)
    checked.touch()


def _is_whole(content: bytes) -> bool:
    if not content.startswith(ZLIB):
        return bool(content)
    try:
        zlib.decompress(content)
    except zlib.error:
        return False
    return True
