"""A posterior to play with, inside a report: its draws, predictions, calibration, and lines between networks.

A study hands over numbers, few enough that the page stays small; `explorer.js` draws them with plotly, which
is written into the page, so that it needs no network.
"""

import base64
import dataclasses
import html
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from plotly.offline import get_plotlyjs

from symbnn.plot.style import PALETTE, colours

VIEWS = Path(__file__).with_name("explorer.html")
SCRIPT = Path(__file__).with_name("explorer.js")
DIGITS = 4
"""Of a number in the page: more than a screen shows."""


@dataclasses.dataclass(frozen=True)
class Layer:
    """Some weights of one layer over the draws, `(weights, draws)`."""

    name: str
    weights: Sequence[str]
    raw: np.ndarray
    aligned: np.ndarray


@dataclasses.dataclass(frozen=True)
class Case:
    """One test input: what every draw predicts, `(draws, classes)`, and its pixels if it is an image."""

    name: str
    label: int
    probs: np.ndarray
    image: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Reliability:
    """Accuracy by confidence with 95 % intervals; one entry for every bin that is not empty."""

    name: str
    confidence: np.ndarray
    accuracy: np.ndarray
    low: np.ndarray
    high: np.ndarray
    counts: np.ndarray


@dataclasses.dataclass(frozen=True)
class Line:
    """Loss along the line between two networks as they were drawn, and between the same two aligned."""

    name: str
    weights: np.ndarray
    raw: np.ndarray
    aligned: np.ndarray


@dataclasses.dataclass(frozen=True)
class Explorer:
    """All that a reader can look at."""

    chains: np.ndarray
    """Of every draw, its chain, counted from 0."""
    layers: Sequence[Layer]
    cases: Sequence[Case]
    reliability: Sequence[Reliability]
    lines: Sequence[Line]
    notes: Sequence[str] = ()
    """Sentences about what was kept and why."""


def section(explorer: Explorer) -> str:
    """The views with their data and scripts."""
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in explorer.notes)
    views, script = (path.read_text(encoding="utf-8") for path in (VIEWS, SCRIPT))
    return (
        f"{notes}<noscript><p>The views below need JavaScript.</p></noscript>{views}"
        f'<script type="application/json" id="explorer-data">{data(explorer)}</script>'
        f"<script>{get_plotlyjs()}</script><script>{script}</script>"
    )


def data(explorer: Explorer) -> str:
    """All numbers as JSON, rounded, safe inside a page."""
    content = {
        "palette": list(PALETTE),
        "colours": colours(int(np.max(explorer.chains)) + 1),
        **{field.name: _plain(getattr(explorer, field.name)) for field in dataclasses.fields(explorer)},
    }
    # Nothing in it may end the element that holds it.
    return json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _plain(value: Any) -> Any:
    """Lists and dicts of what JSON knows; images become data that a browser shows."""
    if isinstance(value, Case):
        return {
            "name": value.name,
            "label": value.label,
            # Of a probability the first decimals matter, not the leading digits of 1e-9.
            "probs": _plain(np.round(np.asarray(value.probs, np.float64), DIGITS)),
            "image": None if value.image is None else _picture(value.image),
        }
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray) and value.ndim:
        return [_plain(part) for part in value]
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        if not np.isfinite(value):
            raise ValueError(f"explorer: expected finite numbers, got {value}; leave out what diverged")
        return float(f"{value:.{DIGITS}g}")
    return value


def _picture(pixels: np.ndarray) -> str:
    """Numbers from 0 to 1, `(height, width, 1 or 3)`, as the address of a PNG."""
    levels = np.round(255 * np.clip(pixels, 0, 1)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(levels[..., 0] if levels.shape[-1] == 1 else levels).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
