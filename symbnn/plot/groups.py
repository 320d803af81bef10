"""A diagram of a network's symmetries: its weight arrays in the order of layers, axes coloured by group.

A row is a leaf, a cell an axis of it, or a factor of one: heads · units, or segments laid end to end, a + b.
Cells of one colour are relabelled together. Arrows say whether the leaf writes the units or reads them; s and
± mark the axes that rescaling or flipping a unit multiplies.
"""

import math
import textwrap
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from symbnn.plot.group_rows import Cell, Row, rows_of
from symbnn.plot.style import GREY, PALETTE, new_figure, shortened
from symbnn.symmetry import SymmetrySpec
from symbnn.symmetry.spec.explain import group_title
from symbnn.symmetry.spec.spec import Factor

# In inches; a character of the names and of the smaller words in cells is about so wide.
ROW, LAYER_GAP, MARGIN, JOINT, MARK = 0.32, 0.12, 0.15, 0.14, 0.34
NAME_CHARACTER, CELL_CHARACTER = 0.077, 0.068
TALLEST = 13.0
"""Of the rows of one column; longer networks fill several."""
LONGEST_NAME, LONGEST_GROUP, LONGEST_LINE = 44, 22, 64
TINTS = (0.35, 0.75)
"""Shares of the group's colour in its cells, light ones first; dark words stay legible on both."""

PINNED = "#bbbbbb"
"""The edge of a cell that no group moves."""


class Place(NamedTuple):
    """Where a row lies: the left edge of its cells, and its top."""

    row: Row
    x: float
    y: float


def groups(spec: SymmetrySpec, *, figure: Any = None) -> Figure:
    """The diagram of a spec.

    Args:
        spec: What `symmetry.discover` or `symmetry.from_axes` returns, or the `spec` of a model.
        figure: An empty figure or subfigure to draw into, instead of a new one.
    """
    if not isinstance(spec, SymmetrySpec):
        kind = type(spec).__name__
        raise ValueError(f"spec: expected a SymmetrySpec, as symmetry.discover returns it, got {kind}")
    if not spec.leaves:
        raise ValueError("spec: expected a network with weights, got no leaf")
    rows = rows_of(spec)
    order = _order(rows)
    shades = [(colour, tint) for tint in TINTS for colour in PALETTE]
    colours = {name: shades[place % len(shades)] for place, name in enumerate(order)}
    legend = _legend(spec, order)
    places, right = _arrange(rows)
    width = right + 0.5 + NAME_CHARACTER * max(len(line) for line, _ in legend)
    height = max(max(place.y for place in places) + ROW, MARGIN + ROW * len(legend)) + MARGIN
    figure, (panel,) = new_figure(width=width, height=height, figure=figure)
    panel.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
    panel.set_axis_off()
    for place in places:
        _draw_row(panel, place, colours)
    for number, (line, name) in enumerate(legend):
        middle = MARGIN + ROW * (number + 0.5)
        if name:
            _box(panel, right + 0.1, middle - 0.1, 0.2, 0.2, *colours[name])
        panel.text(right + 0.4, middle, line, va="center", fontsize=9)
    return figure.get_figure(root=True)


def _order(rows: Sequence[Row]) -> list[str]:
    """Groups as they first appear, from input to output."""
    cells = [cell for row in rows for cell in row.cells if cell.role != "stays"]
    return list(dict.fromkeys(cell.factor.group for cell in cells if cell.factor.group))


def _legend(spec: SymmetrySpec, order: Sequence[str]) -> list[tuple[str, str]]:
    """Lines of the legend, with the group whose colour stands before them."""
    lines: list[tuple[str, str]] = []
    for name in order:
        first, *rest = textwrap.wrap(group_title(spec, spec.group(name)), LONGEST_LINE)
        lines += [(first, name), *((f"   {line}", "") for line in rest)]
    lines += [(f"{index.name}: {index.size}, stays in place", "") for index in spec.indices]
    if any(group.num_scales for group in spec.groups):
        lines.append(("s: multiplied by the scale of the unit, 1/s: divided by it", ""))
    if any(group.num_signs for group in spec.groups):
        lines.append(("±: turned with the sign of the unit", ""))
    return lines or [("no symmetries found", "")]


