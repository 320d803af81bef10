"""One look for all figures: no global state, colours that survive greyscale and colour blindness."""

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

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


def new_figure(
    columns: int = 1, rows: int = 1, *, width: float = 5.0, height: float = 3.6
) -> tuple[Figure, list[Axes]]:
    """A figure with `rows x columns` panels, as a flat list."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for panel in axes:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, axes
