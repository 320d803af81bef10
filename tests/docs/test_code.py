"""Code on the site's pages runs: the first page and the examples for contributors."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((Path(__file__).parent / "examples").glob("*.py"))


@pytest.mark.slow
def test_the_first_page_runs_in_ten_lines_and_shows_the_effect(capsys):
    script = Path(__file__).parent / "home.py"
    (shown,) = re.findall(r"\[start:code\]\n(.*)# --8<--", script.read_text(), re.DOTALL)
    code = [line for line in shown.splitlines() if line.strip() and "import" not in line]
    assert len(code) <= 10
    runpy.run_path(str(script))
    printed, said = (
        [float(number) for number in re.findall(r"(?:as trained|aligned) (\d\.\d+)$", text, re.MULTILINE)]
        for text in (capsys.readouterr().out, (ROOT / "docs" / "index.md").read_text())
    )
    # Training differs a little from processor to processor.
    assert printed == pytest.approx(said, abs=0.05)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_for_contributors_runs(example):
    runpy.run_path(str(example))
