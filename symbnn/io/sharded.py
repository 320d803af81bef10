"""Trees whose arrays are spread over devices or hosts, through Orbax: every process writes its own shards.

What fits one host goes through `save_posterior` and `save_tree`, whose files are checked bit by bit. This is
for the rest: a posterior (or the state of a sampler) whose samples lie on many devices or hosts,

    io.save_sharded("draws", fit.posterior)
    posterior = io.load_sharded("draws", like)      # `like`: the same posterior of shapes, on other devices
"""

import os
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from symbnn.io.files import NO_SPACE, differing, explaining, problem
from symbnn.tree import named_leaves


def save_sharded(directory: str | Path, tree: Any) -> None:
    """Write a tree of JAX arrays as the new `directory`; every process must call it.

    An existing directory is refused, as nothing replaces a directory atomically: name one per step.
    """
    directory = Path(os.path.abspath(directory))
    if directory.exists():
        raise problem(
            directory,
            expected="a new directory",
            found="an existing one",
            advice="name one per step, or delete it",
        )
    with (
        explaining(directory, "to write a checkpoint", NO_SPACE, errors=OSError),
        ocp.StandardCheckpointer() as checkpointer,
    ):
        checkpointer.save(directory, tree)


def load_sharded(directory: str | Path, like: Any) -> Any:
    """The tree in `directory` with the structure, shapes, dtypes and shardings of `like`.

    `like` holds arrays or `jax.ShapeDtypeStruct`s with a sharding, which may be of another device layout.
    """
    directory = Path(os.path.abspath(directory))
    if not directory.is_dir():
        raise problem(
            directory, expected="a checkpoint", found="nothing", advice="check the path, or save it first"
        )
    # Orbax and TensorStore raise many kinds of errors; none may pass for a good read.
    advice = "delete the directory and save it again"
    with (
        explaining(directory, "a whole checkpoint", advice, errors=Exception),
        ocp.StandardCheckpointer() as checkpointer,
    ):
        _check_shapes(directory, checkpointer.metadata(directory).item_metadata.tree, like)
        return checkpointer.restore(directory, jax.tree.map(ocp.utils.to_shape_dtype_struct, like))


def _check_shapes(directory: Path, stored: Any, like: Any) -> None:
    """Before reading: Orbax notices a wrong shape only in the middle of its own threads."""
    found = {name: tuple(leaf.shape) for name, leaf in named_leaves(stored).items()}
    wanted = {name: _stored_shape(leaf) for name, leaf in named_leaves(like).items()}
    for name in differing(found, wanted):
        raise problem(
            directory,
            expected=f"leaf {name!r} of shape {wanted.get(name)}",
            found=f"{found.get(name)}",
            advice="give a tree of the structure that was saved",
        )


def _stored_shape(leaf: Any) -> tuple[int, ...]:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.eval_shape(jax.random.key_data, leaf).shape
    return tuple(leaf.shape)
