"""Keeping things: atomic, checked artefacts; never pickle."""

from symbnn.io.arviz import to_arviz
from symbnn.io.checkpoints import iterate_checkpoints
from symbnn.io.chunks import ChunkStore
from symbnn.io.files import ArtefactError, ForeignFileError
from symbnn.io.posterior import load_posterior, save_posterior
from symbnn.io.pytorch import (
    from_torch,
    load_safetensors,
    load_torch,
    save_safetensors,
    save_torch,
    to_torch,
    torch_layers,
)
from symbnn.io.sharded import load_sharded, save_sharded
from symbnn.io.training import TrainingStore
from symbnn.io.trees import load_tree, read_metadata, save_tree
from symbnn.io.zoo import Shard, Zoo

__all__ = [
    "ArtefactError",
    "ChunkStore",
    "ForeignFileError",
    "Shard",
    "TrainingStore",
    "Zoo",
    "from_torch",
    "iterate_checkpoints",
    "load_posterior",
    "load_safetensors",
    "load_sharded",
    "load_torch",
    "load_tree",
    "read_metadata",
    "save_posterior",
    "save_safetensors",
    "save_sharded",
    "save_torch",
    "save_tree",
    "to_arviz",
    "to_torch",
    "torch_layers",
]
