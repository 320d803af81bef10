"""Code on the site's pages runs: the first page, the examples for contributors, and the tutorials."""

import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((Path(__file__).parent / "examples").glob("*.py"))
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
LAST = "## What can go wrong"


def load_percent() -> ModuleType:
    """The reader of tutorials, which is part of the site and of no package."""
    spec = importlib.util.spec_from_file_location("percent", ROOT / "docs" / "hooks" / "percent.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PERCENT = load_percent()


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


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_is_text_and_code_and_ends_with_what_can_go_wrong(tutorial):
    cells = PERCENT.cells_of(tutorial.read_text())
    assert cells[0].is_text
    assert cells[0].source.startswith("# ")
    assert cells[-1].is_text
    headings = re.findall(r"^## .+$", "\n".join(cell.source for cell in cells if cell.is_text), re.MULTILINE)
    assert headings[-1] == LAST
    for cell in cells:
        if not cell.is_text:
            compile(cell.source, tutorial.name, "exec")


@pytest.mark.slow
@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs_as_the_site_runs_it_and_warns_of_nothing(tutorial, tmp_path):
    # In a process of its own: a tutorial may choose its devices, before anything else of JAX. And without the
    # flags of the tests, which make programs slow.
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    environment["PYTHONPATH"] = str(ROOT)
    found = tmp_path / "found.json"
    command = [sys.executable, "docs/hooks/percent.py", str(tutorial), str(found)]
    run = subprocess.run(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 0, run.stderr
    assert "Warning" not in run.stderr
    outputs = json.loads(found.read_text())["outputs"]
    assert any(printed for printed, _ in outputs)


SCRIPT = """# %% [markdown]
# # Title
#
# Text.

# %%
print("one")

# %%
class Figure:
    def savefig(self, file, **settings):
        file.write(b"picture")


Figure()
"""


def test_a_script_becomes_a_page_with_what_it_prints_and_draws():
    outputs = PERCENT.execute(SCRIPT)
    assert [output.printed for output in outputs] == ["one\n", ""]
    page, figures = PERCENT.markdown(SCRIPT, outputs, "script")
    assert page.startswith("# Title\n\nText.\n")
    assert '```python\nprint("one")\n```' in page
    assert "\none\n```" in page
    assert "(script_0.png)" in page
    assert figures == {"script_0.png": b"picture"}


def test_a_page_without_running_has_text_and_code_alone():
    page, figures = PERCENT.markdown(SCRIPT, None, "script")
    assert "print(" in page
    assert ".printed" not in page
    assert figures == {}


@pytest.mark.parametrize(
    ("script", "message"),
    [("x = 1\n", "expected a cell mark first"), ("# %% [markdown]\nx = 1\n", "must be a comment")],
)
def test_a_script_that_is_no_notebook_is_refused(script, message):
    with pytest.raises(ValueError, match=message):
        PERCENT.cells_of(script)
