"""All cores for the chains of a study: one CPU device each, asked for before JAX starts.

XLA runs the small products of a small network on one thread, whatever the machine has; chains on several
devices use the other cores. Draws do not depend on it (`symbnn.inference.placement`). A library user
does the same by XLA_FLAGS=--xla_force_host_platform_device_count=<cores>, or by
`jax.config.update("jax_num_cpu_devices", cores)` before the first call into JAX.
"""

import os
from collections.abc import MutableMapping

FLAG = "--xla_force_host_platform_device_count"


def use_all_cores(environment: MutableMapping[str, str], number: int | None = None) -> None:
    """Put a device for every core into XLA_FLAGS, unless a number of devices stands there already."""
    flags = environment.get("XLA_FLAGS", "")
    number = _usable_cores() if number is None else number
    if FLAG in flags or "JAX_NUM_CPU_DEVICES" in environment or number < 2:
        return
    environment["XLA_FLAGS"] = f"{flags} {FLAG}={number}".strip()


def _usable_cores() -> int:
    """Cores that this process may run on, which a container or `taskset` makes fewer."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
