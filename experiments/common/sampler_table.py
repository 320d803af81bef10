"""What a sampler counted, chain by chain."""

from typing import Any

import numpy as np

from experiments.harness.tables import Row, Table


def sampler_table(found: Any) -> Table:
    """The table of the diagnostics of HMC."""
    rows = {
        "acceptance": ("acceptance", 3),
        "divergences": ("divergent transitions", 0),
        "energy_error": ("energy error, root mean square", 3),
        "num_gradients": ("gradients", 0),
        "step_size": ("step size", 5),
    }
    return Table(
        "The sampler",
        tuple(f"chain {index}" for index in np.asarray(found["chains"])),
        tuple(Row.of(words, np.asarray(found[name]), decimals) for name, (words, decimals) in rows.items()),
    )
