"""What README says is true: its example runs, its commands and files exist, its numbers are in results/."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp

import configs

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_first_example_prints_what_is_said_below_it(capsys):
    example, _ = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in example.splitlines() if line.strip()]) <= 12
    exec(compile(example, "README.md", "exec"), {})
    printed = re.findall(r"(\d\.\d+)$", capsys.readouterr().out, re.MULTILINE)
    assert re.findall(r"(\d\.\d+) as trained, (\d\.\d+) aligned", README) == [tuple(printed)]


def test_the_second_example_runs_on_any_network_and_draws(capsys):
    _, example = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    shapes, key = {"w": (3, 4), "v": (4, 2)}, jax.random.key(0)

    def network(params, x):
        return jnp.tanh(x @ params["w"]) @ params["v"]

    scope = {
        "network": network,
        "params": {name: jax.random.normal(key, shape) for name, shape in shapes.items()},
        "x": jax.random.normal(key, (5, 3)),
        "key": key,
        "draws": {name: jax.random.normal(key, (2, 20, *shape)) for name, shape in shapes.items()},
    }
    exec(compile(example, "README.md", "exec"), scope)
    printed = capsys.readouterr().out
    assert "4 units" in printed
    assert "rhat" in printed


OVERVIEW = ROOT / "results" / "README.md"


def test_every_study_named_exists():
    # `experiments.results` publishes a run; it is no study.
    commands = re.findall(r"python -m experiments\.(?!results)(\w+) (\w+)", README + OVERVIEW.read_text())
    assert commands
    for study, config in commands:
        assert config in configs.STUDIES[study].configs


def test_every_study_is_named():
    for study in configs.STUDIES:
        assert f"python -m experiments.{study}" in OVERVIEW.read_text()


COLUMNS = {
    "raw": "HMC q_d",
    "aligned": "q_r, mean",
    "refined": "refined q_r",
    "control": "random start",
    "limit": "HMC floor",
}
ROWS = {
    "accuracy of the network with the mean weights": "accuracy of the mean network",
    "share of images with HMC's most probable class": "agreement with HMC",
    "total variation to HMC's predictions, 0 is equal": "TV to HMC",
}
"""What README calls by plainer names than the results page."""


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
    (table,) = re.findall(r"^\| \| raw.*?(?=\n\n)", README, re.DOTALL | re.MULTILINE)
    shown = tables(table)
    assert shown.keys() == COLUMNS.keys()
    for column, rows in shown.items():
        assert rows.keys() == ROWS.keys()
        for row, number in rows.items():
            assert kept[COLUMNS[column]][ROWS[row]] == number, (column, row)


def test_every_file_linked_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make ([\w-]+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def rows(text):
    """Cells of every row of the tables that begin with "what", without heads and rules."""
    tables = re.findall(r"^\| what .*\n\|---.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for table in tables
        for line in table.splitlines()
    ]


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