def _arrange(rows: Sequence[Row]) -> tuple[list[Place], float]:
    """Rows below one another, in as many columns as it takes, layers kept whole; and the right edge."""
    starts = [row.layer != before.layer for before, row in zip([rows[0], *rows], rows, strict=False)]
    total = ROW * len(rows) + LAYER_GAP * sum(starts)
    tallest = total / math.ceil(total / TALLEST)
    columns: list[list[tuple[Row, float]]] = [[]]
    y = MARGIN
    for row, is_start in zip(rows, starts, strict=True):
        y += LAYER_GAP * is_start
        if is_start and y > tallest:
            columns.append([])
            y = MARGIN
        columns[-1].append((row, y))
        y += ROW
    places, right = [], 0.0
    for column in columns:
        names = max(len(shortened(row.name, LONGEST_NAME)) for row, _ in column)
        left = right + MARGIN + NAME_CHARACTER * names
        places += [Place(row, left, top) for row, top in column]
        right = left + max(_row_width(row) for row, _ in column) + 2 * MARGIN
    return places, right


def _row_width(row: Row) -> float:
    cells = sum(_cell_width(cell) for cell in row.cells) + JOINT * max(len(row.cells) - 1, 0)
    return cells + 0.1 + CELL_CHARACTER * len(_shape(row))


def _cell_width(cell: Cell) -> float:
    marks = [exponent for exponent in (*cell.factor.scales, *cell.factor.signs) if exponent]
    return 0.2 + CELL_CHARACTER * len(_words(cell)) + MARK * len(marks)


def _draw_row(panel: Axes, place: Place, colours: dict[str, tuple[str, float]]) -> None:
    """Name, cells and shape; a cell has its group at the left and what multiplies it at the right."""
    row, x, top = place
    middle = top + 0.5 * ROW
    panel.text(x - 0.1, middle, shortened(row.name, LONGEST_NAME), ha="right", va="center", fontsize=9)
    for number, cell in enumerate(row.cells):
        if number:
            panel.text(x + 0.5 * JOINT, middle, cell.joint, ha="center", va="center", fontsize=8)
            x += JOINT
        group, width = cell.factor.group or "", _cell_width(cell)
        box = _box(panel, x, top + 0.03, width, ROW - 0.06, *colours.get(group, (PINNED, 0.0)))
        box.set_gid(f"{row.name}:{group}")
        panel.text(x + 0.09, middle, _words(cell), va="center", fontsize=8)
        x += width
        panel.text(x - 0.08, middle, _marks(cell.factor), ha="right", va="center", fontsize=8)
    panel.text(x + 0.1, middle, _shape(row), va="center", fontsize=8, color=GREY)


def _box(panel: Axes, x: float, y: float, width: float, height: float, colour: str, tint: float) -> Rectangle:
    face = tuple(1 - tint * (1 - part) for part in to_rgb(colour))
    box = Rectangle((x, y), width, height, facecolor=face, edgecolor=colour, linewidth=0.8)
    panel.add_patch(box)
    return box


def _shape(row: Row) -> str:
    return " × ".join(map(str, row.shape)) or "a number"


def _words(cell: Cell) -> str:
    name = shortened(cell.factor.group or str(cell.factor.size), LONGEST_GROUP)
    return {"stays": name, "writes": f"→ {name}", "reads": f"{name} →"}[cell.role]


def _marks(factor: Factor) -> str:
    """Powers of the scale generators, and a sign where a flip acts."""
    count = len(factor.scales)
    scales = [_power(number, exponent, count) for number, exponent in enumerate(factor.scales) if exponent]
    return " ".join([*scales, *("±" for parity in factor.signs if parity)])


def _power(number: int, exponent: Fraction, count: int) -> str:
    """`s`, `1/s`, `s²`, and so on; numbered where there are several generators."""
    symbol = f"s_{{{number + 1}}}" if count > 1 else "s"
    size = abs(exponent)
    power = symbol if size == 1 else f"{symbol}^{{{size}}}"
    return f"${power}$" if exponent > 0 else f"$1/{power}$"
