"""A table of numbers: for the terminal, as Markdown, as HTML, as records."""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable

SUMMARIES: dict[str, Any] = {"mean": np.mean, "median": np.median, "least": np.min, "most": np.max}


@dataclass(frozen=True)
class Cell:
    """A mean over repetitions with its standard deviation; `spread` None for a single value."""

    value: float | None
    spread: float | None = None

    @classmethod
    def over(cls, values: Any) -> "Cell":
        """Mean and, of several values, standard deviation; a dash for none."""
        values = np.asarray(values)
        spread = float(values.std(ddof=1)) if values.size > 1 else None
        return cls(float(values.mean()), spread) if values.size else cls(None)

    def text(self, decimals: int) -> str:
        """`0.812 ± 0.014`, or a dash where nothing is defined."""
        if self.value is None:
            return "–"
        text = f"{self.value:.{decimals}f}"
        return text if self.spread is None else f"{text} ± {self.spread:.{decimals}f}"


@dataclass(frozen=True)
class Row:
    """One quantity over all columns."""

    name: str
    cells: Sequence[Cell]
    decimals: int = 4

    @classmethod
    def of(cls, name: str, values: Iterable[Any], decimals: int = 4) -> "Row":
        """Plain numbers, or None where a column has none."""
        return cls(name, [Cell(None if value is None else float(value)) for value in values], decimals)

    @classmethod
    def over(cls, name: str, columns: Iterable[Any], decimals: int = 4) -> "Row":
        """Mean and spread over the repetitions of every column."""
        return cls(name, [Cell.over(column) for column in columns], decimals)


@dataclass(frozen=True)
class Table:
    """Rows of cells under named columns."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Row]

    @classmethod
    def summary(cls, title: str, values: Mapping[str, tuple[np.ndarray, int]], *columns: str) -> "Table":
        """`SUMMARIES` of the arrays, which come with their decimals."""
        rows = [
            Row.of(name, (SUMMARIES[column](each) for column in columns), decimals)
            for name, (each, decimals) in values.items()
        ]
        return cls(title, columns, rows)

    def markdown(self) -> str:
        """GitHub's pipe table."""
        lines = [
            "| |" + "|".join(f" {column} " for column in self.columns) + "|",
            "|---|" + "---|" * len(self.columns),
        ]
        lines += [
            f"| {row.name} |" + "|".join(f" {cell.text(row.decimals)} " for cell in row.cells) + "|"
            for row in self.rows
        ]
        return f"**{self.title}**\n\n" + "\n".join(lines) + "\n"

    def html(self, *, is_open: bool = False) -> str:
        """A table that unfolds below its title; a wide one scrolls inside its own box."""
        head = "".join(f'<th scope="col">{html.escape(column)}</th>' for column in self.columns)
        body = "".join(
            f'<tr><th scope="row">{html.escape(row.name)}</th>'
            + "".join(f"<td>{html.escape(cell.text(row.decimals))}</td>" for cell in row.cells)
            + "</tr>"
            for row in self.rows
        )
        title = html.escape(self.title)
        return (
            f'<details class="table"{" open" if is_open else ""}><summary>{title}</summary>'
            f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">'
            f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div></details>"
        )

    def print(self) -> None:
        """To the terminal."""
        table = RichTable(title=self.title, title_justify="left")
        table.add_column("")
        for column in self.columns:
            table.add_column(column, justify="right")
        for row in self.rows:
            table.add_row(row.name, *(cell.text(row.decimals) for cell in row.cells))
        console = Console()
        # A pipe has no width of its own: give the table what it needs rather than fold numbers.
        console = console if console.is_terminal else Console(width=200)
        console.print(table)

    def records(self) -> list[dict[str, Any]]:
        """One dict per cell, for `metrics.jsonl`."""
        return [
            {"table": self.title, "row": row.name, "column": column, **asdict(cell)}
            for row in self.rows
            for column, cell in zip(self.columns, row.cells, strict=True)
        ]
