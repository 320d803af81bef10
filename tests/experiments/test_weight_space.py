"""What the studies of pruning, loss barriers and transpositions compute, apart from any training."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import STUDIES
from experiments.common import problem as problems
from experiments.common import weight_ranking, weight_space
from experiments.harness.rundir import borrowed_stage, open_run
from experiments.loss_barriers import study as loss_barriers
from experiments.transpositions import study as transpositions
from symbnn import compact, data, density, evaluate, models, symmetry, tree
from symbnn.inference.epochs import scan_epochs
from symbnn.io import ArtefactError

KEY = jax.random.key(0)


@functools.cache
def problem(hidden: tuple[int, ...] = (12,)) -> weight_space.Problem:
    """Digits and an untrained network."""
    loaded = data.load("digits", flatten=True, num_train=100, num_test=40)
    model = models.mlp(loaded.input_shape, 10, hidden=hidden)
    return weight_space.Problem(KEY, loaded, model, density.Batch(*map(jnp.asarray, loaded.test)))


def two_networks() -> tuple[dict, dict]:
    """Two starts, each with a leading axis of one."""
    starts = jax.jit(jax.vmap(problem().model.init))(jax.random.split(KEY, 2))
    return tree.take(starts, slice(0, 1)), tree.take(starts, slice(1, 2))


@pytest.mark.parametrize("method", ["weights", "activations"])
def test_as_many_transpositions_are_found_as_were_put_in(method):
    """Also where a layer is swapped as far as it goes, and the copies are the same functions."""
    case = problem()
    network = case.model.init(KEY)
    counts = transpositions.swap_counts(case.model.spec, 6)
    assert counts["hidden"].tolist() == [1, 3, 5, 7, 9, 11]
    copies = transpositions.swapped_copies(case.model.spec, KEY, network, counts)
    aligned = problems.align(case, copies, reference=network, method=method)
    np.testing.assert_array_equal(symmetry.number_of_transpositions(aligned.elements), counts["hidden"])
    np.testing.assert_array_equal(weight_space.squared_distances(network, aligned.samples), 0.0)
    assert np.all(np.asarray(weight_space.squared_distances(network, copies)) > 0)
    outputs = jax.vmap(lambda params: case.model.apply(params, case.test.inputs))(copies)
    expected = case.model.apply(network, case.test.inputs)
    np.testing.assert_allclose(outputs, jnp.broadcast_to(expected, outputs.shape), atol=1e-6)


@pytest.mark.slow
def test_several_layers_share_the_transpositions():
    case = problem((6, 4))
    network = case.model.init(KEY)
    counts = transpositions.swap_counts(case.model.spec, 3)
    assert {name: values.tolist() for name, values in counts.items()} == {
        "hidden0": [1, 3, 5],
        "hidden1": [1, 2, 3],
    }
    copies = transpositions.swapped_copies(case.model.spec, KEY, network, counts)
    aligned = symmetry.align(case.model.spec, copies, reference=network)
    np.testing.assert_array_equal(symmetry.number_of_transpositions(aligned.elements), [2, 5, 8])


def test_a_layer_of_one_unit_has_nothing_to_swap(tmp_path):
    config = STUDIES["transpositions"].configs["debug"][1]
    narrow = dataclasses.replace(config, model=dataclasses.replace(config.model, hidden=(8, 1)))
    with pytest.raises(ValueError, match=r"two units a layer to swap, got \(8, 1\)"):
        transpositions.run(narrow, tmp_path)


def test_paths_spread_over_all_values_and_repeat_none():
    config = STUDIES["transpositions"].configs["debug"][1]
    for values, paths in ((16, 5), (3, 5), (2, 1)):
        chosen = transpositions.path_values(dataclasses.replace(config, num_values=values, num_paths=paths))
        assert len(set(chosen.tolist())) == len(chosen) == min(values, paths)
        assert set(chosen.tolist()) <= set(range(values))


def test_the_excess_is_zero_at_both_ends_and_everywhere_between_equal_networks():
    first, second = two_networks()
    found = weight_space.barriers(problem(), first, second, points=5)
    for excess in (found.loss_excess, found.error_excess):
        np.testing.assert_allclose(excess[:, [0, -1]], 0.0, atol=1e-6)
    same = weight_space.barriers(problem(), first, first, points=5)
    np.testing.assert_allclose(same.loss_excess, 0.0, atol=1e-6)


def test_barriers_of_many_pairs_are_those_of_each():
    first, second = two_networks()
    both = weight_space.barriers(
        problem(), tree.concatenate([first, second]), tree.concatenate([second, second]), points=5
    )
    alone = evaluate.barrier(
        problem().model.apply, tree.take(first, 0), tree.take(second, 0), problem().test, points=5
    )
    np.testing.assert_allclose(both.loss[0], alone.loss, rtol=1e-5)
    np.testing.assert_allclose(both.loss_barrier[1], 0.0, atol=1e-6)


def test_each_network_is_matched_to_its_own_partner():
    """Partners that differ by a relabelling only come out equal, so no barrier is left."""
    case = problem()
    first = jax.vmap(case.model.init)(jax.random.split(KEY, 2))
    elements = [
        symmetry.random_element(case.model.spec, key, log_scale=0.0) for key in jax.random.split(KEY, 2)
    ]
    second = tree.stack([symmetry.act(case.model.spec, elements[i], tree.take(first, i)) for i in range(2)])
    config = dataclasses.replace(STUDIES["loss_barriers"].configs["debug"][1], num_pairs=2)
    # By weights: activations do not tell units apart that are silent on every image.
    moved = loss_barriers.match_pairs(config, case, first, second, "weights")
    jax.tree.map(np.testing.assert_array_equal, moved, first)


@pytest.mark.parametrize("epochs", [(2, 1), (1, 1), (1, 3)])
def test_epochs_that_do_not_rise_or_come_too_late_are_refused(epochs, tmp_path):
    config = dataclasses.replace(STUDIES["loss_barriers"].configs["debug"][1], epochs=epochs)
    with pytest.raises(ValueError, match=r"--epochs must rise and end by --training\.num-epochs 2"):
        loss_barriers.run(config, tmp_path)


def test_curves_are_the_accuracy_of_the_pruned_networks():
    """One sort for all levels gives what `compact.prune` gives level by level, ties broken alike."""
    case = problem()
    networks = jax.vmap(case.model.init)(jax.random.split(KEY, 2))
    scores = jax.tree.map(lambda leaf: jnp.round(jnp.abs(leaf), 1), networks)
    curves = weight_ranking.accuracy_curves(
        case.model.apply, networks, scores, weight_ranking.LEVELS, case.test.inputs, case.test.targets
    )
    for index in range(2):
        for level, found in zip(weight_ranking.LEVELS, curves[index], strict=True):
            pruned = compact.prune(tree.take(networks, index), tree.take(scores, index), float(level))
            outputs = case.model.apply(pruned, case.test.inputs)
            expected = jnp.mean(jnp.argmax(outputs, axis=-1) == case.test.targets)
            np.testing.assert_allclose(found, expected, atol=1e-6)


def test_pruning_looks_at_the_posteriors_of_table_one():
    """The same data, network, sampler and seed under the same name."""
    for name, (_, config) in STUDIES["pruning"].configs.items():
        other = STUDIES["compact_posterior"].configs[name][1]
        for part in ("data", "model", "inference", "ensemble", "variational", "compact", "seed"):
            assert getattr(config, part) == getattr(other, part)


@pytest.mark.slow
@pytest.mark.parametrize("study", [loss_barriers, transpositions])
def test_the_papers_settings_start_and_stop(study, tmp_path, monkeypatch):
    """Full size up to the first compiled chunk of epochs: built, not run, and nothing half-done is kept."""
    sizes = {"train": 60_000, "test": 10_000}
    splits = {
        part: data.Split(np.zeros((num, 784), np.float32), np.zeros(num, np.int32))
        for part, num in sizes.items()
    }
    loaded = data.Dataset("mnist", splits["train"], splits["test"], 10, (784,))
    monkeypatch.setattr(problems.data, "load", lambda *_, **__: loaded)

    def build_and_stop(*arguments):
        assert "dot_general" in scan_epochs.lower(*arguments).as_text()
        raise KeyboardInterrupt

    monkeypatch.setattr("symbnn.inference.training.advance", build_and_stop)
    name = study.__name__.removeprefix("experiments.")
    with pytest.raises(KeyboardInterrupt):
        study.run(STUDIES[name].configs["mnist"][1], tmp_path)
    assert (tmp_path / "run.json").exists()
    assert not list(tmp_path.glob("stages/*"))


def test_a_run_lends_its_stages_to_a_run_of_the_same_settings_only(tmp_path):
    config = STUDIES["compact_posterior"].configs["debug"][1]
    with open_run("compact_posterior", config, tmp_path / "lender") as lender:
        lender.stage("hmc", lambda: {"samples": jnp.arange(3.0)})
    borrower = STUDIES["pruning"].configs["debug"][1]
    found = borrowed_stage(tmp_path / "lender", "compact_posterior", borrower, "hmc")
    assert found["samples"].tolist() == [0.0, 1.0, 2.0]
    other = dataclasses.replace(borrower, seed=1)
    with pytest.raises(ValueError, match=r"cannot lend its hmc: there seed is 0, here 1"):
        borrowed_stage(tmp_path / "lender", "compact_posterior", other, "hmc")
    with pytest.raises(ValueError, match="there study is compact_posterior, here pruning"):
        borrowed_stage(tmp_path / "lender", "pruning", borrower, "hmc")
    with pytest.raises(ValueError, match="holds no run"):
        borrowed_stage(tmp_path / "nobody", "compact_posterior", borrower, "hmc")
    with pytest.raises(ArtefactError, match="ensemble"):
        borrowed_stage(tmp_path / "lender", "compact_posterior", borrower, "ensemble")
