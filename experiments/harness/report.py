"""One self-contained HTML page for eyes: findings, figures, then numbers, readable with no network."""

import base64
import html
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.harness import explorer
from experiments.harness.explorer import Explorer
from experiments.harness.provenance import STAGE_HEADS, stage_rows
from experiments.harness.tables import Table

STYLE = Path(__file__).with_name("report.css")
# Whatever is in the page, the browser fetches nothing for it.
POLICY = "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
NARROW = 8
"""Columns that a laptop shows side by side: a first table of no more is open from the start."""
WIDE = 1.9
"""Width over height from which a figure takes a row of its own."""


def page(
    title: str,
    introduction: Sequence[str],
    findings: Sequence[str],
    tables: Sequence[Table],
    figures: Sequence[tuple[Path, str]],
    description: dict[str, Any],
    *,
    explored: Explorer | None = None,
) -> str:
    """The page. `figures` are PNG files with their captions; `description` is the content of run.json."""
    points = "".join(f"<li>{html.escape(finding)}</li>" for finding in findings)
    parts = {
        "Findings": f'<div class="findings"><ul>{points}</ul></div>' if points else "",
        "Figures": _figures(figures),
        "Explorer": explorer.section(explored) if explored else "",
        "Numbers": "".join(
            table.html(is_open=not index and len(table.columns) <= NARROW)
            for index, table in enumerate(tables)
        ),
        "How it was made": _stages(description) + _settings(description),
    }
    shown = {name: body for name, body in parts.items() if body}
    links = "".join(f'<li><a href="#{_anchor(name)}">{name}</a></li>' for name in shown)
    sections = "".join(
        f'<section id="{_anchor(name)}"><h2>{name}</h2>{body}</section>' for name, body in shown.items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE.read_text(encoding='utf-8')}</style></head>"
        '<body><a class="skip" href="#main">Skip to the content</a>'
        f"<header><h1>{html.escape(title)}</h1><p>{html.escape(' '.join(introduction))}</p>"
        f'<nav aria-label="Parts of this page"><ul>{links}</ul></nav></header>'
        f'<main id="main" tabindex="-1">{sections}</main></body></html>\n'
    )


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-")


def _figures(figures: Sequence[tuple[Path, str]]) -> str:
    drawn = "".join(_figure(path, caption) for path, caption in figures)
    return f'<div class="figures">{drawn}</div>' if drawn else ""


def _figure(path: Path, caption: str) -> str:
    content, caption = path.read_bytes(), html.escape(caption)
    # The first chunk of a PNG begins with its size.
    width, height = struct.unpack(">II", content[16:24])
    kind = ' class="wide"' if width > WIDE * height else ""
    data = base64.b64encode(content).decode()
    return (
        f'<figure{kind}><img alt="{caption}" width="{width}" height="{height}" '
        f'src="data:image/png;base64,{data}"><figcaption>{caption}</figcaption></figure>'
    )


def _stages(description: dict[str, Any]) -> str:
    """Every stage with its seconds and the code that computed it."""
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in stage_rows(description)
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in STAGE_HEADS)
    return (
        '<details class="table"><summary>Stages, their seconds and the code that computed them</summary>'
        '<div class="scroll" tabindex="0" role="region" aria-label="Stages">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _settings(description: dict[str, Any]) -> str:
    settings = html.escape(json.dumps({**description, "stages": list(description["stages"])}, indent=1))
    return (
        "<details><summary>Settings, command, versions and devices</summary>"
        f'<pre tabindex="0" role="region" aria-label="Settings">{settings}</pre></details>'
    )
