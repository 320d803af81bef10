"""Tutorials are text and code, end with what can go wrong, and run as the site runs them, on bundled data."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
READER = ROOT / "docs" / "hooks" / "percent.py"
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
LAST = "## What can go wrong"


def load_percent() -> ModuleType:
    """The reader of tutorials, which is part of the site and of no package."""
    spec = importlib.util.spec_from_file_location("percent", READER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PERCENT = load_percent()


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
def test_a_tutorial_runs_with_bundled_data_and_warns_of_nothing(tutorial, tmp_path):
    """In a process of its own, as when the site is built; its seconds are for the reader of the log."""
    # These tests compile without optimising; a reader does not.
    unset = ("SYMBNN_DATA_DIR", "XLA_FLAGS")
    bare = {name: value for name, value in os.environ.items() if name not in unset}
    out = tmp_path / "out.json"
    run = subprocess.run(
        [sys.executable, str(READER), str(tutorial), str(out)],
        cwd=ROOT,
        env={**bare, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert not run.stderr
    found = json.loads(out.read_text())
    code = [cell for cell in PERCENT.cells_of(tutorial.read_text()) if not cell.is_text]
    assert len(found["outputs"]) == len(code)
    assert any(printed for printed, _ in found["outputs"])
    print(f"{tutorial.stem}: {found['processor_seconds']:.0f} s of processor time, {found['seconds']:.0f} s")


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
