"""Every study on arrays and a network that the user brings, from the user's own folder."""

import dataclasses
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import configs
from experiments.common.problem import load, perceptron
from tests.experiments.cases import debug_config

ROOT = Path(__file__).parents[2]
SOURCE = """
from flax import linen as nn


class Net(nn.Module):
    outputs: int
    activation: str = "relu"
    hidden: int = 8

    @nn.compact
    def __call__(self, inputs):
        flat = inputs.reshape(inputs.shape[0], -1)
        return nn.Dense(self.outputs)(getattr(nn, self.activation)(nn.Dense(self.hidden)(flat)))


def build(input_shape, num_outputs):
    return Net(num_outputs)


def smooth(input_shape, num_outputs):
    return Net(num_outputs, "tanh")


def linear(input_shape, num_outputs):
    return nn.Dense(num_outputs)
"""
EQUINOX = """
import equinox as eqx
import jax


class Net(eqx.Module):
    first: eqx.nn.Linear
    second: eqx.nn.Linear

    def __init__(self, size, outputs, key):
        keys = jax.random.split(key)
        self.first = eqx.nn.Linear(size, 8, key=keys[0])
        self.second = eqx.nn.Linear(8, outputs, key=keys[1])

    def __call__(self, example):
        return self.second(jax.nn.relu(self.first(example)))


def build(input_shape, num_outputs, key):
    return Net(*input_shape, num_outputs, key)
"""
NEED_MORE = {"weight_sharing": {"clustering": {"num_components": 2, "smallest_cluster": 1}}}
"""Settings without which a study refuses a network of 83 weights."""
OPEN = sorted(study for study in configs.STUDIES if not configs.STUDIES[study].refuses)
FAST = {"model_zoo"}


def clouds(num):
    """Three clouds in five dimensions, in [0, 1]."""
    generator, labels = np.random.default_rng(0), np.arange(num) % 3
    inputs = generator.normal(size=(3, 5))[labels] + 0.5 * generator.normal(size=(num, 5))
    return (inputs - inputs.min()) / np.ptp(inputs), labels


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("user")
    inputs, labels = clouds(250)
    np.savez(path / "own.npz", inputs=inputs, targets=labels)
    np.savez(path / "values.npz", inputs=inputs, targets=inputs[:, 0])
    np.savez(path / "wide.npz", inputs=9 * inputs, targets=labels)
    (path / "networks_of_a_user.py").write_text(SOURCE)
    (path / "equinox_of_a_user.py").write_text(EQUINOX)
    return path


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    return folder


def own(study, function="build", npz="own.npz"):
    """The debug config of a study with what the user brings."""
    config = debug_config(study)
    for part, change in NEED_MORE.get(study, {}).items():
        config = dataclasses.replace(config, **{part: dataclasses.replace(getattr(config, part), **change)})
    return dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, npz=npz),
        model=dataclasses.replace(config.model, factory=f"networks_of_a_user:{function}"),
    )


def run(study, config, directory):
    return importlib.import_module(f"experiments.{study}.study").run(config, directory)


@pytest.mark.parametrize(
    "study", [pytest.param(study, marks=() if study in FAST else pytest.mark.slow) for study in OPEN]
)
def test_every_study_runs_on_own_arrays_and_an_own_network(here, tmp_path, study, capsys):
    run(study, own(study), tmp_path)
    said = capsys.readouterr().out
    assert "own.npz (50 of 250 examples held out to test), 200 training and 50 test examples of shape" in said
    text = (tmp_path / "table.md").read_text()
    assert "own.npz (50 of 250 examples held out to test)" in text
    assert "networks_of_a_user:build" in text
    assert "digits" not in text
    assert (tmp_path / "report.html").exists()
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    accuracies = [record["value"] for record in records if "accuracy of samples" in record["row"]]
    assert not accuracies or max(value for value in accuracies if value is not None) > 0.6


