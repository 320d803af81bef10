"""What README says is true: its example runs, its commands and files exist, its numbers are in results/."""

import re
from pathlib import Path

import configs

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_example_runs(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(example.strip().splitlines()) <= 30
    exec(compile(example, "README.md", "exec"), {})
    raw, aligned = re.findall(r"agrees with HMC on (\d\.\d+)", capsys.readouterr().out)
    assert float(raw) < float(aligned)


def test_every_study_named_exists():
    # `experiments.results` publishes a run; it is no study.
    commands = re.findall(r"python -m experiments\.(?!results)(\w+) (\w+)", README)
    assert commands
    for study, config in commands:
        assert config in configs.STUDIES[study].configs


def test_every_study_is_named():
    for study in configs.STUDIES:
        assert f"python -m experiments.{study}" in README


RENAMED = {"HMC refined": "refined q_r", "HMC limit": "HMC floor"}
"""Columns that README calls by a shorter or clearer name than the results page."""


def tables(text):
    """{column: {row: the number as written, without its spread}} of all tables of a page."""
    found, columns = {}, []
    for line in text.splitlines():
        first, *cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| |"):
            columns = cells
        elif line.startswith("| "):
            for column, cell in zip(columns, cells, strict=False):
                found.setdefault(column, {}).setdefault(first, cell.split(" ± ")[0])
    return found


def test_the_numbers_of_the_first_table_are_those_of_its_results():
    """Column by column: what README shows is what the command named beside it wrote."""
    kept = tables((ROOT / "results" / "compact_posterior" / "digits" / "README.md").read_text())
    (table,) = re.findall(r"^\| \| HMC samples.*?(?=\n\n)", README, re.DOTALL | re.MULTILINE)
    shown = tables(table)
    assert len(shown) == 9
    for column, rows in shown.items():
        assert len(rows) == 4
        for row, number in rows.items():
            assert kept[RENAMED.get(column, column)][row] == number, (column, row)


def test_every_file_linked_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make ([\w-]+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


OVERVIEW = ROOT / "results" / "README.md"


def rows(text):
    """Cells of every row of every table, without heads and rules."""
    found = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"
    ]
    return [cells for cells in found if cells[0] != "what" and not cells[0].startswith("---")]


def test_every_number_of_the_overview_stands_on_its_page():
    """As written, so that a page that is made anew makes this page wrong at once."""
    for what, _, ours, link, _ in rows(OVERVIEW.read_text()):
        (target,) = re.findall(r"\]\(([^)]+)\)", link)
        page = (OVERVIEW.parent / target).read_text()
        numbers = re.findall(r"(?<![\w.,])-?\d+(?:,\d{3})*(?:\.\d+)?", ours)
        assert numbers, what
        for number in numbers:
            assert re.search(rf"(?<![\d.]){re.escape(number)}(?!\d|\.\d)", page), (what, number)


def test_every_page_of_results_is_in_the_overview():
    pages = {path.relative_to(OVERVIEW.parent) for path in OVERVIEW.parent.glob("*/**/README.md")}
    linked = {Path(target) for target in re.findall(r"\]\(([^)]+README\.md)\)", OVERVIEW.read_text())}
    assert linked <= pages
    assert {page.parts[0] for page in pages} == {page.parts[0] for page in linked}
