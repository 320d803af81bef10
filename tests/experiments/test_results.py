"""Published pages: they name the commit of every stage, and those of earlier versions say what they know."""

import json
import re
import shutil
from pathlib import Path

import pytest

from experiments.results import publish

RESULTS = Path(__file__).parents[2] / "results"
PAGES = sorted(RESULTS.glob("*/*/README.md"))
VERSIONS = {"python": "3.11.7", "jax": "0.10"}


@pytest.fixture
def run(tmp_path):
    """What a finished run leaves, with a stage of an earlier commit and an earlier JAX."""
    directory = tmp_path / "runs" / "digits"
    directory.mkdir(parents=True)
    record = {"seconds": 2.5, "commit": "b" * 40, "versions": VERSIONS, "lender": None}
    earlier = record | {"seconds": 40.0, "commit": "a" * 40, "versions": VERSIONS | {"jax": "0.9"}}
    described = {
        "study": "pruning",
        "command": "python -m experiments.pruning digits",
        "seed": 3,
        "devices": ["cpu:cpu"],
        "git_commit": "b" * 40,
        "versions": VERSIONS,
        "stages": {"hmc": earlier, "curves": record},
    }
    (directory / "run.json").write_text(json.dumps(described))
    (directory / "table.md").write_text("**Title**\n")
    (directory / "report.html").write_text("")
    return directory


def test_a_page_lists_every_stage_with_seconds_commit_and_other_versions(run, tmp_path):
    text = (publish(run, tmp_path / "results") / "README.md").read_text()
    assert "| hmc | 40.0 | aaaaaaa | jax 0.9 |" in text
    assert "| curves | 2.5 | bbbbbbb |  |" in text
    assert "seed 3, 42 s in all on cpu:cpu; the last command ran at commit bbbbbbb." in text


def test_a_run_without_records_of_its_stages_is_not_published(run, tmp_path):
    described = json.loads((run / "run.json").read_text())
    del described["stages"]
    (run / "run.json").write_text(json.dumps(described))
    with pytest.raises(ValueError, match="does not say which code computed its stages"):
        publish(run, tmp_path / "results")


def test_what_is_no_finished_run_is_not_published(run, tmp_path):
    shutil.move(run / "table.md", run / "other.md")
    with pytest.raises(ValueError, match=r"holds no table\.md: not a finished run"):
        publish(run, tmp_path / "results")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parts[-3]}-{page.parts[-2]}")
def test_every_page_names_a_commit(page):
    assert re.search(r"commit `?[0-9a-f]{7,40}", page.read_text())