@pytest.mark.parametrize("study", OPEN)
def test_regression_targets_are_refused_where_labels_are_needed(here, tmp_path, study):
    with pytest.raises(ValueError, match=r"--data\.npz values\.npz has floating-point targets") as raised:
        run(study, own(study, npz="values.npz"), tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("study", "function", "message"),
    [
        ("scaling_symmetry", "smooth", "networks_of_a_user:smooth: no group of the spec can be rescaled"),
        ("posterior_views", "smooth", "no group of the spec can be rescaled"),
        ("transpositions", "linear", "networks_of_a_user:linear has no units that can be swapped"),
        ("diversity", "linear", "no layer of networks_of_a_user:linear has exchangeable units"),
    ],
)
def test_a_network_without_what_the_study_is_about_is_refused_before_training(
    here, tmp_path, study, function, message
):
    with pytest.raises(ValueError, match=message):
        run(study, own(study, function), tmp_path)
    assert not (tmp_path / "stages").exists()


@pytest.mark.parametrize("brought", [{"npz": "own.npz"}, {"function": "build"}])
def test_published_networks_go_with_nothing_that_is_brought(here, tmp_path, brought):
    published = configs.STUDIES["merging"].configs["cifar10_resnet20"][1]
    own_parts = own("merging")
    change = {"data": own_parts.data} if "npz" in brought else {"model": own_parts.model}
    with pytest.raises(ValueError, match="does not go with published networks"):
        run("merging", dataclasses.replace(published, **change), tmp_path)


def test_negatives_need_inputs_between_zero_and_one(here, tmp_path):
    with pytest.raises(ValueError, match=r"need x in \[0, 1\]; those of wide\.npz .* go from .*: rescale"):
        run("diversity", own("diversity", npz="wide.npz"), tmp_path)


def test_own_inputs_keep_their_shape_for_an_own_network_and_are_vectors_for_a_perceptron(folder, here):
    images = np.random.default_rng(0).random((40, 4, 6, 1))
    np.savez(folder / "images.npz", inputs=images, targets=np.arange(40) % 2)
    config = debug_config("compact_posterior")
    given = dataclasses.replace(config, data=dataclasses.replace(own("pruning").data, npz="images.npz"))
    given = dataclasses.replace(given, data=dataclasses.replace(given.data, num_train=20, num_test=10))
    vectors = perceptron(given)
    assert vectors.inputs.shape == (10, 24)
    assert (vectors.data.num_classes, vectors.sizes) == (2, "24-8-2")
    whole = perceptron(dataclasses.replace(given, model=own("compact_posterior").model))
    assert whole.inputs.shape == (10, 4, 6, 1)
    assert whole.sizes == "networks_of_a_user:build (218 weights)"
    np.testing.assert_array_equal(whole.inputs.reshape(10, 24), vectors.inputs)
    with pytest.raises(ValueError, match=r"rotated turns square images, but inputs .* shape \(4, 6, 1\)"):
        vectors.outside("rotated")


def test_rows_are_no_images(here):
    config = own("compact_posterior")
    with pytest.raises(ValueError, match=r"lenet takes images of shape .* got \(5,\)"):
        load(dataclasses.replace(config, model=debug_config("compact_posterior").model), "lenet", hidden=())
    rows = perceptron(config)
    with pytest.raises(ValueError, match="rotated turns square images"):
        rows.outside("rotated")
    with pytest.raises(ValueError, match=r"digits has images, but inputs of own\.npz .* shape \(5,\)"):
        rows.outside("digits")
    np.testing.assert_array_equal(np.sort(rows.outside("permuted")), np.sort(rows.inputs))


@pytest.mark.slow
def test_the_command_runs_in_a_folder_with_nothing_but_the_users_files(folder):
    command = [
        *(sys.executable, "-m", "experiments.compact_posterior", "debug"),
        *("--data.npz", "own.npz", "--model.factory", "equinox_of_a_user:build"),
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    (directory,) = (folder / "runs" / "compact_posterior").iterdir()
    assert "equinox_of_a_user:build (75 weights)" in (directory / "report.html").read_text()
    assert "layer first" in (directory / "report.html").read_text()
    again = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert "hmc: reused" in again.stdout
    inputs, labels = clouds(260)
    np.savez(folder / "own.npz", inputs=inputs, targets=labels)
    changed = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert changed.returncode == 1
    assert "data.npz_sha256 was" in changed.stderr
    assert changed.stderr.count("\n") == 1
