"""Which code computed a stage: told where it is not the code that runs, recorded stage by stage."""

import json
import re
import subprocess
from pathlib import Path

import jax.numpy as jnp
import pytest

from experiments.harness import provenance, report
from experiments.harness.provenance import Code, difference
from experiments.harness.rundir import open_run
from symbnn import io
from tests.experiments.cases import debug_config

OLD, NEW = "1234abc" + "0" * 33, "5678def" + "0" * 33
VERSIONS = {"python": "3.11.7", "jax": "0.10"}


@pytest.mark.parametrize(
    ("there", "here", "words"),
    [
        (Code(OLD, VERSIONS), Code(OLD, VERSIONS), ""),
        (Code(OLD, VERSIONS), Code(NEW, VERSIONS), "computed at 1234abc (this is 5678def)"),
        (
            Code(OLD, VERSIONS),
            Code(OLD, VERSIONS | {"jax": "0.11"}),
            "computed at 1234abc with jax 0.10 (this is 1234abc with jax 0.11)",
        ),
        (
            Code(OLD + "+changes", VERSIONS),
            Code(OLD + "+changes", VERSIONS),
            "computed at 1234abc+changes (this is 1234abc+changes)",
        ),
        (Code(None, VERSIONS), Code(NEW, VERSIONS), "computed at an unknown commit (this is 5678def)"),
        (
            Code(f"{OLD}, then {NEW}", VERSIONS),
            Code(NEW, VERSIONS),
            "computed at 1234abc, then 5678def (this is 5678def)",
        ),
    ],
)
def test_other_code_is_told_in_a_line(there, here, words):
    assert difference(there, here) == words


def test_this_code_is_the_commit_of_the_checkout():
    root = Path(__file__).parents[3]
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True)
    if found.returncode:
        assert provenance.this_code().commit is None
    else:
        assert re.fullmatch(re.escape(found.stdout.strip()) + r"(\+changes)?", provenance.this_code().commit)


@pytest.fixture
def two_commits(tmp_path, monkeypatch):
    """A run whose first stage was computed at one commit and the second at another."""
    config = debug_config("loss_barriers")
    for commit, names in ((OLD, ("one",)), (NEW, ("one", "two"))):
        monkeypatch.setattr(
            "experiments.harness.rundir.this_code", lambda commit=commit: Code(commit, VERSIONS)
        )
        with open_run("loss_barriers", config, tmp_path) as run:
            for name in names:
                run.stage(name, lambda: jnp.ones(2))
    return tmp_path


def test_a_stage_of_another_commit_is_told_when_it_is_reused(capsys, two_commits):
    assert "one: reused, computed at 1234abc (this is 5678def)\n" in capsys.readouterr().out


def test_every_stage_file_carries_commit_and_versions(two_commits):
    for name, commit in {"one": OLD, "two": NEW}.items():
        metadata = io.read_metadata(two_commits / "stages" / f"{name}.safetensors")
        assert metadata["commit"] == commit
        assert metadata["versions"] == VERSIONS


def test_run_json_has_a_record_for_every_stage(two_commits):
    described = json.loads((two_commits / "run.json").read_text())
    assert described["git_commit"] == NEW
    assert {name: record["commit"] for name, record in described["stages"].items()} == {
        "one": OLD,
        "two": NEW,
    }


def test_the_report_lists_every_stage_with_its_commit(two_commits):
    described = json.loads((two_commits / "run.json").read_text())
    page = report.page("Title", [], [], [], [], described)
    for name, commit in {"one": "1234abc", "two": "5678def"}.items():
        assert re.search(rf"<td>{name}</td><td>[\d.]+</td><td>{commit}</td>", page)
