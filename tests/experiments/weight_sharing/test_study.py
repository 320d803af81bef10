"""The weight sharing study: stages one by one, imported weights, variants, large networks."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import configs
from configs.parts import Data
from configs.weight_sharing.parts import STAGES
from configs.weight_sharing.variants import CHANGES
from experiments.common import problem as common_problem
from experiments.common.problem import create
from experiments.weight_sharing import stages, study
from experiments.weight_sharing.imports import import_weights
from experiments.weight_sharing.stages import load_problem
from experiments.weight_sharing.variants import changed
from symbnn import data, evaluate, io, keys, models, sharing
from symbnn.data import Split

CONFIGS = configs.STUDIES["weight_sharing"].configs
DEBUG = CONFIGS["debug"][1]


def with_stages(*stages: str):
    return dataclasses.replace(DEBUG, stages=stages)


def test_a_stage_that_is_missing_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"stage 'pretrain' has not run in .* add it to --stages"):
        study.run(with_stages("gmm"), tmp_path)
    with pytest.raises(ValueError, match="--stages: expected some of"):
        study.run(with_stages(), tmp_path)


@pytest.mark.slow
def test_stages_run_one_by_one_and_the_file_predicts_what_the_posterior_does(tmp_path, capsys):
    assert study.run(with_stages("pretrain", "stochastic"), tmp_path) is None
    assert "gmm is next" in capsys.readouterr().out
    assert study.run(with_stages("gmm", "refine"), tmp_path) is None
    capsys.readouterr()
    table = study.run(with_stages("train", "evaluate"), tmp_path)
    out = capsys.readouterr().out
    assert out.count(": reused") == 4
    columns = ("deterministic", "stochastic", "2DGBNN__untrained", "2DGBNN")
    predicted = {f"predictions_{name}" for name in columns}
    assert {path.stem for path in (tmp_path / "stages").iterdir()} == {*STAGES, *predicted}
    assert table.columns[-1] == "2DGBNN"
    problem = load_problem(DEBUG, 0)
    shared, _ = sharing.load(tmp_path / "shared.safetensors", model=problem.model)
    draw_keys = keys.indexed(keys.named(problem.key, "draws"), 0, 4)
    probs = [
        evaluate.predict(problem.model.apply, shared.sample(key, 1), problem.inputs) for key in draw_keys
    ]
    accuracy = float(evaluate.accuracy(sum(probs) / 4, problem.labels))
    row = next(row for row in table.rows if row.name == "accuracy")
    assert accuracy == pytest.approx(row.cells[-1].value, abs=1e-6)


def test_stages_are_no_part_of_what_a_run_is():
    assert with_stages("gmm") == DEBUG
    assert dataclasses.replace(DEBUG, seed=1) != DEBUG


def test_variants_change_what_they_say_and_nothing_else():
    base = CONFIGS["digits"][1]
    assert set(base.judging.variants) < set(CHANGES)
    # One order is that of the one config, the other that of the other.
    another = CONFIGS["cifar10_resnet20_pretrained"][1]
    assert set(another.judging.counted) < set(CHANGES)
    for name in CHANGES:
        pairs = [(each, changed(each, name)) for each in (base, another)]
        assert any(before != after for before, after in pairs), name
        for before, after in pairs:
            parts = {part: getattr(before, part) for part in ("clustering", "refining", "training")}
            assert dataclasses.replace(after, **parts) == before, name
    assert changed(base, "neither").clustering.magnitude == math.inf
    with pytest.raises(ValueError, match="unknown variant 'no outlier'; did you mean 'no outliers'"):
        changed(base, "no outlier")


def test_a_users_own_weights_are_imported(tmp_path):
    model = models.lenet((28, 28, 1), 10)
    params = model.init(jax.random.key(0))
    io.save_tree(tmp_path / "ours.safetensors", params)
    io.save_tree(tmp_path / "stage.safetensors", {"params": params, "losses": np.zeros(2)})
    io.save_safetensors(tmp_path / "torch.safetensors", io.to_torch(model, params, "lenet"))
    for name in ("ours", "stage", "torch"):
        found = import_weights(model, "lenet", str(tmp_path / f"{name}.safetensors"))
        assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), found, params)), name
    params["out"]["bias"] = params["out"]["bias"].at[3].set(jnp.nan)
    io.save_tree(tmp_path / "bad.safetensors", params)
    with pytest.raises(ValueError, match=r"leaf 'out/bias' of .* has non-finite numbers"):
        import_weights(model, "lenet", str(tmp_path / "bad.safetensors"))
    with pytest.raises(ValueError, match=r"pretraining\.weights: .*absent.*found nothing"):
        import_weights(model, "lenet", str(tmp_path / "absent.safetensors"))


def test_weights_of_another_network_are_refused_before_training(tmp_path):
    params = models.mlp((64,), 10, hidden=(5,)).init(jax.random.key(0))
    io.save_tree(tmp_path / "ours.safetensors", params)
    settings = dataclasses.replace(DEBUG.pretraining, weights=str(tmp_path / "ours.safetensors"))
    with pytest.raises(ValueError, match=r"pretraining.weights: .* leaf 'hidden/bias' has shape \(5,\)"):
        study.run(dataclasses.replace(DEBUG, pretraining=settings), tmp_path / "run")


def test_thresholds_that_leave_nothing_name_the_stage():
    params = load_problem(DEBUG, 0).model.init(jax.random.key(0))
    layout = sharing.layout_of(params)
    num = layout.num_weights
    network = sharing.Stochastic(params, np.full(num, 0.03), layout, np.zeros(1))
    stochastic = {"network": network, "gradients": np.ones(num)}
    for changes, message in (
        ({"magnitude": 1e-9}, "outliers: all 1184 weights"),
        ({"magnitude": 1e9, "gradient_share": 0.0}, "outliers: found none in 1184 weights"),
        ({"num_components": 5000}, "num_components must be between 1 and .*; got 5000"),
    ):
        config = dataclasses.replace(DEBUG, clustering=dataclasses.replace(DEBUG.clustering, **changes))
        problem = load_problem(config, 0)
        with pytest.raises(ValueError, match=message):
            stages.cluster(problem, config, stochastic)


def test_held_out_images_take_the_place_of_the_test_set():
    config = dataclasses.replace(DEBUG, judging=dataclasses.replace(DEBUG.judging, holdout=30))
    held = load_problem(config, 0)
    assert held.target.num_data == 170
    np.testing.assert_array_equal(held.labels, load_problem(DEBUG, 0).target.data.targets[-30:])


def test_statistics_follow_the_batches_until_the_network_is_trained():
    """Frozen from the start they would be those of no data: zeros and ones, which normalise nothing."""
    config = dataclasses.replace(CONFIGS["cifar10_resnet20"][1], data=DEBUG.data)
    problem = load_problem(config, 0)
    assert problem.model.train is not None
    assert problem.target.model.train is not None
    later = stages.after_stage_0(problem)
    assert later.model.train is None
    assert later.target.model.train is None
    assert later.target.num_data == problem.target.num_data
    running = dataclasses.replace(config, model=dataclasses.replace(config.model, statistics="running"))
    assert stages.after_stage_0(load_problem(running, 0)).model.train is not None


SHAPES = {"cifar10": ((32, 32, 3), 10), "cifar100": ((32, 32, 3), 100), "imagenet": ((224, 224, 3), 1000)}
LARGE = [name for name in CONFIGS if CONFIGS[name][1].data.name in SHAPES]


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_networks_of_the_papers_rows_build(name):
    config = CONFIGS[name][1]
    shape, num_classes = SHAPES[config.data.name]
    model = create(config.model.name, shape, num_classes, width=config.model.width)
    layout = sharing.layout_of(jax.eval_shape(model.init, jax.random.key(0)))
    millions = {"resnet20": 0.27, "resnet18": 11.2, "resnet50": 25.5, "wrn28_10": 36.5, "vit_b16": 86.3}
    assert layout.num_weights / 1e6 == pytest.approx(millions[config.model.name], rel=0.07)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_all_stages_run_on_a_few_batches_of_the_right_shape(name, tmp_path, monkeypatch):
    shape, num_classes = SHAPES[CONFIGS[name][1].data.name]
    random = np.random.default_rng(0)

    def load(name, **_):
        split = Split(
            random.normal(size=(8, *shape)).astype(np.float32),
            random.integers(num_classes, size=8).astype(np.int32),
        )
        return data.Dataset(name, split, split, num_classes, shape)

    monkeypatch.setattr(common_problem.data, "load", load)
    # The simulated devices share the examples of a batch, and would each hold the whole network: 19 GB.
    monkeypatch.setattr(jax, "local_devices", lambda: jax.devices()[:1])
    config = CONFIGS[name][1]
    monkeypatch.setenv("SYMBNN_DATA_DIR", str(tmp_path))
    publish(tmp_path, config, shape, num_classes)
    config = dataclasses.replace(
        config,
        data=Data(name=config.data.name),
        pretraining=dataclasses.replace(config.pretraining, epochs=1, batch_size=4),
        stochastic=dataclasses.replace(config.stochastic, epochs=1),
        clustering=dataclasses.replace(
            config.clustering, num_components=64, num_sweeps=1, gradient_batches=2
        ),
        training=dataclasses.replace(config.training, epochs=1),
        judging=dataclasses.replace(
            config.judging, num_draws=2, num_seeds=1, mean_field=False, counted=config.judging.counted[:2]
        ),
    )
    table = study.run(config, tmp_path / "run")
    column = table.columns.index("2DGBNN")
    values = {row.name: row.cells[column].value for row in table.rows}
    assert math.isfinite(values["NLL"])
    assert 1 <= values["Gaussians"] <= 64


def publish(folder, config, shape, num_classes):
    """Networks nobody trained and a reference of eight images, where the config looks, if it does."""
    model = create(config.model.name, shape, num_classes, width=config.model.width)
    for index, name in enumerate(config.pretraining.published):
        path = folder / "pretrained" / name
        path.parent.mkdir(exist_ok=True)
        params = model.init(jax.random.key(index))
        io.save_safetensors(path, io.to_torch(model, params, config.model.name))
    if config.judging.reference:
        path = folder / config.judging.reference
        path.parent.mkdir(exist_ok=True)
        np.save(path, np.full((8, num_classes), 1 / num_classes, np.float32))
