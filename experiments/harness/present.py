"""The end of a study: tables, words and figures into the run directory, a summary for the terminal."""

import json
from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments.harness import report
from experiments.harness.explorer import Explorer
from experiments.harness.rundir import Run
from experiments.harness.tables import Table


def present(
    run: Run,
    *,
    title: str | None = None,
    introduction: Sequence[str],
    tables: Sequence[Table],
    figures: Sequence[tuple[str, Figure, str]],
    findings: Sequence[str],
    explored: Explorer | None = None,
) -> Table:
    """Write `metrics.jsonl`, `table.md`, `report.html` and figures; print tables and findings.

    The title is the study's name unless another is given; figures are (name, figure, caption); `findings` are
    sentences made from this run's own numbers, the paper's finding beside them; a posterior to be `explored`
    gets interactive views in the report. Returns the first table.
    """
    title = title or run.description["study"].replace("_", " ").capitalize()
    saved = [(run.figure(name, figure), caption) for name, figure, caption in figures]
    records = [json.dumps(record) + "\n" for table in tables for record in table.records()]
    run.write("metrics.jsonl", "".join(records))
    parts = [*introduction, *(table.markdown().rstrip("\n") for table in tables), *findings]
    run.write("table.md", "\n\n".join(parts) + "\n")
    page = report.page(title, introduction, findings, tables, saved, run.description, explored=explored)
    run.write("report.html", page)
    for table in tables:
        table.print()
    for finding in findings:
        run.say(finding)
    run.say(f"table    {run.directory / 'table.md'}")
    run.say(f"figures  {run.directory / 'figures'}")
    run.say(f"report   {run.directory / 'report.html'} (open it in a browser)")
    return tables[0]
