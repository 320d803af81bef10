"""What users bring to weight sharing: networks of other programs, data of other kinds, files gone bad."""

import dataclasses
import math
from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import configs
from experiments.harness.stages import CLASSES
from experiments.weight_sharing import study
from experiments.weight_sharing.imports import import_weights
from experiments.weight_sharing.stages import load_problem
from symbnn import io, sharing
from symbnn.inference.training.recipe import Recipe

DEBUG = configs.STUDIES["weight_sharing"].configs["debug"][1]


def changed(config=DEBUG, **parts):
    """The config with some settings of some parts replaced."""
    return dataclasses.replace(
        config,
        **{
            name: dataclasses.replace(getattr(config, name), **settings)
            if isinstance(settings, dict)
            else settings
            for name, settings in parts.items()
        },
    )


@pytest.fixture(scope="module")
def problem():
    return load_problem(DEBUG, 0)


@pytest.fixture
def imported(problem, tmp_path):
    """A config whose Stage 0 is a file in PyTorch's layout, with the network in it."""
    params = problem.model.init(jax.random.key(7))
    path = tmp_path / "weights.safetensors"
    io.save_safetensors(path, io.to_torch(problem.model, params, "mlp"))
    return changed(pretraining={"weights": str(path)}), params


def test_imported_weights_are_stage_zero(imported, tmp_path, capsys):
    config, params = imported
    run = tmp_path / "run"
    assert study.run(changed(config, stages=("pretrain",)), run) is None
    assert "stochastic is next" in capsys.readouterr().out
    kept, _ = io.load_tree(run / "stages" / "pretrain.safetensors")
    jax.tree.map(np.testing.assert_array_equal, kept["params"], params)


@pytest.mark.parametrize("harm", ["cut", "foreign", "of another stage"])
def test_a_bad_file_of_an_earlier_stage_is_named_with_the_remedy(imported, tmp_path, capsys, harm):
    config, params = imported
    run = tmp_path / "run"
    study.run(changed(config, stages=("pretrain",)), run)
    path = run / "stages" / "pretrain.safetensors"
    if harm == "cut":
        path.write_bytes(path.read_bytes()[:-50])
    elif harm == "foreign":
        io.save_tree(path, {"params": params}, {"stage": "pretrain", "run": "another"})
    else:
        tree_there, metadata = io.load_tree(path)
        io.save_tree(path, tree_there, {**metadata, "stage": "gmm"})
    with pytest.raises(
        ValueError, match=r"stage 'pretrain' .* is damaged or of another run; add it to --stages"
    ):
        study.run(changed(config, stages=("stochastic",)), run)
    assert str(path) in capsys.readouterr().out


def test_a_run_of_other_settings_is_not_gone_on_with(imported, tmp_path):
    config, _ = imported
    study.run(changed(config, stages=("pretrain",)), tmp_path / "run")
    other = changed(config, stages=("stochastic",), clustering={"magnitude": 0.3})
    with pytest.raises(
        ValueError, match=r"clustering.magnitude was 0.2 and is now 0.3; choose another --rundir"
    ):
        study.run(other, tmp_path / "run")


@pytest.mark.slow
def test_a_diverged_training_names_its_stage(problem):
    recipe = Recipe(1, 50, optax.sgd(1e30))
    with (
        pytest.warns(RuntimeWarning, match="pretraining: 1 of 1 members met a non-finite loss"),
        pytest.raises(
            ValueError,
            match="pretraining: the loss ended at nan; try an optimizer",
        ),
    ):
        sharing.pretrain(jax.random.key(0), problem.target, recipe)


@pytest.mark.slow
def test_merging_again_in_training_leaves_fewer_components_and_the_same_outliers(imported, tmp_path):
    config, _ = imported
    again = {"epochs": 3, "merge_every": 1}
    config = changed(config, training=again, refining={"distance": 1e-3}, clustering={"num_components": 30})
    study.run(changed(config, stages=("pretrain", "stochastic", "gmm", "refine", "train")), tmp_path / "run")
    refined, trained = (
        io.load_tree(tmp_path / "run" / "stages" / f"{name}.safetensors", classes=CLASSES)[0]
        for name in ("refine", "train")
    )
    shared = trained["shared"]
    assert trained["losses"].shape == (3,)
    assert 1 <= len(shared.means) <= len(refined.mixture.means)
    assert shared.labels.max() < len(shared.means)
    np.testing.assert_array_equal(shared.outlier_indices, np.flatnonzero(refined.labels < 0))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(shared))


# PyTorch's own files


def network(nn):
    layers = {"fc1": nn.Linear(64, 16), "relu": nn.ReLU(), "fc2": nn.Linear(16, 10)}
    return nn.Sequential(OrderedDict(layers))


def test_a_state_dict_of_pytorch_is_stage_zero(problem, tmp_path):
    torch = pytest.importorskip("torch")
    module = network(torch.nn)
    inputs = np.random.default_rng(0).uniform(size=(5, 64)).astype(np.float32)
    with torch.no_grad():
        expected = module(torch.from_numpy(inputs)).numpy()
    torch.save(module.state_dict(), tmp_path / "plain.pt")
    torch.save({"epoch": 3, "state_dict": module.state_dict()}, tmp_path / "training.pth")
    for name in ("plain.pt", "training.pth"):
        config = changed(pretraining={"weights": str(tmp_path / name)}, stages=("pretrain",))
        study.run(config, tmp_path / f"run of {name}")
        kept, _ = io.load_tree(tmp_path / f"run of {name}" / "stages" / "pretrain.safetensors")
        found = problem.model.apply(kept["params"], jnp.asarray(inputs))
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_files_that_are_no_state_dict_are_named_and_run_no_code(problem, tmp_path):
    torch = pytest.importorskip("torch")
    whole = tmp_path / "module.pt"
    torch.save(torch.nn.Linear(2, 2), whole)
    cut = tmp_path / "cut.pt"
    cut.write_bytes(whole.read_bytes()[:100])
    numbers = tmp_path / "numbers.pt"
    torch.save({"weight": 3.0}, numbers)
    wrong = tmp_path / "nan.pt"
    state = network(torch.nn).state_dict()
    torch.save(state | {"fc1.bias": torch.full((16,), math.nan)}, wrong)
    for path in (whole, cut, numbers):
        with pytest.raises(
            ValueError, match=rf"pretraining.weights: .*{path.name}: expected a PyTorch state dict"
        ):
            import_weights(problem.model, "mlp", str(path))
    with pytest.raises(ValueError, match=r"leaf 'hidden/bias' of .* has non-finite numbers"):
        import_weights(problem.model, "mlp", str(wrong))
