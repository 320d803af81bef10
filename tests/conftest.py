"""Simulated devices, cheap compilation and shape checking: all must be set before anything touches JAX."""

import contextlib
import ctypes
import gc
import os
import signal
import warnings
from pathlib import Path

# What a shell starts in the background ignores Ctrl-C, and so would the studies that tests start and stop.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests compile many small programs and run each a few times: optimising them costs more than it gains, and
# the plain fusion emitter compiles in two thirds of the time. SYMBNN_TEST_OPTIMISED=1 tests what users run.
if not os.environ.get("SYMBNN_TEST_OPTIMISED"):
    os.environ["XLA_FLAGS"] = " ".join(
        [
            os.environ.get("XLA_FLAGS", ""),
            "--xla_backend_optimization_level=0",
            "--xla_llvm_disable_expensive_passes=true",
            "--xla_cpu_use_fusion_emitters=false",
            "--xla_cpu_parallel_codegen_split_count=1",
        ]
    )

# ArviZ notes the day of its first import in a file; two workers that write it at once fail. Whoever starts
# them imports it first.
if "PYTEST_XDIST_WORKER" not in os.environ:
    with warnings.catch_warnings(action="ignore"):
        import arviz  # noqa: F401

import jax
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_num_cpu_devices", 8)
# Shapes are checked at every call, except in discovery: it reads programs by a million small calls.
CHECKED = (
    "compact",
    "density",
    "diagnostics",
    "evaluate",
    "inference",
    "interop",
    "io",
    "models",
    "posteriors",
    "sharing",
)
install_import_hook(
    [*(f"symbnn.{name}" for name in CHECKED), "symbnn.symmetry.alignment"], "beartype.beartype"
)

MOST_MEMORY = 2**31
"""Bytes that a worker may hold between two files: compiled programs of the whole suite take 9 GB and more."""
MOST_WITHIN_A_FILE = 3 * 2**31
"""Between two tests of a file, which share their programs: large networks would pile up to 14 GB."""


@pytest.fixture(autouse=True, scope="module")
def _forget_programs():
    """Compiled programs go once they fill the memory; tests of a file share theirs."""
    yield
    _forget_above(MOST_MEMORY)


@pytest.fixture(autouse=True)
def _forget_large_programs():
    yield
    _forget_above(MOST_WITHIN_A_FILE)


def _forget_above(most: int) -> None:
    if _resident() > most:
        jax.clear_caches()
        gc.collect()
        _return_memory()


def _return_memory() -> None:
    """What was freed goes back to the system: of 1.5 GB of programs, glibc keeps all but 5 MB by itself."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _resident() -> int:
    """Bytes of this process in memory; 0 where the system does not tell."""
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if pages.exists() else 0
