"""One self-contained HTML page: tables, figures and settings, readable with no network."""

import base64
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.harness.provenance import STAGE_HEADS, stage_rows
from experiments.harness.tables import Table

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 80rem; margin: 2rem auto; padding: 0 1rem; }
h1 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
.verdict { border-left: 4px solid #4477aa; padding: .5rem 1rem; background: #4477aa18; }
.verdict p { margin: .5rem 0; }
.scroll { overflow-x: auto; } figure { margin: 1.5rem 0; }
figcaption { font-weight: 600; margin-bottom: .5rem; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .5rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #8884; }
th:first-child { text-align: left; font-weight: 600; }
img { max-width: 100%; background: white; } pre { overflow-x: auto; background: #8881; padding: 1rem; }
"""


def page(
    title: str,
    introduction: Sequence[str],
    findings: Sequence[str],
    tables: Sequence[Table],
    figures: Sequence[tuple[Path, str]],
    description: dict[str, Any],
) -> str:
    """The page. `figures` are PNG files with their captions; `description` is the content of run.json."""
    settings = html.escape(json.dumps({**description, "stages": list(description["stages"])}, indent=1))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
        f"<body><h1>{html.escape(title)}</h1>{_paragraphs(introduction)}"
        f'<div class="verdict">{_paragraphs(findings)}</div>'
        f"<h2>Numbers</h2>{''.join(table.html() for table in tables)}"
        f"<h2>Figures</h2>{''.join(_figure(path, caption) for path, caption in figures)}"
        f"<h2>How it was made</h2>{_stages(description)}<pre>{settings}</pre></body></html>\n"
    )


def _paragraphs(texts: Sequence[str]) -> str:
    return "".join(f"<p>{html.escape(text)}</p>" for text in texts)


def _stages(description: dict[str, Any]) -> str:
    """Every stage with its seconds and the code that computed it."""
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in stage_rows(description)
    )
    head = "".join(f"<th>{name}</th>" for name in STAGE_HEADS)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _figure(path: Path, caption: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    caption = html.escape(caption)
    return (
        f"<figure><figcaption>{caption}</figcaption>"
        f'<img alt="{caption}" src="data:image/png;base64,{data}"></figure>'
    )
