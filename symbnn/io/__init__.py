"""Keeping things: atomic, checked artefacts; never pickle."""

from symbnn.io.chunks import ChunkStore
from symbnn.io.files import ArtefactError
from symbnn.io.lines import append_line, read_lines
from symbnn.io.posterior import load_posterior, save_posterior
from symbnn.io.trees import load_tree, read_metadata, save_tree

__all__ = [
    "ArtefactError",
    "ChunkStore",
    "append_line",
    "load_posterior",
    "load_tree",
    "read_lines",
    "read_metadata",
    "save_posterior",
    "save_tree",
]
