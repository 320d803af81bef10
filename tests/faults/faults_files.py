"""Hostile files: every reader on thousands of damaged ones.

A damaged file is read as what it still says, or refused with the library's own error, which names the file.
Any other exception, or memory out of proportion to the file (a lying header), counts as a crash.
"""

import random
import tempfile
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import jax.numpy as jnp
import numpy as np

from configs.compact_posterior import CONFIGS
from experiments.harness.rundir import open_run
from symbnn import data, io
from symbnn.data.images import IMAGES
from symbnn.data.uci import NUM_ROWS
from symbnn.posteriors import DiagonalGaussian
from tests.data.files import FORMATS, NUM_TEST, NUM_TRAIN, labels, pixels, write
from tests.faults import Fault

NUM_DAMAGES = 300
MOST_BYTES = 64 * 2**20
"""Every file here is below 100 kB."""

DEBUG = CONFIGS["debug"][1]

Reader = Callable[[], Any]
Damage = Callable[[bytes, random.Random], bytes]


def faults() -> Iterator[Fault]:
    """One row for every format."""
    warnings.simplefilter("ignore")
    for name in (*FORMATS, "uci"):
        yield tried(f"{name} files", lambda folder, name=name: _dataset(folder, name), data.DataError)
    for name, make in ARTEFACTS.items():
        yield tried(name, make, io.ArtefactError)
    yield tried("run.json", _run_file, ValueError)


def damaged(content: bytes, source: random.Random) -> bytes:
    """Cut, flipped, overwritten, lengthened, nested deep, or with a number of the header made huge."""
    spoiled = bytearray(content)
    kind = source.choice(("cut", "flip", "noise", "longer", "huge", "empty", "doubled", "deep"))
    place = source.randrange(max(len(spoiled), 1))
    if kind == "cut":
        return bytes(spoiled[:place])
    if kind == "flip" and spoiled:
        spoiled[place] ^= 1 << source.randrange(8)
    if kind == "noise":
        spoiled[place : place + 16] = source.randbytes(16)
    if kind == "longer":
        spoiled += source.randbytes(source.randrange(1, 64))
    if kind == "huge":
        start = source.randrange(0, min(len(spoiled), 32) + 1)
        spoiled[start : start + 4] = b"\x7f\xff\xff\xff"
    if kind == "empty":
        return b""
    if kind == "doubled":
        return content + content
    if kind == "deep":
        return source.choice((b"[", b'{"a":')) * 100_000 + b"\n"
    return bytes(spoiled)


def tried(
    name: str,
    make: Callable[[Path], tuple[Reader, list[Path]]],
    error: type[Exception],
    damage: Damage = damaged,
) -> Fault:
    """Damage the files that `make` writes, one damage at a time, and read."""
    source, survived, refused = random.Random(name), 0, 0
    crashes: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as patches:
        _small_sets(patches)
        read, paths = make(Path(folder))
        read()
        for _ in range(NUM_DAMAGES):
            path = source.choice(paths)
            whole = path.read_bytes()
            path.write_bytes(damage(whole, source))
            crash = attempt(read, error)
            refused += crash == "refused"
            survived += crash in ("", "refused")
            if crash not in ("", "refused"):
                crashes[crash] = crashes.get(crash, 0) + 1
            path.write_bytes(whole)
    note = f"{refused} refused by name, the others read" + "".join(f"; {k}: {v}" for k, v in crashes.items())
    return Fault(name if damage is not damaged else f"damaged {name}", NUM_DAMAGES, survived, note)


def attempt(read: Reader, error: type[Exception]) -> str:
    """`refused`, nothing if it was read, else what went wrong."""
    tracemalloc.start()
    try:
        read()
        outcome = ""
    except error as refusal:
        outcome = "refused" if str(refusal).count("\n") == 0 else "refused in several lines"
    except Exception as crash:
        outcome = f"{type(crash).__name__}"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return outcome if peak < MOST_BYTES else f"{peak / 2**20:.0f} MiB"


def _small_sets(patches: ExitStack) -> None:
    sizes = {
        name: IMAGES[name]._replace(num_train=NUM_TRAIN, num_test=NUM_TEST)
        for name in FORMATS
        if name in IMAGES
    }
    patches.enter_context(mock.patch.dict(IMAGES, sizes))
    patches.enter_context(mock.patch.dict(NUM_ROWS, {"yacht": 50}))


def _dataset(folder: Path, name: str) -> tuple[Reader, list[Path]]:
    if name == "uci":
        place = folder / "uci" / "yacht"
        place.mkdir(parents=True)
        np.savetxt(place / "data.txt", np.random.default_rng(0).normal(3, 5, (50, 4)))
        (place / "index_features.txt").write_text("0\n1\n2\n")
        (place / "index_target.txt").write_text("3\n")
        return lambda: data.load("uci/yacht", data_dir=folder), sorted(place.iterdir())
    make, prefixes, (side, channels), num_classes = FORMATS[name]
    sizes = zip(prefixes, (NUM_TRAIN, NUM_TEST), strict=True)
    write(
        folder / name,
        make({part: (pixels(num, side, channels), labels(num, num_classes)) for part, num in sizes}),
    )
    return lambda: data.load(name, data_dir=folder), sorted((folder / name).iterdir())


def _tree(folder: Path) -> tuple[Reader, list[Path]]:
    path = folder / "tree.safetensors"
    io.save_tree(path, {"kernel": jnp.arange(12.0).reshape(3, 4), "bias": (jnp.ones(4), 3)}, {"a": "b"})
    return lambda: io.load_tree(path), [path]


def _posterior(folder: Path) -> tuple[Reader, list[Path]]:
    path = folder / "posterior.safetensors"
    io.save_posterior(path, DiagonalGaussian({"w": jnp.ones(5)}, {"w": jnp.ones(5)}))
    return lambda: io.load_posterior(path), [path]


def _chunks(folder: Path) -> tuple[Reader, list[Path]]:
    store = io.ChunkStore(folder / "chunks")
    store.open({"method": "hmc"})
    store.write(0, {"draws/w": np.ones((2, 3)), "info/x": np.zeros(2)})

    def read() -> None:
        again = io.ChunkStore(folder / "chunks")
        again.open({"method": "hmc"})
        again.read(0)

    return read, sorted((folder / "chunks").iterdir())


def _weights(folder: Path) -> tuple[Reader, list[Path]]:
    path = folder / "weights.safetensors"
    io.save_safetensors(path, {"fc.weight": np.ones((3, 4), np.float32), "fc.bias": np.zeros(3, np.float32)})
    return lambda: io.load_safetensors(path), [path]


def _run_file(folder: Path) -> tuple[Reader, list[Path]]:
    def read() -> None:
        with redirect_stdout(StringIO()), open_run("compact_posterior", DEBUG, folder / "run"):
            pass

    read()
    return read, [folder / "run" / "run.json"]


ARTEFACTS: dict[str, Callable[[Path], tuple[Reader, list[Path]]]] = {
    "trees (safetensors)": _tree,
    "posteriors": _posterior,
    "chunks of draws": _chunks,
    "weights of other frameworks": _weights,
}
