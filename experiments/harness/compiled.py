"""Programs that XLA has compiled are kept for the next run: a third of a short study is waiting for them.

They are machine code, which is run as it is read. So they lie in the user's own cache folder, never in a run
directory, which people pass on; and who keeps them elsewhere, or not at all, says so to JAX as always, by
JAX_COMPILATION_CACHE_DIR or JAX_ENABLE_COMPILATION_CACHE=false.
"""

import os
from collections.abc import MutableMapping
from pathlib import Path

FOLDER, SECONDS = "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
LEAST_SECONDS = "0.1"
"""Compiled sooner than this, a program is not worth its file."""


def keep_programs(environment: MutableMapping[str, str]) -> None:
    """Tell JAX, before it starts, where compiled programs are kept, unless it was told already."""
    if FOLDER in environment:
        return
    caches = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(caches) / "symbnn" / "programs"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        # A user without a home compiles anew: no reason to stop.
        return
    environment[FOLDER] = str(folder)
    environment.setdefault(SECONDS, LEAST_SECONDS)
