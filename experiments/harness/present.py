"""The end of a study: tables, words and figures into the run directory, a summary for the terminal."""

from collections.abc import Sequence
from pathlib import Path

from experiments.harness import report
from experiments.harness.rundir import Run
from experiments.harness.tables import Table


def present(
    run: Run,
    *,
    title: str,
    introduction: Sequence[str],
    tables: Sequence[Table],
    figures: Sequence[tuple[Path, str]],
    findings: Sequence[str],
) -> None:
    """Write `metrics.jsonl`, `table.md` and `report.html`; print the tables and the findings.

    `findings` are sentences made from this run's own numbers, the paper's finding beside them.
    """
    run.record_metrics([record for table in tables for record in table.records()])
    parts = [*introduction, *(table.markdown().rstrip("\n") for table in tables), *findings]
    run.write("table.md", "\n\n".join(parts) + "\n")
    page = report.page(title, introduction, findings, tables, figures, run.description)
    run.write("report.html", page)
    for table in tables:
        table.print()
    for finding in findings:
        run.say(finding)
    run.say(f"table    {run.directory / 'table.md'}")
    run.say(f"figures  {run.directory / 'figures'}")
    run.say(f"report   {run.directory / 'report.html'} (open it in a browser)")
