"""One look for all figures: no global state, colours that survive greyscale and colour blindness."""

import io
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure, SubFigure

# Paul Tol's "bright" scheme: distinct under the common colour-vision deficiencies.
BLUE, RED, GREEN, YELLOW, CYAN, PURPLE, GREY = (
    "#4477AA",
    "#EE6677",
    "#228833",
    "#CCBB44",
    "#66CCEE",
    "#AA3377",
    "#888888",
)
PALETTE = (BLUE, RED, GREEN, PURPLE, YELLOW, CYAN, GREY)


class ShownFigure(Figure):
    """A figure that a notebook shows as the value of a cell, without pyplot."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


def new_figure(
    columns: int = 1,
    rows: int = 1,
    *,
    width: float = 5.0,
    height: float = 3.6,
    figure: Any = None,
    height_ratios: tuple[float, ...] | None = None,
) -> tuple[Any, list[Axes]]:
    """A figure with `rows x columns` panels, as a flat list.

    Args:
        columns: Panels beside one another.
        rows: Panels above one another.
        width: Of a panel, in inches; like the height only for a new figure.
        height: Of a panel.
        figure: An empty figure or subfigure to fill instead of a new one.
        height_ratios: Of the rows.
    """
    if figure is None:
        figure = _empty(width * columns, height * rows)
    elif not isinstance(figure, Figure | SubFigure):
        kind = type(figure).__name__
        raise ValueError(f"figure: expected an empty matplotlib Figure or SubFigure, got {kind}")
    elif figure.axes:
        raise ValueError(
            f"figure: expected an empty one, got one with {len(figure.axes)} panels; give each plot a part "
            "of its own, as of figure.subfigures(1, 2)"
        )
    whole = figure.get_figure(root=True)
    if whole.get_layout_engine() is None:
        # Labels and legends would lie on one another.
        whole.set_layout_engine("constrained")
    axes = figure.subplots(rows, columns, squeeze=False, height_ratios=height_ratios).ravel().tolist()
    for panel in axes:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, axes


def parts_beside(number: int, *, width: float = 5.0, height: float = 3.6) -> tuple[Figure, list[SubFigure]]:
    """A figure in equal parts beside one another, each for one plot; sizes are those of a part."""
    figure = _empty(width * number, height)
    return figure, figure.subfigures(1, number, squeeze=False).ravel().tolist()


def colours(number: int) -> list[str]:
    """That many colours: of the palette, or, where it is too short, evenly spaced in lightness."""
    if number <= len(PALETTE):
        return list(PALETTE[:number])
    return [to_hex(colour) for colour in colormaps["viridis"](np.linspace(0.0, 0.9, number))]


def shortened(name: str, length: int) -> str:
    """The name with its middle left out, if it is longer than `length`."""
    if len(name) <= length:
        return name
    tail = (2 * length) // 3
    return f"{name[: length - tail - 1]}…{name[-tail:]}"


def draw_band(panel: Axes, x: np.ndarray, rows: np.ndarray, *, label: str, colour: str) -> None:
    """Mean over the rows, with a band of one standard deviation either side."""
    mean, spread = rows.mean(0), rows.std(0)
    panel.plot(x, mean, color=colour, marker="o", markersize=3, label=label)
    panel.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)


def _empty(width: float, height: float) -> Figure:
    figure = ShownFigure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
