"""What other samplers say about their draws, under the names that our own use.

One number a draw, `(chains, draws)`: `log_density`, `acceptance_rate`, `is_divergent`, `num_steps` of the
integrator, and whatever else there is under its own name. From these follow, per chain as in
`inference.driver.run`: `acceptance` (mean), `divergences` and `num_gradients` (sums over the draws).
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

NAMES = {
    # NumPyro
    "diverging": "is_divergent",
    "accept_prob": "acceptance_rate",
    # BlackJAX
    "num_integration_steps": "num_steps",
    "num_trajectory_expansions": "tree_depth",
    "logdensity": "log_density",
    "energy_change": "energy_error",
    # ArviZ
    "lp": "log_density",
    "n_steps": "num_steps",
}
"""Their names -> ours."""

PER_CHAIN: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "acceptance_rate": ("acceptance", lambda values: values.mean(1)),
    "is_divergent": ("divergences", lambda values: values.astype(int).sum(1)),
    "num_steps": ("num_gradients", lambda values: values.astype(int).sum(1)),
}
"""Of draws -> (of a chain, how)."""


def diagnostics(of_draws: Mapping[str, Any], num_chains: int) -> dict[str, Any]:
    """Diagnostics of a `Fit` from arrays `(chains, draws, ...)` by the names of whoever made them."""
    known = {NAMES.get(name, name): jax.tree.map(np.asarray, values) for name, values in of_draws.items()}
    if "potential_energy" in known:
        known.setdefault("log_density", -known.pop("potential_energy"))
    if "is_accepted" in known:
        known.setdefault("acceptance_rate", known["is_accepted"].astype(np.float32))
    summaries = {
        name: summary(known[source]) for source, (name, summary) in PER_CHAIN.items() if source in known
    }
    return {**known, **summaries, "chains": np.arange(num_chains)}
