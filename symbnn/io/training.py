"""The state of long trainings on disk, through Orbax: the latest steps of every stage, whole or absent.

A training that was killed goes on from the last step it wrote. Orbax writes the arrays of a step and keeps
the last few; beside them `STAGE.json` holds the fingerprint of the run (keys, data, starts, loss, optimiser)
and checksums of all files of a step, which are compared before Orbax reads them. A step that was not yet
entered there when the process was killed is written again.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp

from symbnn.io.files import (
    NO_SPACE,
    differing,
    explaining,
    file_digest,
    parse_json,
    problem,
    refuse_other_run,
    write_text,
)

ADVICE = "delete the directory to start afresh"


class TrainingStore:
    """A directory with the last `keep` steps of every stage of a training. One writer at a time."""

    def __init__(self, directory: str | Path, *, keep: int = 2) -> None:
        if keep < 2:
            raise ValueError(f"keep must be at least 2, so that one step is whole at any time; got {keep}")
        # Orbax wants absolute paths.
        self.directory, self.keep = Path(os.path.abspath(directory)), keep

    def read(self, stage: str, fingerprint: Mapping[str, str]) -> dict[str, np.ndarray] | None:
        """Arrays by name as of the last step of `stage`, or None if there is none.

        `ArtefactError` if that step is damaged, or of a run with another fingerprint.
        """
        entries = self._entries(stage)
        if entries is None:
            return None
        refuse_other_run(self.directory / stage, entries["fingerprint"], fingerprint)
        step = max(entries["steps"], key=int)
        directory, entry = self.directory / stage / step, entries["steps"][step]
        found = _checksums(directory)
        for name in differing(found, entry["files"]):
            raise problem(
                directory / name,
                expected="the file that was written",
                found="another one" if name in found else "nothing",
                advice=ADVICE,
            )
        arrays = {name: np.zeros(shape, dtype) for name, shape, dtype in entry["arrays"]}
        full = {name: array for name, array in arrays.items() if array.size}
        with self._manager(stage) as manager:
            restored = manager.restore(int(step), args=ocp.args.StandardRestore(_numbered(full)))
        return arrays | dict(zip(full, map(np.asarray, restored.values()), strict=True))

    def write(
        self, stage: str, step: int, fingerprint: Mapping[str, str], arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Keep `arrays` as step `step` of `stage`: a process killed in the middle leaves the steps before."""
        arrays = {name: np.asarray(array) for name, array in arrays.items()}
        # Orbax refuses arrays without elements; their shape says all.
        full = {name: array for name, array in arrays.items() if array.size}
        advice = f"{NO_SPACE}; the steps before it are untouched"
        with (
            explaining(self.directory / stage, f"to write step {step}", advice, errors=OSError),
            self._manager(stage) as manager,
        ):
            if step in manager.all_steps():
                manager.delete(step)
            manager.save(step, args=ocp.args.StandardSave(_numbered(full)), force=True)
            kept = [str(each) for each in manager.all_steps()]
        steps = (self._entries(stage) or {"steps": {}})["steps"]
        steps[str(step)] = {
            "arrays": [(name, array.shape, array.dtype.name) for name, array in arrays.items()],
            "files": _checksums(self.directory / stage / str(step)),
        }
        entries = {
            "fingerprint": dict(fingerprint),
            "steps": {each: steps[each] for each in kept if each in steps},
        }
        write_text(self._path(stage), json.dumps({"checksum": _digest(entries), **entries}) + "\n")

    def _entries(self, stage: str) -> dict[str, Any] | None:
        """What is known of the steps of `stage`; None if there are none."""
        path = self._path(stage)
        if not path.exists():
            return None
        with explaining(path, "a list of steps", ADVICE):
            entries = parse_json(path.read_bytes())
            if entries.pop("checksum") != _digest(entries):
                raise ValueError("its checksum does not match")
        return entries

    def _path(self, stage: str) -> Path:
        return self.directory / f"{stage}.json"

    def _manager(self, stage: str) -> ocp.CheckpointManager:
        """Synchronous: a step that `write` returned from is on disk."""
        options = ocp.CheckpointManagerOptions(
            max_to_keep=self.keep, enable_async_checkpointing=False, cleanup_tmp_directories=True
        )
        return ocp.CheckpointManager(self.directory / stage, options=options)


def _numbered(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """By number: a name with slashes would be a path."""
    return {f"{number:05d}": array for number, array in enumerate(arrays.values())}


def _checksums(directory: Path) -> dict[str, str]:
    """SHA-256 of every file below `directory`."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): file_digest(path) for path in files}


def _digest(entries: Any) -> str:
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()
