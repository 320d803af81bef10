"""What users bring, one short script each, run as it stands from an empty folder."""

import runpy
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parent / "jobs").glob("*.py"))
# Packages that are extras, not in the test group.
EXTRAS = {"torch_weights": "torch"}
MOST_LINES = 25


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_job_is_a_short_script(script, tmp_path, monkeypatch):
    if script.stem in EXTRAS:
        pytest.importorskip(EXTRAS[script.stem])
    assert len(script.read_text().splitlines()) <= MOST_LINES
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script.name])
    runpy.run_path(str(script), run_name="__main__")
