"""Many hosts: every process runs the same program, chains lie on all devices, each keeps its own chains.

    from symbnn.inference import distributed
    distributed.start()                       # first, before anything touches JAX
    fit = inference.hmc(...)(key, target)     # the same call everywhere
    fit = distributed.gather(fit)             # optional: all chains on every process

On Slurm, Open MPI, Kubernetes and TPU pods JAX finds the cluster itself; elsewhere give the address, or set
`SYMBNN_COORDINATOR`, `SYMBNN_NUM_PROCESSES` and `SYMBNN_PROCESS`. Draws do not depend on the number of
processes.
"""

import os
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.extend.backend import clear_backends

from symbnn.inference.base import Fit
from symbnn.inference.chains import report
from symbnn.posteriors import Empirical

VARIABLES = ("SYMBNN_COORDINATOR", "SYMBNN_NUM_PROCESSES", "SYMBNN_PROCESS")


def start(
    *, coordinator: str | None = None, num_processes: int | None = None, process: int | None = None
) -> None:
    """Join the cluster. Settings win over the environment; all three or none."""
    given = (coordinator, num_processes, process)
    settings = [
        os.environ.get(variable) if value is None else value
        for variable, value in zip(VARIABLES, given, strict=True)
    ]
    missing = [variable for variable, value in zip(VARIABLES, settings, strict=True) if value is None]
    if len(missing) == len(VARIABLES):
        _forget_backend()
        jax.distributed.initialize()
        return
    if missing:
        raise ValueError(f"Give coordinator, num_processes and process, or none of them; missing: {missing}")
    address, total, rank = str(settings[0]), int(settings[1] or 0), int(settings[2] or 0)
    if not 0 <= rank < total:
        raise ValueError(f"process must be in [0, {total}), the number of processes; got {rank}")
    _forget_backend()
    jax.distributed.initialize(address, total, rank)


def everywhere(flag: bool) -> bool:
    """Whether `flag` is true on all processes."""
    if jax.process_count() == 1:
        return flag
    return bool(np.all(multihost_utils.process_allgather(np.array(flag))))


def largest(number: float) -> float:
    """The largest of the numbers of all processes: the same on each of them."""
    if jax.process_count() == 1:
        return number
    return float(np.max(multihost_utils.process_allgather(np.array(number))))


def together(rows: np.ndarray) -> np.ndarray:
    """The rows of all processes, of which one must have some: in order of the processes."""
    return rows if jax.process_count() == 1 else _all(rows)


def gather(fit: Fit) -> Fit:
    """The fit with the chains of all processes, in order, on every process.

    Per-chain diagnostics are joined, `predictions` averaged over all chains, verdicts put together; `seconds`
    and `damaged_chunks` stay those of this process.
    """
    if jax.process_count() == 1:
        return fit
    if not isinstance(fit.posterior, Empirical):
        raise ValueError(f"gather needs draws in memory, an Empirical; got a {type(fit.posterior).__name__}")
    chains = _all(fit.diagnostics["chains"])
    # Where the data of a chain lies on several processes, each of them holds the chain.
    order = np.unique(chains, return_index=True)[1]

    def ordered(array: Any) -> np.ndarray:
        return _all(np.asarray(array))[order]

    posterior = Empirical.from_chains(jax.tree.map(ordered, fit.posterior.by_chain()))
    diagnostics: dict[str, Any] = {
        name: ordered(value) if name in report.PER_CHAIN else value for name, value in fit.diagnostics.items()
    }
    if "predictions" in diagnostics:
        diagnostics["predictions"] = _mean(diagnostics["predictions"], len(fit.diagnostics["chains"]))
    if "verdict" in diagnostics:
        diagnostics["verdict"] = _join_verdicts(diagnostics["verdict"])
    return Fit(posterior, diagnostics)


def _forget_backend() -> None:
    """Let JAX start its devices anew.

    Importing BlackJAX computes log 2, which starts the devices of this process alone; a cluster comes first.
    That constant is the only thing that may be forgotten.
    """
    if any(array.ndim for array in jax.live_arrays()):
        raise RuntimeError("distributed.start() must come first: there are arrays on the devices already")
    clear_backends()


def _mean(local: np.ndarray, num_chains: int) -> np.ndarray:
    """The mean over all chains from every process's mean over its own."""
    counts = _all(np.array([num_chains]))
    means = _all(np.asarray(local)[None])
    # A process without chains has no mean: its zero weight must not meet a NaN.
    used = counts > 0
    return np.average(means[used], axis=0, weights=counts[used]).astype(local.dtype)


def _join_verdicts(local: str) -> str:
    """What is wrong with any chain of any process, or "ok"."""
    letters = _all_ragged(np.frombuffer(local.encode(), np.uint8))
    sentences = [bytes(text.tobytes()).decode() for text in letters]
    return "; ".join(text for text in sentences if text != "ok") or "ok"


def _all(array: np.ndarray) -> np.ndarray:
    return np.concatenate(_all_ragged(array))


def _all_ragged(array: np.ndarray) -> list[np.ndarray]:
    """The arrays of all processes, which may differ in length: padded, gathered, cut."""
    lengths = np.asarray(multihost_utils.process_allgather(np.array(len(array))))
    padded = np.zeros((int(lengths.max()), *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    gathered = np.asarray(multihost_utils.process_allgather(padded))
    return [rows[:length] for rows, length in zip(gathered, lengths, strict=True)]
