"""Samples for ArviZ: its plots, summaries and file format, for whoever works with them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from symbnn import tree
from symbnn.types import Samples

# Our names of statistics of draws -> those of ArviZ's schema.
STATISTICS = {
    "log_density": "lp",
    "acceptance": "acceptance_rate",
}


def to_arviz(samples: Samples, num_chains: int = 1, diagnostics: Mapping[str, Any] | None = None) -> Any:
    """ArviZ data of samples in chain-major order; leaves keep their names (`hidden/kernel`).

    Of `diagnostics` the arrays `(chains, draws, ...)` become sample statistics; the rest says nothing about
    single draws and is left out.
    """
    chains = tree.named_leaves(tree.by_chain(samples, num_chains))
    num_draws = tree.num_samples(samples) // num_chains
    try:
        import arviz
    except ImportError as error:
        raise ImportError("to_arviz needs ArviZ; install it with: pip install arviz") from error
    posterior = {name: np.asarray(leaf) for name, leaf in chains.items()}
    statistics = {
        STATISTICS.get(name, name): np.asarray(value)
        for name, value in (diagnostics or {}).items()
        if np.shape(value)[:2] == (num_chains, num_draws)
    }
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict({"posterior": posterior, "sample_stats": statistics})
    return arviz.from_dict(posterior=posterior, sample_stats=statistics or None)
