"""`python -m tests.accelerators.run RESULT [CASE ...]`: run cases, lower what they call.

In a process of its own, because `jax.jit` must be replaced before symbnn is imported. The library believes
that it is on an accelerator (`jax.default_backend`), so it takes the roads that it would take there.
"""

import contextlib
import importlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_num_cpu_devices", 8)

from tests.accelerators.recorder import Program, Recorder  # noqa: E402

MODULES = ("cases_inference", "cases_evaluate", "cases_symmetry", "cases_compact")


def main(result: str, chosen: list[str]) -> None:
    """Write a list of what became of every program."""
    recorder = Recorder()
    recorder.install()
    for name in MODULES:
        importlib.import_module(f"tests.accelerators.{name}")
    from tests.accelerators.cases import CASES

    devices = jax.devices()
    jax.default_backend = lambda: "tpu"
    for name in chosen or CASES:
        begun = time.perf_counter()
        for number in (1, 8) if CASES[name].is_mapped else (1,):
            recorder.case, recorder.is_dry = name, CASES[name].is_dry
            with only(devices[:number]):
                CASES[name].run()
        print(f"{time.perf_counter() - begun:6.2f} s  {name}", file=sys.stderr, flush=True)
    begun = time.perf_counter()
    rows = lowered(list(recorder.programs.values()), devices)
    print(f"{time.perf_counter() - begun:6.2f} s  {len(rows)} lowered", file=sys.stderr)
    Path(result).write_text(json.dumps(rows))


def lowered(programs: list[Program], devices: list[Any]) -> list[dict[str, Any]]:
    """Every program for every platform; a part of another one only if it is never called by itself."""
    from tests.accelerators.lowering import PLATFORMS, lower, versions

    alone = {program.site for program in programs if not program.is_part}
    wanted = [program for program in programs if not program.is_part or program.site not in alone]
    return [
        lower(version, platform)._asdict()
        for program in wanted
        for version in versions(program, devices)
        for platform in PLATFORMS
    ]


@contextlib.contextmanager
def only(devices: list[Any]) -> Iterator[None]:
    """As if there were no other devices."""
    before = jax.devices, jax.local_devices
    jax.devices = jax.local_devices = lambda *_: list(devices)
    yield
    jax.devices, jax.local_devices = before


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
