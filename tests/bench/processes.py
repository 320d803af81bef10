"""Measurements in a process of their own: several CPU devices, fewer cores, or a peak of memory need one.

A module that measures so says what its functions are called, `processes.answer({"memory": measure_memory})`
under `__main__`, and asks for one by `processes.ask("tests.bench.bench_inference", "memory", 100, 1000)`.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

# As docs/howto/devices.md advises for convolutional networks.
LARGE_PAGES = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824:"
    "glibc.malloc.trim_threshold=4294967296"
}


# What one process has compiled, the next loads: several start for every row, and no row counts compiling.
PROGRAMS = tempfile.TemporaryDirectory(prefix="symbnn_bench_")
KEPT_PROGRAMS = {
    "JAX_COMPILATION_CACHE_DIR": PROGRAMS.name,
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
}


def ask(
    module: str,
    what: str,
    *numbers: int,
    devices: int = 1,
    cores: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Any:
    """What the module's measurement `what` returns, on so many CPU devices and cores (all if None)."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    command = [sys.executable, "-m", module, what, *map(str, numbers)]
    output = subprocess.run(
        command,
        env={
            **os.environ,
            **KEPT_PROGRAMS,
            **(environment or {}),
            "XLA_FLAGS": flags,
        },
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=None if cores is None else lambda: _keep_to(cores),
    ).stdout
    return json.loads(output.splitlines()[-1])


def answer(measures: Mapping[str, Callable[..., Any]]) -> None:
    """Run what the command line names, and print what it returns."""
    what, *numbers = sys.argv[1:]
    print(json.dumps(measures[what](*map(int, numbers))))


def _keep_to(cores: int) -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
