"""The contract of every study, on its debug config: what a run leaves behind, its numbers, its reuse."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import configs
from experiments.harness.rundir import Run
from experiments.results import publish
from tests.experiments.cases import debug_config

ROOT = Path(__file__).parents[2]


LONG = {
    "aligned_diagnostics",
    "compact_trained",
    "diversity",
    "merging",
    "posterior_quality",
    "posterior_views",
    "pruning",
    "rate_distortion",
    "rotations",
    "scaling_symmetry",
    "toy_posterior",
    "transpositions",
    "uci",
    "weight_sharing",
    "widths",
}
"""Studies whose stages others run too, and that compile for ten seconds."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(study, marks=pytest.mark.slow if study in LONG else ())
        for study in sorted(configs.STUDIES)
    ],
)
def finished(request, tmp_path_factory):
    """A finished debug run of every study: its name, its directory, and what its stages returned."""
    directory = tmp_path_factory.mktemp(request.param)
    return request.param, directory, run_study(request.param, directory)


def run_study(study: str, directory: Path) -> dict[str, Any]:
    """Run a study on its debug config; the classes and shapes of what every stage returned."""
    found, stage = {}, Run.stage

    def recorded(run: Run, name: str, compute: Any) -> Any:
        tree = stage(run, name, compute)
        found[name] = jax.tree.structure(tree), jax.tree.map(np.shape, jax.tree.leaves(tree))
        return tree

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "stage", recorded)
        importlib.import_module(f"experiments.{study}.study").run(debug_config(study), directory)
    return found


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


ROUNDING = ("largest |in − out|", "largest change of a logit")
"""Rows that hold what rounding leaves of an exact zero, in units of a rounding error: processors differ."""


CLOCKS = ("processor seconds", "wall seconds")
"""Rows of measured times, which are the machine's."""


def test_a_run_leaves_everything_behind(finished):
    study, directory, _ = finished
    description = json.loads((directory / "run.json").read_text())
    assert description["study"] == study
    assert description["config"]["seed"] == description["seed"] == 0
    assert {"versions", "devices", "git_commit", "command"} <= description.keys()
    stages = {path.stem for path in (directory / "stages").glob("*.safetensors")}
    assert description["stages"].keys() == stages
    records = read_lines(directory / "metrics.jsonl")
    assert records
    assert all({"table", "row", "column", "value"} <= record.keys() for record in records)
    assert "|" in (directory / "table.md").read_text()
    figures = {path.stem.split("_")[0] for path in (directory / "figures").glob("*.png")}
    assert figures
    if study == "compact_posterior":
        assert {"spread", "pruning", "transpositions"} <= figures


def test_the_numbers_are_those_that_were_kept(finished):
    """Every study computes what it computed when its results were published."""
    study, directory, _ = finished
    expected, found = (
        {(record["table"], record["row"], record["column"]): record["value"] for record in records}
        for records in (
            read_lines(ROOT / "results" / "debug" / f"{study}.jsonl"),
            read_lines(directory / "metrics.jsonl"),
        )
    )
    assert found.keys() == expected.keys()
    largest = dict[tuple[str, str], float]()
    for (table, row, _), value in expected.items():
        largest[table, row] = max(largest.get((table, row), 0.0), abs(value or 0.0))
    for place, value in expected.items():
        if place[1].startswith(ROUNDING):
            assert found[place] < 10.0, place
            continue
        if place[1].startswith(CLOCKS):
            assert found[place] > 0, place
            continue
        # One of the fifty test images is 0.02; a small number may not hide behind that.
        slack = 0.05 * min(1.0, largest[place[:2]])
        assert found[place] == (None if value is None else pytest.approx(value, rel=0.02, abs=slack)), place


def test_results_keep_table_and_figures_and_nothing_else(finished, tmp_path):
    study, directory, _ = finished
    folder = publish(directory, tmp_path)
    assert folder == tmp_path / study / directory.name
    text = (folder / "README.md").read_text()
    assert (directory / "table.md").read_text() in text
    assert "seed 0" in text
    names = {path.name for path in (directory / "figures").glob("*.png")}
    assert {path.name for path in folder.iterdir()} == names | {"README.md"}
    with pytest.raises(ValueError, match="not a finished run"):
        publish(tmp_path, tmp_path)


NOT_RUN = {
    "scaling_symmetry": ("adam",),
    "posterior_quality": ("dropout", "variational", "vi", "swag", "sghmc", "hmc"),
}
"""Methods that a debug config leaves out, as words of which a sentence about them has one."""


def test_nothing_is_said_of_a_method_that_did_not_run(finished):
    study, directory, _ = finished
    chosen = json.loads((directory / "run.json").read_text())["config"]
    names = [*chosen.get("methods", ()), *chosen.get("law", {}).get("optimizers", ())]
    assert not set(names) & set(NOT_RUN.get(study, ()))
    lines = (directory / "table.md").read_text().splitlines()
    said = " ".join(line for line in lines if not line.startswith("Not run: "))
    words = set(re.findall(r"[a-z]+", said.lower()))
    assert not words & set(NOT_RUN.get(study, ()))


class Links(HTMLParser):
    """What a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.pictures += [value or "" for name, value in attrs if name == "src"]
        self.links += [value or "" for name, value in attrs if name == "href"]


def test_the_report_needs_no_network(finished):
    _, directory, _ = finished
    page = Links()
    page.feed((directory / "report.html").read_text())
    assert len(page.pictures) == len(list((directory / "figures").glob("*.png")))
    assert all(source.startswith("data:image/png;base64,") for source in page.pictures)
    assert all(source.startswith("#") for source in page.links)


def test_only_a_report_with_something_to_explore_carries_a_script(finished):
    study, directory, _ = finished
    assert ("<script" in (directory / "report.html").read_text()) == (study == "compact_posterior")


def test_a_second_run_reuses_every_stage_as_what_it_was_and_says_the_same(finished, capsys):
    study, directory, computed = finished
    before = {
        path: path.read_bytes() for path in directory.rglob("*") if path.suffix in (".md", ".jsonl", ".png")
    }
    capsys.readouterr()
    assert run_study(study, directory) == computed
    assert capsys.readouterr().out.count(": reused") == len(computed)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.slow
def test_interrupted_and_resumed_equals_uninterrupted(finished, tmp_path):
    """Ctrl-C during a stage: one line, exit code 130, and the rerun ends with the same table."""
    study, directory, _ = finished
    if study != "compact_posterior":
        return
    command = [sys.executable, "-m", f"experiments.{study}", "debug", "--rundir", str(tmp_path / "run")]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("hmc: done"):
            break
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "goes on where it stopped" in errors
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    assert "hmc: reused" in again.stdout
    assert (tmp_path / "run" / "table.md").read_text() == (directory / "table.md").read_text()
