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
        raise ValueError(f"coordinator, num_processes and process go together; missing: {missing}")
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


def gather(fit: Fit) -> Fit:
    """The fit with the chains of all processes, in order, on every process."""
    if jax.process_count() == 1:
        return fit
    if not isinstance(fit.posterior, Empirical):
        raise ValueError(f"gather needs draws in memory; got a {type(fit.posterior).__name__}")
    chains = _all(fit.diagnostics["chains"])
    # Where the data of a chain lies on several processes, each of them holds the chain.
    order = np.unique(chains, return_index=True)[1]

    def ordered(array: Any) -> np.ndarray:
        return np.concatenate(list(_all_ragged(np.asarray(array))))[order]

    by_chain = jax.tree.map(ordered, fit.posterior.by_chain())
    samples = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), by_chain)
    diagnostics = {
        name: ordered(value) if _is_per_chain(value, fit) else value
        for name, value in fit.diagnostics.items()
    }
    return Fit(Empirical(samples, num_chains=len(order)), diagnostics)


def _forget_backend() -> None:
    """Let JAX start its devices anew.

    Importing BlackJAX computes log 2, which starts the devices of this process alone; a cluster comes first.
    That constant is the only thing that may be forgotten.
    """
    if any(array.ndim for array in jax.live_arrays()):
        raise RuntimeError("distributed.start() must come first: there are arrays on the devices already")
    clear_backends()


def _is_per_chain(value: Any, fit: Fit) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0 and len(value) == len(fit.diagnostics["chains"])


def _all(array: np.ndarray) -> np.ndarray:
    return np.concatenate(list(_all_ragged(array)))


def _all_ragged(array: np.ndarray) -> list[np.ndarray]:
    """The arrays of all processes, which may differ in length: padded, gathered, cut."""
    lengths = np.asarray(multihost_utils.process_allgather(np.array(len(array))))
    padded = np.zeros((int(lengths.max()), *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    gathered = np.asarray(multihost_utils.process_allgather(padded))
    return [rows[:length] for rows, length in zip(gathered, lengths, strict=True)]
