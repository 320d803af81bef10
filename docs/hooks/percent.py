"""Tutorials: a script in percent format goes in, Markdown with what its cells print and draw comes out.

A line `# %% [markdown]` begins text, which is all comment; a line `# %%` begins code. Such a script runs as
it stands, and editors and jupytext open it as a notebook. Run as a program, this file executes a script cell
by cell and writes what came out as JSON: `python percent.py SCRIPT OUT`.
"""

import ast
import base64
import contextlib
import io
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

MARK, TEXT_MARK = "# %%", "# %% [markdown]"


class Cell(NamedTuple):
    """Text or code of a script."""

    is_text: bool
    source: str


class Output(NamedTuple):
    """What a cell printed, and the figure that it ended with, as PNG in base64; empty if there is none."""

    printed: str
    figure: str


def cells_of(script: str) -> list[Cell]:
    """The cells of a script; `ValueError` for anything before the first mark, or text that is no comment."""
    cells: list[Cell] = []
    for line in script.splitlines():
        if line.rstrip() in (MARK, TEXT_MARK):
            cells.append(Cell(line.rstrip() == TEXT_MARK, ""))
        elif not cells and line.strip():
            raise ValueError(f"expected a cell mark first, got {line!r}")
        elif cells:
            is_text, source = cells[-1]
            cells[-1] = Cell(is_text, f"{source}{_text(line) if is_text else line}\n")
    return [Cell(is_text, source.strip("\n")) for is_text, source in cells]


def execute(script: str) -> list[Output]:
    """Run the code cells one after the other; the value of a last expression with `savefig` is a figure."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    outputs = []
    for number, cell in enumerate(cell for cell in cells_of(script) if not cell.is_text):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            value = _run(cell.source, f"cell {number}", scope)
        outputs.append(Output(printed.getvalue(), _png(value) if hasattr(value, "savefig") else ""))
    return outputs


def markdown(script: str, outputs: list[Output] | None, figures: str) -> tuple[str, dict[str, bytes]]:
    """The page, and its figures by file name, which begins with `figures`; without outputs, text and code."""
    given = iter(outputs or ())
    page, drawn = [], dict[str, bytes]()
    for cell in cells_of(script):
        if cell.is_text:
            page.append(cell.source)
            continue
        page.append(f"```python\n{cell.source}\n```")
        printed, figure = next(given, Output("", ""))
        if printed:
            page.append("``` { .text .printed }\n" + printed.rstrip("\n") + "\n```")
        if figure:
            name = f"{figures}_{len(drawn)}.png"
            drawn[name] = base64.b64decode(figure)
            page.append(f"![what the code above draws]({name})")
    return "\n\n".join(page) + "\n", drawn


def _text(line: str) -> str:
    if line.strip() and not line.startswith("#"):
        raise ValueError(f"a line of text must be a comment, got {line!r}")
    return line.removeprefix("#").removeprefix(" ")


def _run(source: str, name: str, scope: dict[str, Any]) -> Any:
    """Execute statements; the value of the last one, if it is an expression."""
    body = ast.parse(source, name).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), name, "exec"), scope)
    return None if last is None else eval(compile(ast.Expression(last.value), name, "eval"), scope)


def _png(figure: Any) -> str:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=120, bbox_inches="tight")
    return base64.b64encode(file.getvalue()).decode()


if __name__ == "__main__":
    start, processor = time.monotonic(), time.process_time()
    made = execute(Path(sys.argv[1]).read_text(encoding="utf-8"))
    seconds = {"seconds": time.monotonic() - start, "processor_seconds": time.process_time() - processor}
    Path(sys.argv[2]).write_text(json.dumps({"outputs": made, **seconds}), encoding="utf-8")
