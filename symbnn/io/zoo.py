"""A zoo: thousands of networks on disk in numbered shards, with a manifest of what they are.

`zoo.json` holds the description of the zoo (config, seed), and of every shard its SHA-256 and the means of
its metrics. Shards are checked files of `save_tree` with at most `shard_size` networks each, in half or
single precision. Reading is lazy, one shard at a time: a shard bounds the memory, whatever the zoo's size.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from symbnn import tree
from symbnn.io.files import ArtefactError, bind, explaining, file_digest, parse_json, problem, write_text
from symbnn.io.trees import load_tree, save_tree
from symbnn.types import Samples

MANIFEST = "zoo.json"
FIELDS = ("description", "num_networks", "shard_size", "precision", "shards")
PRECISIONS = ("float16", "float32")
# A manifest is a small file: one that speaks of more would fill the memory with their numbers.
MOST_SHARDS = 1_000_000


class Shard(NamedTuple):
    """An entry of the manifest."""

    num_networks: int
    sha256: str
    metrics: dict[str, float]
    """Means over the networks of the shard."""


class Zoo:
    """A directory of networks. One writer at a time; nothing is kept in memory between calls."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)

    def open(
        self,
        description: Mapping[str, Any],
        *,
        num_networks: int,
        shard_size: int,
        precision: str = "float16",
    ) -> None:
        """Bind the directory to one zoo; `ArtefactError` names the first entry that differs from its own."""
        if precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {PRECISIONS}; got {precision!r}")
        if num_networks < 1 or shard_size < 1:
            raise ValueError(
                f"num_networks and shard_size must be positive; got {num_networks}, {shard_size}"
            )
        wanted = {"num_networks": num_networks, "shard_size": shard_size, "precision": precision}
        # Through JSON, so that tuples compare equal to what is read back.
        wanted |= {"description": json.loads(json.dumps(dict(description)))}
        path = self.directory / MANIFEST
        found = {**self._manifest(), "shards": {}} if path.exists() else None
        wanted |= {"shards": {}}
        bind(path, wanted, wanted, found, "shard")

    @property
    def num_networks(self) -> int:
        """Networks of the whole zoo."""
        return int(self._manifest()["num_networks"])

    def description(self) -> dict[str, Any]:
        """What `open` was given."""
        return dict(self._manifest()["description"])

    def ranges(self) -> list[range]:
        """Global indices of the networks of every shard, written or not."""
        manifest = self._manifest()
        total, size = manifest["num_networks"], manifest["shard_size"]
        return [range(first, min(first + size, total)) for first in range(0, total, size)]

    def shards(self) -> dict[int, Shard]:
        """Shards that were written, by number."""
        table = self._manifest()["shards"]
        return {int(index): Shard(**entry) for index, entry in sorted(table.items(), key=lambda e: int(e[0]))}

    def write(self, index: int, samples: Samples, metrics: Mapping[str, Any]) -> None:
        """Keep shard `index` with one value of every metric per network.

        Weights too large for the precision of the zoo are refused, not stored as infinity.
        """
        manifest, expected = self._manifest(), len(self._range(index))
        arrays = {name: np.asarray(value) for name, value in metrics.items()}
        lengths = {name: len(array) for name, array in arrays.items()}
        for name, length in (lengths | {"samples": tree.num_samples(samples)}).items():
            if length != expected:
                raise ValueError(f"shard {index} holds {expected} networks; {name} has {length}")
        narrow = tree.map_named(lambda name, leaf: _narrowed(name, leaf, manifest["precision"]), samples)
        save_tree(self.path(index), {"samples": narrow, "metrics": arrays}, {"shard": index})
        means = {name: float(array.mean()) for name, array in arrays.items()}
        entry = Shard(expected, file_digest(self.path(index)), means)
        manifest["shards"][str(index)] = entry._asdict()
        write_text(self.directory / MANIFEST, json.dumps(manifest, indent=1) + "\n")

    def read(self, index: int) -> tuple[Samples, dict[str, np.ndarray]]:
        """Networks of shard `index` in single precision, and their metrics; `ArtefactError` if damaged."""
        entry, path = self.shards().get(index), self.path(index)
        if entry is None or not path.exists():
            raise problem(path, expected="a shard", found="nothing", advice="fill the zoo")
        found = file_digest(path)
        if found != entry.sha256:
            raise problem(
                path,
                expected=f"SHA-256 {str(entry.sha256)[:12]}…",
                found=f"{found[:12]}… (damaged, or of another zoo)",
                advice="delete the shard and fill the zoo again",
            )
        content, _ = load_tree(path)
        widened = jax.tree.map(
            lambda leaf: leaf.astype(np.float32) if leaf.dtype == np.float16 else leaf, content["samples"]
        )
        return widened, content["metrics"]

    def verify(self) -> dict[int, str]:
        """Shards that are missing or damaged, with what is wrong; every byte is read, a shard at a time."""
        wrong = {}
        for index in range(len(self.ranges())):
            try:
                self.read(index)
            except ArtefactError as error:
                wrong[index] = str(error)
        return wrong

    def batches(self, size: int) -> Iterator[Samples]:
        """All networks in order, at most `size` at a time; no batch spans two shards."""
        if size < 1:
            raise ValueError(f"size must be positive; got {size}")
        for index, networks in enumerate(self.ranges()):
            samples, _ = self.read(index)
            for first in range(0, len(networks), size):
                yield tree.take(samples, slice(first, first + size))

    def take(self, indices: Sequence[int]) -> Samples:
        """Networks by global index, in the order asked for; reads every shard it needs once."""
        if not len(indices) or min(indices) < 0 or max(indices) >= self.num_networks:
            raise ValueError(f"indices must be in [0, {self.num_networks}) and at least one; got {indices}")
        size = len(self.ranges()[0])
        chosen = np.asarray(indices)
        parts = []
        for shard in np.unique(chosen // size):
            rows = np.flatnonzero(chosen // size == shard)
            parts.append((rows, tree.take(self.read(int(shard))[0], chosen[rows] % size)))
        order = np.argsort(np.concatenate([rows for rows, _ in parts]))
        joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(part for _, part in parts))
        return tree.take(joined, order)

    def metrics(self) -> dict[str, np.ndarray]:
        """Metrics of all networks in order."""
        tables = [self.read(index)[1] for index in range(len(self.ranges()))]
        return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}

    def path(self, index: int) -> Path:
        """The file of a shard."""
        return self.directory / f"shard-{index:06d}.safetensors"

    def _range(self, index: int) -> range:
        ranges = self.ranges()
        if not 0 <= index < len(ranges):
            raise ValueError(f"shards are numbered from 0 to {len(ranges) - 1}; got {index}")
        return ranges[index]

    def _manifest(self) -> dict[str, Any]:
        path = self.directory / MANIFEST
        advice = "open the zoo first, or delete the directory and start again"
        with explaining(path, "the manifest of a zoo", advice):
            content = parse_json(path.read_bytes())
            return _checked({name: content[name] for name in FIELDS})


