"""The command `symbnn`: every mistake is one line and exit code 2, help needs no JAX, any folder will do."""

import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import configs
from symbnn import __version__, command, io, models, posteriors, symmetry, tree
from symbnn.command import inspect, studies
from symbnn.inference import Fit
from symbnn.io.pytorch import save_torch

ROOT = Path(__file__).parents[2]
KEY = jax.random.key(0)
MODEL = models.mlp((5,), 3, hidden=(7,))
SHAPE = ("--model", "mlp", "--input-shape", "5", "--outputs", "3", "--hidden", "7")
INPUTS = np.asarray(jax.random.normal(KEY, (20, 5)))
SOURCE = """
from flax import linen as nn


class Net(nn.Module):
    outputs: int = 3

    @nn.compact
    def __call__(self, inputs):
        return nn.Dense(self.outputs)(nn.relu(nn.Dense(7)(inputs)))


def build(input_shape, num_outputs):
    return Net(num_outputs)


def whole():
    from symbnn import models
    return models.mlp((5,), 3, hidden=(7,))
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a module of a user's, and the path of modules as it was before."""
    (tmp_path / "nets_of_a_user.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "nets_of_a_user", raising=False)
    return tmp_path


def run(capsys, *arguments) -> tuple[int, str, str]:
    try:
        code = command.main([str(argument) for argument in arguments])
    except SystemExit as stop:
        code = int(stop.code or 0)
    return code, *capsys.readouterr()


def network(seed=0):
    return MODEL.init(jax.random.key(seed))


def outputs(params):
    return MODEL.apply(params, INPUTS)


def in_shell(*arguments, cwd, flags=()):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    called = [sys.executable, *flags, "-m", "symbnn", *map(str, arguments)]
    return subprocess.run(called, cwd=cwd, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), (), ("inspct",), ("inspect", "--help"), ("merge", "x")]
)
def test_help_and_typos_answer_without_jax_and_in_no_time(arguments, tmp_path):
    start = time.perf_counter()
    ended = in_shell(*arguments, cwd=tmp_path, flags=("-X", "importtime"))
    seconds = time.perf_counter() - start
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "symbnn.command" in imported
    assert not imported & {"jax", "jaxlib", "numpy", "tyro", "rich"}
    assert ended.returncode == (0 if {"--help", "--version"} & set(arguments) else command.USAGE_ERROR)
    assert seconds < 2.0


def test_the_command_is_installed_with_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"symbnn": "symbnn.command:main"}
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["symbnn"]


def test_the_version_is_told(capsys):
    assert run(capsys, "--version") == (0, f"symbnn {__version__}\n", "")


def test_every_study_has_a_line(capsys):
    code, out, _ = run(capsys, "studies")
    lines = out.splitlines()
    assert code == 0
    assert len(lines) == len(configs.STUDIES) + 1
    for line, (name, study) in zip(lines, configs.STUDIES.items(), strict=False):
        assert line.startswith(name)
        assert all(config in line for config in study.configs)


def test_where_there_are_no_studies_it_is_told_how_to_get_them(capsys, monkeypatch):
    monkeypatch.setattr(studies, "find_spec", lambda name: None)
    code, out, err = run(capsys, "studies")
    assert (code, out) == (command.USAGE_ERROR, "")
    assert "get the repository of symbnn" in err


def test_somebody_elses_configs_are_not_taken_for_ours(capsys, monkeypatch, here):
    monkeypatch.setitem(sys.modules, "configs", type(sys)("configs"))
    monkeypatch.setattr(studies, "find_spec", lambda name: object())
    assert "not part of the installed package" in run(capsys, "studies")[2]


def test_inspect_tells_groups_sizes_dimensions_and_verifies(capsys, here):
    io.save_tree("net.safetensors", network())
    code, out, _ = run(capsys, "inspect", "net.safetensors", *SHAPE, "--complete")
    assert code == 0
    assert "net.safetensors: a network of symbnn\n66 weights in 4 leaves of float32\n" in out
    assert "hidden: 7 units; 1 scale, no signs" in out
    # 7! = 5040 labellings.
    assert "1 group; 7 continuous dimensions; 10^4 copies of every network" in out
    assert MODEL.spec.explain() in out
    assert "verified: outputs unchanged" in out
    assert "complete: all 7 dimensions of symmetry are found" in out


@pytest.mark.parametrize(
    ("group", "dimension", "order"),
    [
        (symmetry.Group("g", 5, num_scales=2), 10, 120),
        (symmetry.Group("g", 3, num_signs=1), 0, 6 * 2**3),
        (symmetry.Group("g", 4, num_scales=1, kind="invertible"), 16, 1),
        (symmetry.Group("g", 4, kind="orthogonal"), 6, 1),
        (symmetry.Group("g", 4, kind="orthogonal", centred=True), 3, 1),
    ],
)
def test_dimensions_are_those_of_the_matrix_groups(group, dimension, order):
    assert inspect._dimension(group) == dimension
    assert 10 ** inspect._log10_order(group) == pytest.approx(order)


