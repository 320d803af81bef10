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


def test_the_numbers_of_the_first_table_are_those_of_its_results():
    """Row by row: what README shows is what the command named beside it wrote."""
    kept = (ROOT / "results" / "compact_posterior" / "digits" / "README.md").read_text().splitlines()
    is_row = re.compile(r"\| [A-Za-z][^|]*\|( \d\.\d{3} \|| – \|)")
    shown = [line for line in README.splitlines() if is_row.match(line)]
    assert len(shown) == 4
    for line in shown:
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        rows = [row for row in kept if row.startswith(f"| {name} ")]
        for number in (cell for cell in cells if cell != "–"):
            assert any(number in row for row in rows), (name, number)


def test_every_file_linked_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make ([\w-]+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
