"""A zoo of 100,000 networks on disk: written, read one by one, streamed, aligned in a stream.

`python -m tests.bench zoo`. Memory is that of a process of its own, `python -m tests.bench.bench_zoo zoo 10`,
which prints the seconds of every part and the most memory that it held.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from symbnn import io, models, symmetry, tree
from tests.bench import Row, peak_memory, processes

FEW, MANY, SHARD = 10_000, 100_000, 1024
NUM_READ = 20
MEBIBYTE = 2**20


def rows() -> Iterator[Row]:
    """Size and seconds of the large zoo, and its memory against that of one a tenth as large."""
    few, many = (processes.ask("tests.bench.bench_zoo", "zoo", number) for number in (FEW, MANY))
    raw = 2 * many["weights"]
    share = many["bytes"] / MANY / raw
    yield Row(
        f"zoo of {MANY:,} networks 64-5-10 in half precision: bytes over those of the weights alone",
        1.05,
        share,
        "x",
        share <= 1.05,
        f"{many['bytes'] / 1e6:.1f} MB in shards of {SHARD}; {many['bytes'] / MANY:.0f} bytes a network",
    )
    for what, target, words in (
        ("write", 60.0, "with checksums and metrics"),
        ("stream", 30.0, "checksums included"),
        ("align", 60.0, "aligned to one network, batch by batch, reading included"),
    ):
        taken = many[what]
        yield Row(
            f"that zoo: {what} all networks",
            target,
            taken,
            "s",
            taken <= target,
            f"{words}; {few[what]:.1f} s for {FEW:,}",
        )
    taken = 1e3 * many["one"]
    yield Row(
        "that zoo: read one network", 50.0, taken, "ms", taken <= 50.0, f"median of {NUM_READ} random ones"
    )
    grown = many["memory"] / few["memory"]
    yield Row(
        f"that zoo: peak memory of all this, {MANY:,} networks over {FEW:,}",
        1.1,
        grown,
        "x",
        grown <= 1.1,
        f"{many['memory'] / MEBIBYTE:.0f} MiB, whole process",
    )


def measure(number: int, directory: Path) -> dict[str, float]:
    """Seconds to write, to read one, to stream and to align all networks; bytes on disk; peak memory."""
    model = models.mlp((64,), 10, hidden=(5,))
    zoo = io.Zoo(directory)
    zoo.open({"networks": "64-5-10"}, num_networks=number, shard_size=SHARD)
    create = jax.jit(jax.vmap(model.init))
    found = {"weights": float(tree.num_weights(model.init(jax.random.key(0))))}
    spent = 0.0
    for index, networks in enumerate(zoo.ranges()):
        samples = jax.block_until_ready(create(jax.random.split(jax.random.key(index), len(networks))))
        begun = time.perf_counter()
        zoo.write(index, samples, {"index": np.arange(len(networks))})
        spent += time.perf_counter() - begun
    found["write"] = spent
    found["bytes"] = float(sum(path.stat().st_size for path in directory.iterdir()))
    random, single = np.random.default_rng(0), []
    for _ in range(NUM_READ):
        begun = time.perf_counter()
        zoo.take([int(random.integers(number))])
        single.append(time.perf_counter() - begun)
    found["one"] = float(np.median(single))
    begun = time.perf_counter()
    seen = sum(tree.num_samples(batch) for batch in zoo.batches(SHARD))
    found["stream"] = time.perf_counter() - begun
    assert seen == number
    reference = tree.take(zoo.take([0]), 0)
    begun = time.perf_counter()
    for batch in zoo.batches(SHARD):
        aligned: Any = symmetry.align(model.spec, batch, reference=reference)
        jax.block_until_ready(aligned.samples)
    found["align"] = time.perf_counter() - begun
    return found | {"memory": float(peak_memory())}


def in_folder(number: int) -> dict[str, float]:
    """The same in a folder that is deleted afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        return measure(number, Path(folder))


if __name__ == "__main__":
    processes.answer({"zoo": in_folder})
