"""A zoo whose shards are lost or damaged trains these again, alone, to the same weights."""

import dataclasses
import json

import jax
import numpy as np
import pytest

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
