"""bde on the same rows, by a Python of its own: it needs an older BlackJAX than this project.

SYMBNN_PEER_PYTHON names that Python. Only arrays go there and come back, so split, scaling and metrics are
the same for both; see `bde_regressor` for what runs there.
"""

import dataclasses
import os
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common.problem import Problem
from experiments.harness.rundir import Run
from experiments.uci.tables import layers

VARIABLE = "SYMBNN_PEER_PYTHON"
SCRIPT = Path(__file__).parent / "bde_regressor.py"
INSTALL = (
    "python -m venv peer && peer/bin/pip install sklearn-contrib-bde && export "
    f"{VARIABLE}=$PWD/peer/bin/python"
)


def fit(run: Run, problem: Problem, name: str) -> dict[str, Any] | None:
    """What bde found, now or in an earlier run; None, and a line that says how, if it cannot be had."""
    stage, python = f"{name}-bde", os.environ.get(VARIABLE)
    if python is None and not run.has(stage):
        run.say(f"{stage}: left out, as {VARIABLE} names no Python that has bde: {INSTALL}")
        return None
    found = run.stage(stage, partial(_fit, problem, name, str(python)))
    return found | {"with_start": found["processor"]}


def _fit(problem: Problem, name: str, python: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "given.npz", Path(folder) / "found.npz"
        np.savez(given, **_given(problem, name))
        call([python, str(SCRIPT), str(given), str(found)])
        with np.load(found) as file:
            arrays = {part: file[part] for part in file.files}
    seconds = {part: float(arrays[part]) for part in ("processor", "wall")}
    draws = {part: arrays[part].astype(np.float32) for part in ("means", "stds")}
    return draws | seconds | {"version": str(arrays["version"])}


def _given(problem: Problem, name: str) -> dict[str, Any]:
    config, rows = problem.config, problem.data
    return {
        "inputs": rows.train.inputs,
        "targets": rows.train.targets,
        "test_inputs": rows.test.inputs,
        "hidden": np.array(layers(config, name)),
        "activation": config.model.activation,
        "seed": config.seed,
        **{part: number for part, number in dataclasses.asdict(config.peer).items() if part != "sets"},
    }


def call(command: list[str]) -> None:
    """Run it away from this project's modules; `ValueError` with its last line if it fails."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    try:
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ValueError(
            f"{VARIABLE} is {command[0]}, which cannot be run: {error.strerror}; {INSTALL}"
        ) from error
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or ["no message"]
        raise ValueError(f"bde did not run with {VARIABLE}={command[0]}: {lines[-1]}; {INSTALL}")