def _checked(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest; `ValueError` if no zoo can have it."""
    for name in ("num_networks", "shard_size"):
        if type(manifest[name]) is not int or manifest[name] < 1:
            raise ValueError(f"{name} must be a positive integer; got {str(manifest[name])[:40]}")
    num_shards = -(-manifest["num_networks"] // manifest["shard_size"])
    if num_shards > MOST_SHARDS:
        raise ValueError(f"at most {MOST_SHARDS} shards are allowed; got {num_shards}")
    if not isinstance(manifest["description"], dict):
        raise ValueError(f"description must be a JSON object; got {str(manifest['description'])[:40]}")
    for index, entry in manifest["shards"].items():
        if not 0 <= int(index) < num_shards or entry.keys() != set(Shard._fields):
            raise ValueError(f"the entry of shard {index[:20]} is not valid")
    return manifest


def _narrowed(name: str, leaf: Any, precision: str) -> np.ndarray:
    array = np.asarray(leaf)
    if not np.issubdtype(array.dtype, np.floating):
        return array
    with np.errstate(over="ignore"):
        narrow = array.astype(precision)
    if np.any(np.isfinite(array) & ~np.isfinite(narrow)):
        raise ValueError(
            f"leaf {name!r} has weights up to {np.abs(array).max():g}, too large for {precision}; use float32"
        )
    return narrow
