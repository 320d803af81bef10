"""How far apart in labels networks are: the number of transpositions (NoT) from each to the reference."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from symbnn.plot.style import BLUE, GREY, new_figure, shortened
from symbnn.symmetry import Aligned, Element, number_of_transpositions


def transpositions(permutations: Any, *, num_units: int | None = None, figure: Any = None) -> Figure:
    """Histograms of the number of transpositions, a panel for each group of units.

    Args:
        permutations: What `symmetry.align` returns, its `elements`, permutations `(networks, ..., units)` by
            group or of one group; or, with `num_units`, whole numbers of transpositions `(networks,)`.
        num_units: Of the group, where the numbers themselves are given.
        figure: An empty figure or subfigure to draw into, instead of a new one.
    """
    groups = _counts(permutations, num_units)
    columns = min(len(groups), 4)
    figure, panels = new_figure(columns, -(-len(groups) // columns), figure=figure)
    for panel, (name, (counts, units)) in zip(panels, groups.items(), strict=False):
        _draw(panel, counts, units)
        of = f" of {shortened(name, 24)}" if name else ""
        panel.set_title(f"NoT to the reference, {units} units{of}")
    for panel in panels[len(groups) :]:
        panel.set_axis_off()
    return figure.get_figure(root=True)


def _draw(panel: Axes, counts: np.ndarray, num_units: int) -> None:
    """A random permutation of n units has n - H_n transpositions on average (H_n: harmonic number)."""
    panel.hist(counts, np.arange(-0.5, num_units + 0.5).tolist(), color=BLUE)
    random = num_units - sum(1 / k for k in range(1, num_units + 1))
    panel.axvline(random, color=GREY, linestyle="--", label=f"random permutation: {random:.1f}")
    panel.set(xlabel="number of transpositions", ylabel="samples")
    # Room above the bars: the legend lies neither on them nor on the line, which is at the right.
    panel.set_ylim(0, 1.2 * panel.get_ylim()[1])
    panel.legend(frameon=False, loc="upper left")


def _counts(given: Any, num_units: int | None) -> dict[str, tuple[np.ndarray, int]]:
    """Numbers of transpositions and of units by group."""
    if isinstance(given, Aligned):
        given = given.elements
    if isinstance(given, Element):
        given = given.permutations
    if num_units is not None:
        return {"": (_whole(given, num_units), num_units)}
    named = given if isinstance(given, Mapping) else {"": given}
    if not named:
        raise ValueError("permutations: there are none, the network has no group of units to relabel")
    return {name: _from_permutations(name, each) for name, each in named.items()}


def _whole(given: Any, num_units: int) -> np.ndarray:
    counts = np.asarray(given)
    is_good = counts.ndim == 1 and counts.size and np.issubdtype(counts.dtype, np.integer)
    if not is_good or counts.min() < 0 or counts.max() >= num_units:
        raise ValueError(
            f"permutations: with num_units={num_units} expected whole numbers (networks,) from 0 to "
            f"{num_units - 1}, got {counts.dtype} of shape {counts.shape}"
        )
    return counts


def _from_permutations(name: str, given: Any) -> tuple[np.ndarray, int]:
    array = np.asarray(given)
    what = f"permutations of {name!r}" if name else "permutations"
    if array.ndim < 2 or not array.size or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            f"{what}: expected indices (networks, ..., units), got {array.dtype} of shape {array.shape}; "
            "numbers of transpositions need num_units"
        )
    units = array.shape[-1]
    if not (np.sort(array, axis=-1) == np.arange(units)).all():
        raise ValueError(f"{what}: expected every index from 0 to {units - 1} once in each row")
    return np.ravel(number_of_transpositions(array)), units
