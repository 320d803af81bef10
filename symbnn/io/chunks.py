"""Chunks of a long run on disk, one checked file each, so that a stopped run goes on where it was.

Memory is bounded by one chunk: nothing is kept here between calls. `manifest.json` holds the fingerprint of
the run (method, settings, data, key) and refuses any other.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from symbnn.io.files import bind, explaining, parse_json, problem
from symbnn.io.trees import load_tree, save_tree

MANIFEST = "manifest.json"
CHUNK = re.compile(r"chunk-(\d{6,})\.safetensors")


class ChunkStore:
    """A directory of chunks: arrays by name, numbered from zero. One writer at a time."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)

    def open(self, fingerprint: Mapping[str, str]) -> None:
        """Bind the directory to one run; `ArtefactError` names the first entry that differs from its own."""
        wanted = dict(fingerprint)
        bind(self.directory / MANIFEST, {"fingerprint": wanted}, wanted, self.fingerprint(), "chunk")

    def fingerprint(self) -> dict[str, str] | None:
        """The fingerprint of the run the directory belongs to; None if it belongs to none yet."""
        path = self.directory / MANIFEST
        with explaining(path, "a manifest", "delete the directory and run again"):
            return dict(parse_json(path.read_bytes())["fingerprint"]) if path.exists() else None

    def read(self, index: int) -> dict[str, np.ndarray] | None:
        """Chunk `index`, or None if it was never written; `ArtefactError` names the file if it is damaged."""
        path = self._path(index)
        if not path.exists():
            return None
        chunk, metadata = load_tree(path)
        if metadata.get("index") != index or not isinstance(chunk, dict):
            raise problem(
                path,
                expected=f"chunk {index}",
                found=f"chunk {metadata.get('index')}",
                advice="delete the file and run again",
            )
        return chunk

    def write(self, index: int, chunk: Mapping[str, np.ndarray]) -> None:
        """Keep chunk `index`: a process killed in the middle leaves no chunk or the old one."""
        arrays = {name: np.asarray(array) for name, array in chunk.items()}
        save_tree(self._path(index), arrays, {"index": index})

    def indices(self) -> Iterator[int]:
        """Numbers of the chunks there are, in order; files that others put there are passed over."""
        matches = (CHUNK.fullmatch(path.name) for path in self.directory.glob("chunk-*"))
        yield from sorted(int(match[1]) for match in matches if match)

    def _path(self, index: int) -> Path:
        if index < 0:
            raise ValueError(f"Chunks are numbered from zero; got {index}")
        return self.directory / f"chunk-{index:06d}.safetensors"
