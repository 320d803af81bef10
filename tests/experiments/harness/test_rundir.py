"""Run directories: bound to one config, alone; what an older version or another config left is refused."""

import dataclasses
import json
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.harness import rundir
from experiments.harness.rundir import lent_stage, open_run
from symbnn.inference import Fit
from symbnn.io import ArtefactError
from symbnn.posteriors import Empirical
from tests.experiments.cases import debug_config

STUDY = "loss_barriers"
CONFIG = debug_config(STUDY)
LOCK = (
    "import fcntl, sys, time; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); "
    "print('held', flush=True); time.sleep(60)"
)


def change_run(directory, change) -> None:
    """Rewrite run.json."""
    path = directory / "run.json"
    described = json.loads(path.read_text())
    change(described)
    path.write_text(json.dumps(described))


def opened_once(directory, config=CONFIG):
    with open_run(STUDY, config, directory) as run:
        run.stage("some", lambda: {"numbers": jnp.arange(3.0)})


def test_a_run_knows_what_it_has(tmp_path):
    with open_run(STUDY, CONFIG, tmp_path) as run:
        assert not run.has("some")
        assert not run.has_parts("some")
        run.stage("some", lambda: {"numbers": jnp.arange(3.0)})
        assert run.has("some")
        assert not run.has_parts("some")
        store = run.chunks("other")
        store.open({"method": "hmc"})
        store.write(0, {"draws/w": np.ones((2, 3))})
        assert run.has_parts("other")
        assert not run.has("other")


def test_another_config_is_refused_and_named(tmp_path):
    opened_once(tmp_path)
    with pytest.raises(ValueError, match="seed was 0 and is now 1; choose another --rundir, or --fresh"):
        opened_once(tmp_path, dataclasses.replace(CONFIG, seed=1))


def test_a_setting_that_the_run_did_not_know_had_its_default(tmp_path, capsys):
    opened_once(tmp_path)
    change_run(tmp_path, lambda run: run["config"].pop("num_inputs"))
    capsys.readouterr()
    opened_once(tmp_path)
    assert "some: reused" in capsys.readouterr().out
    assert "num_inputs" in json.loads((tmp_path / "run.json").read_text())["config"]


def test_a_new_setting_other_than_its_default_is_refused(tmp_path):
    opened_once(tmp_path)
    change_run(tmp_path, lambda run: run["config"].pop("num_inputs"))
    with pytest.raises(ValueError, match="num_inputs was None and is now 7"):
        opened_once(tmp_path, dataclasses.replace(CONFIG, num_inputs=7))


def test_a_setting_of_a_part_that_the_run_did_not_know_had_the_default_of_that_part(tmp_path, capsys):
    opened_once(tmp_path)
    change_run(tmp_path, lambda run: run["config"]["training"].pop("momentum"))
    capsys.readouterr()
    opened_once(tmp_path)
    assert "some: reused" in capsys.readouterr().out


def test_a_setting_that_is_gone_is_refused(tmp_path):
    opened_once(tmp_path)
    change_run(tmp_path, lambda run: run["config"].update(forgotten=3))
    with pytest.raises(ValueError, match="forgotten was 3 and is now None"):
        opened_once(tmp_path)


def test_a_run_of_an_older_version_is_refused_with_the_remedy_and_left_alone(tmp_path):
    opened_once(tmp_path)
    change_run(tmp_path, lambda run: (run.pop("stages"), run.pop("run")))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"run of an older version.*use --fresh to start over, or another"):
        opened_once(tmp_path)
    assert {path: path.read_bytes() for path in before} == before


def test_two_processes_do_not_share_a_run(tmp_path):
    opened_once(tmp_path)
    holder = subprocess.Popen([sys.executable, "-c", LOCK, str(tmp_path / ".lock")], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(ValueError, match="another process works in"):
            opened_once(tmp_path)
    finally:
        holder.kill()
        holder.communicate()


def test_clear_deletes_runs_and_nothing_else(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("...")
    with pytest.raises(ValueError, match="refusing to clear it"):
        rundir.clear(precious)
    assert (precious / "thesis.tex").exists()
    rundir.clear(tmp_path / "absent")
    opened_once(tmp_path / "run")
    rundir.clear(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_directory_that_is_a_file_is_named(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(ValueError, match="choose --rundir"):
        opened_once(path)


def test_a_damaged_run_file_is_named(tmp_path):
    (tmp_path / "run.json").write_text("{half")
    with pytest.raises(ValueError, match=r"run\.json is damaged"):
        opened_once(tmp_path)


@pytest.mark.parametrize("record", [3, {}, {"seconds": "x", "commit": "a", "versions": {}}])
def test_a_damaged_record_of_a_stage_is_named(tmp_path, record):
    opened_once(tmp_path)
    change_run(tmp_path, lambda run: run["stages"].update(some=record))
    with pytest.raises(ValueError, match=r"run\.json is damaged"):
        opened_once(tmp_path)


@pytest.fixture(scope="module")
def lender(tmp_path_factory):
    """A run of the compact posterior with three made-up draws."""
    directory = tmp_path_factory.mktemp("lender")
    with open_run("compact_posterior", debug_config("compact_posterior"), directory) as run:
        run.stage("hmc", lambda: Fit(Empirical({"w": jnp.arange(3.0)}), {}))
    return directory


def test_a_borrowed_stage_keeps_the_record_of_who_computed_it(lender, tmp_path, capsys):
    change = {"git_commit": "f" * 40}
    config = debug_config("pruning")
    for expected in ("hmc: borrowed from", "hmc: reused"):
        with open_run("pruning", config, tmp_path) as run:
            run.description |= change
            found = run.borrow("hmc", lender, "compact_posterior", config)
        assert expected in capsys.readouterr().out
        assert found.posterior.samples["w"].tolist() == [0.0, 1.0, 2.0]
    theirs = json.loads((lender / "run.json").read_text())["stages"]["hmc"]
    ours = json.loads((tmp_path / "run.json").read_text())["stages"]["hmc"]
    assert ours == theirs | {"lender": str(lender)}


def test_a_run_lends_its_stages_to_a_run_of_the_same_settings_only(lender, tmp_path):
    config = debug_config("pruning")
    with pytest.raises(ValueError, match=r"cannot lend its hmc: there seed is 0, here 1"):
        lent_stage(lender, "compact_posterior", dataclasses.replace(config, seed=1), "hmc")
    with pytest.raises(ValueError, match="there study is compact_posterior, here pruning"):
        lent_stage(lender, "pruning", config, "hmc")
    with pytest.raises(ValueError, match="holds no run"):
        lent_stage(tmp_path / "nobody", "compact_posterior", config, "hmc")
    with pytest.raises(ArtefactError, match="ensemble"):
        lent_stage(lender, "compact_posterior", config, "ensemble")
