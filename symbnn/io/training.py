"""The state of long trainings on disk, through Orbax: the latest steps of every stage, whole or absent.

A training that was killed goes on from the last step it wrote. Every step carries the fingerprint of its run
(keys, data, starts, loss, optimiser) and a checksum of every array: what is read back is what was written,
and of the same run, or it is refused.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp

from symbnn.io.chunks import refuse_other_run
from symbnn.io.files import ArtefactError, problem

ADVICE = "delete it to go on from the step before, or delete the directory to start afresh"


class TrainingStore:
    """A directory with the last `keep` steps of every stage of a training. One writer at a time."""

    def __init__(self, directory: str | Path, *, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"keep is the number of steps that stay on disk, at least 1; got {keep}")
        # Orbax wants absolute paths.
        self.directory, self.keep = Path(os.path.abspath(directory)), keep

    def read(self, stage: str, fingerprint: Mapping[str, str]) -> dict[str, np.ndarray] | None:
        """Arrays by name as of the last step of `stage`, or None if there is none.

        `ArtefactError` if that step is damaged, or of a run with another fingerprint.
        """
        directory = self.directory / stage
        if not directory.is_dir():
            return None
        with self._manager(stage) as manager:
            step = manager.latest_step()
            if step is None:
                return None
            try:
                about = manager.restore(step, args=ocp.args.Composite(about=ocp.args.JsonRestore()))["about"]
                refuse_other_run(directory, about["fingerprint"], fingerprint)
                return _restored(manager, step, about["arrays"])
            except ArtefactError:
                raise
            except Exception as error:  # Orbax raises many kinds; none may pass for a good read
                first_line = str(error).partition("\n")[0][:200]
                raise problem(
                    directory / str(step),
                    expected="a whole step",
                    found=f"{type(error).__name__}: {first_line}",
                    advice=ADVICE,
                ) from error

    def write(
        self, stage: str, step: int, fingerprint: Mapping[str, str], arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Keep `arrays` as step `step` of `stage`: a process killed in the middle leaves the steps before."""
        numbered = {f"{number:05d}": np.asarray(array) for number, array in enumerate(arrays.values())}
        about = {key: _described(name, numbered[key]) for name, key in zip(arrays, numbered, strict=True)}
        items = ocp.args.Composite(
            # Orbax refuses arrays without elements; their shape says all.
            arrays=ocp.args.StandardSave({key: array for key, array in numbered.items() if array.size}),
            about=ocp.args.JsonSave({"fingerprint": dict(fingerprint), "arrays": about}),
        )
        try:
            with self._manager(stage) as manager:
                manager.save(step, args=items, force=True)
        except OSError as error:
            raise problem(
                self.directory / stage,
                expected=f"to write step {step}",
                found=f"{type(error).__name__} ({error})",
                advice="free space or choose a writable directory; the steps before it are untouched",
            ) from error

    def _manager(self, stage: str) -> ocp.CheckpointManager:
        """Synchronous: a step that `write` returned from is on disk."""
        options = ocp.CheckpointManagerOptions(
            max_to_keep=self.keep, enable_async_checkpointing=False, cleanup_tmp_directories=True
        )
        return ocp.CheckpointManager(self.directory / stage, options=options)


def _restored(manager: ocp.CheckpointManager, step: int, about: dict[str, Any]) -> dict[str, np.ndarray]:
    """Arrays by name; `ValueError` for the first that is not what was written."""
    arrays = {key: np.zeros(each["shape"], each["dtype"]) for key, each in about.items()}
    like = {key: array for key, array in arrays.items() if array.size}
    found = manager.restore(step, args=ocp.args.Composite(arrays=ocp.args.StandardRestore(like)))["arrays"]
    arrays |= {key: np.asarray(array) for key, array in found.items()}
    for key, each in about.items():
        if _described(each["name"], arrays[key]) != each:
            raise ValueError(f"another checksum of {each['name']!r}")
    return {each["name"]: arrays[key] for key, each in about.items()}


def _described(name: str, array: np.ndarray) -> dict[str, Any]:
    digest = hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest()
    return {"name": name, "dtype": array.dtype.name, "shape": list(array.shape), "sha256": digest}
