"""A zoo whose shards are lost or damaged trains these again, alone, to the same weights."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from experiments.common import convergence
from experiments.common.problem import load
from experiments.harness import rundir
from experiments.model_zoo import study
from symbnn import io
from tests.experiments.cases import debug_config


@pytest.fixture(scope="module")
def zoo_run(tmp_path_factory):
    config = debug_config("model_zoo")
    with rundir.open_run("model_zoo", config, tmp_path_factory.mktemp("zoo")) as opened:
        problem, zoo = load(config, config.network, hidden=config.hidden), io.Zoo(opened.directory / "zoo")
        assert study.fill(opened, config, problem, zoo) == [0, 1, 2]
        yield opened, config, problem, zoo


@pytest.mark.parametrize("damage", ["flip", "delete"])
def test_only_a_damaged_shard_is_trained_again_to_the_same_weights(zoo_run, capsys, damage):
    opened, config, problem, zoo = zoo_run
    networks, others = zoo.read(1)[0], {index: zoo.path(index).read_bytes() for index in (0, 2)}
    stamps = {index: zoo.path(index).stat().st_mtime_ns for index in (0, 2)}
    content = bytearray(zoo.path(1).read_bytes())
    content[-1] ^= 1
    zoo.path(1).write_bytes(bytes(content))
    if damage == "delete":
        zoo.path(1).unlink()
    capsys.readouterr()
    assert study.fill(opened, config, problem, zoo) == [1]
    assert "shard 1: " in (out := capsys.readouterr().out)
    assert zoo.path(1).name in out
    jax.tree.map(np.testing.assert_array_equal, zoo.read(1)[0], networks)
    assert {index: zoo.path(index).read_bytes() for index in (0, 2)} == others
    assert {index: zoo.path(index).stat().st_mtime_ns for index in (0, 2)} == stamps
    assert study.fill(opened, config, problem, zoo) == []


def test_the_zoo_of_another_config_is_refused(zoo_run):
    opened, config, problem, zoo = zoo_run
    other = dataclasses.replace(config, num_networks=16)
    with pytest.raises(io.ArtefactError, match="its num_networks is 24, but this run has 16"):
        study.fill(opened, other, problem, zoo)


def test_the_commits_that_trained_shards_are_those_of_the_zoo(tmp_path):
    config = debug_config("model_zoo")
    for commit, stop in (("a" * 40, True), ("b" * 40, False)):
        with rundir.open_run("model_zoo", config, tmp_path) as run:
            run.description["git_commit"] = commit
            zoo = io.Zoo(tmp_path / "zoo")
            study.fill(run, config, load(config, config.network, hidden=config.hidden), zoo)
            if stop:
                zoo.path(1).unlink()
            else:
                run.stage("reading", lambda: {})
    assert json.loads((tmp_path / "run.json").read_text())["stages"]["reading"]["commit"] == (
        f"{'a' * 40}, then {'b' * 40}"
    )


@pytest.fixture
def half_converged(monkeypatch):
    """Every second network converges; the share that a network must be right on is set."""
    monkeypatch.setattr(
        convergence, "converged", lambda problem, samples, _: np.arange(len(samples["out"]["bias"])) % 2 == 0
    )
    return dataclasses.replace(debug_config("model_zoo"), least_accuracy=0.5)


def test_networks_that_did_not_converge_are_stored_with_a_flag_and_in_no_number(half_converged, tmp_path):
    table = study.run(half_converged, tmp_path)
    zoo = io.Zoo(tmp_path / "zoo")
    metrics = zoo.metrics()
    assert zoo.num_networks == 24
    assert metrics[study.CONVERGED].tolist() == [True, False] * 12
    assert zoo.shards()[0].metrics[study.CONVERGED] == 0.5
    accuracy = 100 * metrics["accuracy"][::2]
    found = {row.name: [cell.value for cell in row.cells] for row in table.rows}["test accuracy, %"]
    np.testing.assert_allclose(found, [f(accuracy) for f in (np.mean, np.median, np.min, np.max)], rtol=1e-5)
    text = (tmp_path / "table.md").read_text()
    assert "12 of 24 trained networks did not converge" in text
    assert "the 12 that did not converge have `converged` false in its metrics" in text


def test_a_zoo_without_flags_counts_all_and_one_without_a_network_that_converged_is_refused(zoo_run):
    _, config, problem, zoo = zoo_run
    earlier = {name: value for name, value in zoo.metrics().items() if name != study.CONVERGED}

    class Earlier(io.Zoo):
        def metrics(self):
            return earlier

    judged = study._judge(config, problem, Earlier(zoo.directory))
    assert judged[study.CONVERGED].all()
    earlier[study.CONVERGED] = np.zeros(24, bool)
    with pytest.raises(ValueError, match=r"only 0 of 24 networks converged.*--num-epochs"):
        study._judge(config, problem, Earlier(zoo.directory))
