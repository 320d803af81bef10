"""What a loop over BlackJAX kernels has drawn, as a `Fit`.

BlackJAX has no loop of its own, so the axes are those of its user's:

    (states, infos) = jax.vmap(loop)(keys, starts)          # a scan for every chain: (chains, draws, ...)
    fit = interop.from_blackjax(states, infos)

    _, (states, infos) = jax.lax.scan(one_step_of_all_chains, starts, keys)         # (draws, chains, ...)
    fit = interop.from_blackjax(states.position, infos, axes=("draws", "chains"))

    _, (states, infos) = jax.lax.scan(one_step, start, keys)                         # one chain: (draws, ...)
    fit = interop.from_blackjax(states.position, infos, axes=("draws",))
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import tree
from symbnn.inference import Fit
from symbnn.interop.statistics import diagnostics
from symbnn.posteriors import Empirical

Axes = tuple[str, ...]
BOTH: Axes = ("chains", "draws")
KNOWN_AXES: tuple[Axes, ...] = (BOTH, ("draws", "chains"), ("draws",))
STACK = "stack a list first: jax.tree.map(lambda *each: jnp.stack(each), *states)"


def from_blackjax(positions: Any, info: Any = None, *, axes: Sequence[str] | None = None) -> Fit:
    """Draws as an `Empirical` that knows its chains, and what the kernels said about them.

    Args:
        positions: Stacked positions, a tree of arrays, or the stacked states, which have the log-density too.
        info: What the kernels returned beside the states (`HMCInfo`, `NUTSInfo`, ...), stacked likewise; it
            is checked against the positions.
        axes: What the leading axes are: `("chains", "draws")` (default), `("draws", "chains")` from a scan
            over kernels that are mapped over chains, `("draws",)` from one chain. Shapes cannot tell the
            first two apart, so more chains than draws are refused unless `axes` says so.

    Diagnostics, as far as they are there: `acceptance`, `divergences` and `num_gradients` (chains,);
    `log_density`, `acceptance_rate`, `is_divergent`, `num_steps`, `energy` and other numbers of the info
    (chains, draws).
    """
    order = BOTH if axes is None else tuple(axes)
    if order not in KNOWN_AXES:
        raise ValueError(f"axes must be one of {', '.join(map(str, KNOWN_AXES))}; got {order}")
    positions, of_draws = _opened(positions)
    leading = _leading(positions, order)
    if axes is None and leading[0] > leading[1]:
        raise ValueError(
            f"the positions begin with {leading}, which would be {leading[0]} chains of {leading[1]} draws; "
            "say axes=('draws', 'chains') for a scan over mapped kernels, ('draws',) for one chain, or "
            "('chains', 'draws') if it is so"
        )
    of_draws |= _per_draw(info, leading)
    posterior = Empirical.from_chains(jax.tree.map(lambda leaf: _chains_first(leaf, order), positions))
    known = {name: _chains_first(values, order) for name, values in of_draws.items()}
    return Fit(posterior, diagnostics(known, posterior.num_chains))


def _opened(positions: Any) -> tuple[Any, dict[str, Any]]:
    """(positions, statistics that a state has)."""
    if hasattr(positions, "position"):
        log_density = getattr(positions, "logdensity", None)
        return positions.position, {} if log_density is None else {"logdensity": log_density}
    if isinstance(positions, list | tuple) and any(hasattr(each, "position") for each in positions):
        raise ValueError(f"positions is a {type(positions).__name__} of {len(positions)} states; {STACK}")
    return positions, {}


def _leading(positions: Any, axes: Axes) -> tuple[int, ...]:
    """The lengths of the leading axes; `ValueError` naming a leaf that has others."""
    leaves = tree.named_leaves(positions)
    if not leaves:
        raise ValueError("positions: expected a tree of arrays, got one without leaves")
    first, expected = next((name, np.shape(leaf)[: len(axes)]) for name, leaf in leaves.items())
    for name, leaf in leaves.items():
        if np.ndim(leaf) < len(axes) or np.shape(leaf)[: len(axes)] != expected:
            one = "" if len(axes) == 1 else "; for one chain say axes=('draws',)"
            stack = f"; {STACK}" if isinstance(positions, list | tuple) else ""
            raise ValueError(
                f"positions: leaf {name!r} has shape {np.shape(leaf)}, {first!r} begins with {expected}, "
                f"but all must begin with ({', '.join(axes)}){one}{stack}"
            )
    return expected


def _per_draw(info: Any, leading: tuple[int, ...]) -> dict[str, Any]:
    """The fields of `info` with one number a draw; `ValueError` if there is none, or one of other axes."""
    if info is None:
        return {}
    fields = info if isinstance(info, Mapping) else getattr(info, "_asdict", dict)()
    arrays = {name: value for name, value in fields.items() if isinstance(value, jax.Array | np.ndarray)}
    numbers = {name: value for name, value in arrays.items() if value.shape == leading}
    if not numbers or any(value.shape[: len(leading)] != leading for value in arrays.values()):
        shapes = {name: value.shape for name, value in arrays.items()}
        found = f"it has {shapes}" if shapes else f"it is a {type(info).__name__} without arrays"
        raise ValueError(
            f"info must have one number for each of the draws {leading} that the positions begin with; "
            f"{found}: give what the same loop returned, stacked, and its axes (one chain is axes=('draws',))"
        )
    return numbers


def _chains_first(leaf: Any, axes: Axes) -> Any:
    if axes == ("draws",):
        return jnp.asarray(leaf)[None]
    return leaf if axes == BOTH else jnp.swapaxes(leaf, 0, 1)
