"""The figure: distance against bytes, a line for every kind of law."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.rate_distortion.laws import ALIGNED, NETWORKS, RANDOM, RAW, REFINED
from symbnn.plot.style import BLUE, GREEN, GREY, PURPLE, RED, new_figure

STYLES = {
    (NETWORKS, RAW): (GREY, "o", "HMC draws"),
    (NETWORKS, REFINED): (BLUE, "o", "HMC draws, refined"),
    ("Gaussian", REFINED): (RED, "s", "Gaussian, refined"),
    ("low rank", REFINED): (GREEN, "D", "low rank, refined"),
    ("mixture", REFINED): (PURPLE, "^", "mixture, refined"),
}
UNREFINED = {"Gaussian": (RED, "s"), "low rank": (GREEN, "D"), "mixture": (PURPLE, "^")}


def curves(points: Sequence[dict[str, Any]]) -> Figure:
    """Left: every law in every format; right: unrefined, refined and from random starts, in the first one."""
    figure, (left, right) = new_figure(2, width=4.8, height=4.0)
    formats = list(dict.fromkeys(point["format"] for point in points))
    for (family, state), (colour, marker, words) in STYLES.items():
        for form, style in zip(formats, ("-", "--", ":"), strict=False):
            named = words if form == formats[0] else None
            _line(left, _chosen(points, family, state, form), colour, marker, style, named)
    for family, (colour, marker) in UNREFINED.items():
        for state, style in ((RAW, ":"), (ALIGNED, "--"), (RANDOM, "-."), (REFINED, "-")):
            fill = colour if state == REFINED else "none"
            shown = _chosen(points, family, state, formats[0])
            _line(right, shown, colour, marker, style, f"{family}, {state}", fill)
    _line(right, _chosen(points, NETWORKS, RAW, formats[0]), GREY, "o", "-", "HMC draws")
    left.set_title(f"refined laws and HMC draws ({', '.join(formats)}: solid, dashed, dotted)", fontsize=9)
    right.set_title(f"what alignment and refinement do ({formats[0]})", fontsize=9)
    for panel in (left, right):
        panel.set(xscale="log", yscale="log", xlabel="bytes on disk")
        panel.legend(frameon=False, fontsize=7)
    left.set_ylabel("total variation to all HMC draws")
    return figure


def _chosen(points: Sequence[dict[str, Any]], family: str, state: str, form: str) -> list[tuple[int, float]]:
    wanted = {"family": family, "state": state, "format": form}
    return sorted(
        (int(point["bytes"]), float(np.mean(point["distance"])))
        for point in points
        if all(point[name] == value for name, value in wanted.items())
    )


def _line(
    panel: Any,
    shown: list[tuple[int, float]],
    colour: str,
    marker: str,
    style: str,
    words: str | None,
    fill: str | None = None,
) -> None:
    if shown:
        panel.plot(
            *zip(*shown, strict=True),
            style,
            color=colour,
            marker=marker,
            markersize=4,
            markerfacecolor=fill or colour,
            label=words,
        )