def test_numbers_that_are_not_finite_are_told(capsys, here):
    broken = network()
    broken["out"]["bias"] = broken["out"]["bias"].at[0].set(jnp.nan)
    io.save_tree("net.safetensors", broken)
    code, out, err = run(capsys, "inspect", "net.safetensors", *SHAPE)
    assert "numbers that are not finite in out/bias" in out
    assert code == command.USAGE_ERROR
    assert err.count("\n") == 1


FORMS = {
    "tree.safetensors": lambda path: io.save_tree(path, network()),
    "torch.pt": lambda path: save_torch(path, io.to_torch(MODEL, network(), "mlp")),
    "torch.safetensors": lambda path: save_torch(path, io.to_torch(MODEL, network(), "mlp")),
    "leaves.npz": lambda path: np.savez(path, **tree.named_leaves(network())),
    "torch.npz": lambda path: np.savez(path, **io.to_torch(MODEL, network(), "mlp")),
    "posterior.safetensors": lambda path: io.save_posterior(
        path, posteriors.Empirical(tree.stack([network()]))
    ),
    "gaussian.safetensors": lambda path: io.save_posterior(
        path, posteriors.DiagonalGaussian(network(), network())
    ),
    "stage.safetensors": lambda path: io.save_tree(
        path, Fit(posteriors.Empirical(tree.stack([network()])), {})
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_weights_is_converted_to_the_same_network(capsys, here, name):
    FORMS[name](Path(name))
    code, out, err = run(capsys, "convert", name, "ours.npz", *SHAPE)
    assert code == 0, err
    assert out.splitlines()[-1] == "ours.npz: arrays by name, 4 leaves"
    with np.load("ours.npz") as found:
        for leaf, expected in tree.named_leaves(network()).items():
            np.testing.assert_array_equal(found[leaf], expected)


def test_to_pytorch_and_back_is_bit_for_bit(capsys, here):
    state = io.to_torch(MODEL, network(), "mlp")
    save_torch("theirs.pth", state)
    assert run(capsys, "convert", "theirs.pth", "ours.safetensors", *SHAPE)[0] == 0
    assert run(capsys, "convert", "ours.safetensors", "again.safetensors", *SHAPE)[0] == 0
    assert io.read_metadata("ours.safetensors") == {}
    again = io.load_safetensors("again.safetensors")
    assert again.keys() == state.keys()
    for key, tensor in state.items():
        np.testing.assert_array_equal(again[key], tensor)


def test_names_of_another_file_are_taken(capsys, here):
    theirs = {"body.0.weight": "fc1.weight", "body.0.bias": "fc1.bias"}
    theirs |= {"head.weight": "fc2.weight", "head.bias": "fc2.bias"}
    state = io.to_torch(MODEL, network(), "mlp")
    save_torch("theirs.pt", {name: state[key] for name, key in theirs.items()})
    io.save_tree("net.safetensors", network(1))
    names = ("--layers", "hidden=body.0,out=head")
    assert run(capsys, "convert", "net.safetensors", "out.pt", *SHAPE, *names, "--like", "theirs.pt")[0] == 0
    expected = io.to_torch(MODEL, network(1), "mlp")
    for name, tensor in io.load_torch("out.pt").items():
        np.testing.assert_array_equal(tensor, expected[theirs[name]])


def test_relabelled_copies_are_merged_to_the_same_function(capsys, here):
    """Without alignment the mean of two labellings would be another function."""
    element = symmetry.random_element(MODEL.spec, jax.random.key(5))
    io.save_tree("a.safetensors", network())
    io.save_tree("b.safetensors", symmetry.act(MODEL.spec, element, network()))
    files = ("a.safetensors", "b.safetensors")
    code, out, err = run(capsys, "merge", *files, *SHAPE, "--out", "merged.safetensors")
    assert code == 0, err
    assert "merged 2 networks" in out
    merged, _ = io.load_tree("merged.safetensors")
    np.testing.assert_allclose(outputs(merged), outputs(network()), atol=1e-5)


def test_networks_of_a_posterior_are_merged_on_inputs_and_judged(capsys, here):
    labels = np.asarray(outputs(network()).argmax(-1))
    np.savez("inputs.npz", inputs=INPUTS, targets=labels)
    copies = [
        symmetry.act(MODEL.spec, symmetry.random_element(MODEL.spec, jax.random.key(seed)), network())
        for seed in range(3)
    ]
    io.save_posterior("three.safetensors", posteriors.Empirical(tree.stack(copies)))
    named = ("three.safetensors", *SHAPE, "--out", "merged.pt", "--inputs", "inputs.npz")
    code, out, err = run(capsys, "merge", *named)
    assert code == 0, err
    assert "three.safetensors: 3 networks of a posterior" in out
    assert "accuracy on the 20 inputs that were given, which flatter" in out
    assert "1.0000, 1.0000, 1.0000; merged 1.0000" in out
    merged = io.from_torch(MODEL, "merged.pt", "mlp")
    np.testing.assert_allclose(outputs(merged), outputs(network()), atol=1e-4)


NET = "net.safetensors"
MERGE = ("merge", NET, NET, *SHAPE, "--out")
USER = ("inspect", NET, "--model")
MISTAKES = [
    (("inspect", "absent.pt", *SHAPE), "absent.pt: expected a file of weights; found nothing"),
    (("inspect", ".", *SHAPE), "found a folder"),
    (("inspect", "words.txt", *SHAPE), "words.txt: expected"),
    (("inspect", "damaged.safetensors", *SHAPE), "damaged.safetensors: expected"),
    (("inspect", NET, "--model", "mlp"), "give --input-shape and --outputs"),
    (("inspect", NET, "--model", "mpl", *SHAPE[2:6]), "unknown model 'mpl'; did you mean 'mlp'"),
    (("inspect", NET, *SHAPE[:-1], "9"), "leaf 'hidden/bias' has shape (7,); expected (9,)"),
    (("inspect", NET, *SHAPE, "--width", "2"), "mlp has no setting --width; it has hidden, activation"),
    (("inspect", NET, *SHAPE, "--input-shap", "3"), "did you mean '--input-shape'"),
    (("inspect", NET, *SHAPE, "--outputs", "x"), "invalid int value: 'x'"),
    (("inspect", NET, *SHAPE, "--input-shape", "5,-1"), "is no list of sizes, as 32,32,3"),
    (("inspect", NET, *SHAPE, "--layers", "a"), "is no list of pairs"),
    ((*USER, "nobody:build"), "no module 'nobody'"),
    ((*USER, "nets_of_a_user:biuld"), "did you mean 'build'"),
    ((*USER, "nets_of_a_user:build"), "takes (input_shape, num_outputs), but the shape of an input or"),
    ((*USER, "nets_of_a_user:whole", "--hidden", "3"), "--hidden is for our own networks"),
    (("merge", NET, *SHAPE, "--out", "a.pt"), "holds one network; give two or more"),
    (MERGE[:-1], "required: --out"),
    ((*MERGE, "a.xyz"), "a.xyz: files of weights end in .pt"),
    ((*MERGE, NET), "written over what was read"),
    ((*MERGE, "a.pt", "--inputs", "no.npz"), "no.npz: expected an .npz file"),
    ((*MERGE, "a.pt", "--inputs", "leaves.npz"), "expected an array 'inputs'"),
    ((*MERGE, "a.pt", "--method", "magic"), "unknown alignment method 'magic'"),
    (("convert", "two.safetensors", "a.pt", *SHAPE), "holds 2 networks of a posterior; one can be"),
    (("convert", NET, "a.pt", *SHAPE, "--to", "npz"), "--to npz is not written to a file"),
    (("convert", NET, "words.txt/a.pt", *SHAPE), "words.txt/a.pt: expected to write the file"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_two(capsys, here, arguments, message):
    io.save_tree("net.safetensors", network())
    io.save_posterior("two.safetensors", posteriors.Empirical(tree.stack([network(), network(1)])))
    np.savez("leaves.npz", **tree.named_leaves(network()))
    Path("words.txt").write_text("hello\n")
    whole = Path("net.safetensors").read_bytes()
    Path("damaged.safetensors").write_bytes(whole[:-9] + b"?" + whole[-8:])
    code, _, err = run(capsys, *arguments)
    assert message in err
    assert err.startswith("symbnn")
    assert err.count("\n") == 1
    assert len(err) < 800
    assert code == command.USAGE_ERROR


def test_what_nobody_expected_is_one_line_too_and_debug_shows_where(capsys, monkeypatch):
    def fail(arguments):
        raise RuntimeError("the sky\nfalls")

    monkeypatch.setattr(studies, "run", fail)
    code, _, err = run(capsys, "studies")
    assert code == command.FAILURE
    assert err == (
        "symbnn studies: error: RuntimeError, which nobody expected (--debug shows where): the sky falls\n"
    )
    with pytest.raises(RuntimeError):
        command.main(["studies", "--debug"])


def test_from_a_folder_with_nothing_but_the_users_files(here):
    io.save_tree("net.safetensors", {"Dense_1": network()["hidden"], "Dense_0": network()["out"]})
    shape = ("--input-shape", "5", "--outputs", "3")
    found = in_shell("inspect", "net.safetensors", "--model", "nets_of_a_user:build", *shape, cwd=here)
    assert found.returncode == 0, found.stderr
    assert "Dense_1: 7 units; 1 scale, no signs" in found.stdout
    assert "verified: outputs unchanged" in found.stdout
    refused = in_shell("inspect", "net.safetensors", "--model", "nets_of_a_user:whole", cwd=here)
    assert refused.returncode == command.USAGE_ERROR
    assert "missing leaves ['hidden/bias'" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_reader_that_has_seen_enough_is_no_error(here):
    io.save_tree("net.safetensors", network())
    line = f"{sys.executable} -m symbnn studies | head -1"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(["bash", "-c", line], cwd=here, env=environment, capture_output=True, text=True)
    assert ended.stdout.count("\n") == 1
    assert ended.stderr == ""
