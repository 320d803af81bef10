"""Every study end to end on its debug config: files, reuse, refusal, damage, interruption."""

import dataclasses
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

import configs
from experiments.harness import rundir
from experiments.results import publish
from symbnn import io

ROOT = Path(__file__).parents[2]
SMALL = "loss_barriers"


def debug_config(study: str):
    return configs.STUDIES[study].configs["debug"][1]


LONG = {
    "aligned_diagnostics",
    "compact_trained",
    "diversity",
    "posterior_quality",
    "posterior_views",
    "pruning",
    "scaling_symmetry",
    "toy_posterior",
    "transpositions",
    "weight_sharing",
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
    """A finished debug run of every study."""
    directory = tmp_path_factory.mktemp(request.param)
    module = importlib.import_module(f"experiments.{request.param}.study")
    module.run(debug_config(request.param), directory)
    return request.param, directory


@pytest.fixture(scope="module")
def one_finished(tmp_path_factory):
    """A finished debug run of one small study: what all studies have in common is tested on it."""
    directory = tmp_path_factory.mktemp(SMALL)
    importlib.import_module(f"experiments.{SMALL}.study").run(debug_config(SMALL), directory)
    return SMALL, directory


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_leaves_everything_behind(finished):
    study, directory = finished
    description = json.loads((directory / "run.json").read_text())
    assert description["study"] == study
    assert description["config"]["seed"] == description["seed"] == 0
    assert {"versions", "devices", "git_commit", "python", "command"} <= description.keys()
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
    study, directory = finished
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
        # One of the fifty test images is 0.02; a small number may not hide behind that.
        slack = 0.05 * min(1.0, largest[place[:2]])
        assert found[place] == (None if value is None else pytest.approx(value, rel=0.02, abs=slack)), place


def test_results_keep_table_and_figures_and_nothing_else(finished, tmp_path):
    study, directory = finished
    folder = publish(directory, tmp_path)
    assert folder == tmp_path / study / directory.name
    text = (folder / "README.md").read_text()
    assert (directory / "table.md").read_text() in text
    assert "seed 0" in text
    names = {path.name for path in (directory / "figures").glob("*.png")}
    assert {path.name for path in folder.iterdir()} == names | {"README.md"}
    with pytest.raises(ValueError, match="not a finished run"):
        publish(tmp_path, tmp_path)


class Links(HTMLParser):
    """What a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.images = 0

    def handle_starttag(self, tag, attrs):
        self.images += tag == "img"
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_report_needs_no_network(finished):
    _, directory = finished
    page = Links()
    page.feed((directory / "report.html").read_text())
    assert page.images == len(list((directory / "figures").glob("*.png")))
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)


@pytest.mark.slow
def test_a_second_run_of_any_study_reuses_every_stage_and_says_the_same(finished, capsys):
    check_reuse(*finished, capsys)


def test_a_second_run_reuses_every_stage_and_says_the_same(one_finished, capsys):
    check_reuse(*one_finished, capsys)


def check_reuse(study, directory, capsys):
    before = {
        path: path.read_bytes() for path in directory.rglob("*") if path.suffix in (".md", ".jsonl", ".png")
    }
    capsys.readouterr()
    importlib.import_module(f"experiments.{study}.study").run(debug_config(study), directory)
    out = capsys.readouterr().out
    stages = list((directory / "stages").glob("*.safetensors"))
    assert out.count(": reused") == len(stages)
    assert {path: path.read_bytes() for path in before} == before


def test_another_config_is_refused_and_named(one_finished):
    study, directory = one_finished
    other = dataclasses.replace(debug_config(study), seed=1)
    with pytest.raises(ValueError, match="seed was 0 and is now 1; choose another --rundir, or --fresh"):
        importlib.import_module(f"experiments.{study}.study").run(other, directory)


def test_a_damaged_stage_is_named_and_only_it_is_computed_again(one_finished, capsys):
    study, directory = one_finished
    stage = sorted((directory / "stages").glob("*.safetensors"))[-1]
    table = (directory / "table.md").read_bytes()
    content = bytearray(stage.read_bytes())
    content[-1] ^= 1
    stage.write_bytes(bytes(content))
    capsys.readouterr()
    importlib.import_module(f"experiments.{study}.study").run(debug_config(study), directory)
    out = capsys.readouterr().out
    assert stage.name in out
    assert "computing it again" in out
    assert out.count(": done in") == 1
    assert (directory / "table.md").read_bytes() == table


def test_a_stage_of_another_run_is_not_taken(one_finished, capsys):
    study, directory = one_finished
    stage = sorted((directory / "stages").glob("*.safetensors"))[-1]
    tree, metadata = io.load_tree(stage)
    io.save_tree(stage, tree, metadata | {"run": "another"})
    capsys.readouterr()
    importlib.import_module(f"experiments.{study}.study").run(debug_config(study), directory)
    assert f"{stage} belongs to another stage or run; computing it again" in capsys.readouterr().out
    assert io.read_metadata(stage)["run"] == metadata["run"]


def test_two_processes_do_not_share_a_run(one_finished):
    study, directory = one_finished
    hold = (
        "import fcntl, sys, time; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); "
        "print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", hold, str(directory / ".lock")], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(ValueError, match="another process works in"):
            importlib.import_module(f"experiments.{study}.study").run(debug_config(study), directory)
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.slow
def test_interrupted_and_resumed_equals_uninterrupted(finished, tmp_path):
    """Ctrl-C during a stage: one line, exit code 130, and the rerun ends with the same table."""
    study, directory = finished
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


@pytest.mark.slow
def test_a_full_disk_is_one_line(tmp_path):
    """No file may grow over 4 kB: run.json fits, the first chunk of samples does not."""
    start = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); "
        "from experiments import cli; "
        f"cli.main('compact_posterior', ['debug', '--rundir', {str(tmp_path / 'run')!r}])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", start], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: ")
    assert "free space" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert (tmp_path / "run" / "run.json").exists()


def test_clear_deletes_runs_and_nothing_else(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("...")
    with pytest.raises(ValueError, match="refusing to clear it"):
        rundir.clear(precious)
    assert (precious / "thesis.tex").exists()
    rundir.clear(tmp_path / "absent")


def test_a_run_directory_that_is_a_file_is_named(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    with (
        pytest.raises(ValueError, match="choose --rundir"),
        rundir.open_run("compact_posterior", debug_config("compact_posterior"), path),
    ):
        pass


def test_a_damaged_run_file_is_named(tmp_path):
    (tmp_path / "run.json").write_text("{half")
    with (
        pytest.raises(ValueError, match=r"run\.json is damaged"),
        rundir.open_run("compact_posterior", debug_config("compact_posterior"), tmp_path),
    ):
        pass
