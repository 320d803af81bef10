"""Trainings that were killed go on from their last epoch and end bit for bit as if they had not been."""

import functools
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import optax
import optax.contrib
import pytest

from symbnn import density, inference, io, models, sharing
from symbnn.inference.training import epochs, train
from symbnn.inference.training.recipe import Recipe, optimizer_checksum
from tests.inference.cases import small_network
from tests.inference.training.training_run import EPOCHS, run

ROOT = Path(__file__).parents[3]
KEY = jax.random.key(0)


def start(tmp_path: Path) -> subprocess.Popen:
    command = [
        sys.executable,
        "-m",
        "tests.inference.training.training_run",
        tmp_path / "store",
        tmp_path / "end.npz",
    ]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ)


@pytest.mark.slow
def test_a_training_killed_at_five_moments_ends_as_the_uninterrupted_one(tmp_path):
    """The child sleeps 0.2 s after every epoch, so a delay falls into the sleep, the steps or the writing."""
    told: list[int] = []
    for delay in (0.0, 0.1, 0.19, 0.24, 0.3):
        with start(tmp_path) as child:
            told.append(int(child.stdout.readline()))
            time.sleep(delay)
            child.send_signal(signal.SIGKILL)
        assert not (tmp_path / "end.npz").exists()
    # A process that is started again goes on where the one before was, or an epoch later if that was written.
    assert all(before < after <= before + 2 for before, after in itertools.pairwise(told))
    (tmp_path / "whole").mkdir()
    for folder, first in ((tmp_path, told[-1] + 1), (tmp_path / "whole", 1)):
        with start(folder) as child:
            epochs = [int(line) for line in child.stdout]
        assert epochs in (list(range(first, EPOCHS + 1)), list(range(first + 1, EPOCHS + 1)))
    ends = [np.load(folder / "end.npz") for folder in (tmp_path, tmp_path / "whole")]
    assert ends[0].files == ends[1].files
    for name in ends[0].files:
        np.testing.assert_array_equal(ends[0][name], ends[1][name])


class Stopped(Exception):
    """Raised by a progress callback."""


def stop_at(done: int):
    def progress(report):
        if report.stage != "pretraining" and report.done == done:
            raise Stopped

    return progress


@functools.cache
def target() -> density.Target:
    return density.target(models.mlp((5,), 3, hidden=(4,)), small_network()[1])


def shared_stages(progress, checkpoint):
    """Stages 0 and 1 of sharing."""
    settings = {"progress": progress, "checkpoint": checkpoint}
    network, losses = sharing.pretrain(KEY, target(), Recipe(2, 8), checkpoint=checkpoint)
    return losses, sharing.train_stochastic(KEY, target(), Recipe(4, 8), initial=network, **settings).params


BY_LOSS = optax.chain(optax.adam(1e-2), optax.contrib.reduce_on_plateau(patience=1))
TRAINERS = {
    "variational": lambda **settings: inference.variational(epochs=4, batch_size=8, **settings),
    "swag": lambda **settings: inference.swag(
        rank=2, epochs=4, pretrain_epochs=2, batch_size=8, optimizer=optax.adam(1e-2), **settings
    ),
    "dropout": lambda **settings: inference.dropout(epochs=4, batch_size=8, masks_per_batch=2, **settings),
    "variational by its loss": lambda **settings: inference.variational(
        epochs=4, batch_size=8, optimizer=BY_LOSS, **settings
    ),
    "multi-swag": lambda **settings: inference.multimode(
        inference.swag(rank=2, epochs=4, pretrain_epochs=0, batch_size=8, **settings),
        members=inference.ensemble(num_members=2, epochs=2, batch_size=8),
    ),
    "sharing": lambda progress=None, checkpoint=None: lambda key, _: shared_stages(progress, checkpoint),
}


@pytest.mark.parametrize("name", TRAINERS)
def test_every_trainer_goes_on_bit_for_bit(name, tmp_path):
    whole = TRAINERS[name]()(KEY, target())
    store = io.TrainingStore(tmp_path)
    with pytest.raises(Stopped):
        TRAINERS[name](progress=stop_at(2), checkpoint=store)(KEY, target())
    reports = []
    resumed = TRAINERS[name](progress=reports.append, checkpoint=store)(KEY, target())
    assert [report.done for report in reports] == [3, 4]
    jax.tree.map(np.testing.assert_array_equal, resumed, whole)


@pytest.mark.parametrize("begins_on_host", [True, False])
def test_a_training_goes_on_under_the_other_loop(begins_on_host, tmp_path, monkeypatch):
    """As one that began on a CPU and ends on an accelerator, where sixty epochs are cut into threes."""

    def fit(on_host, **settings):
        for module in (train, epochs):
            monkeypatch.setattr(module, "steps_on_host", lambda *_: on_host)
        method = inference.ensemble(num_members=1, epochs=60, snapshots=(30, 60), batch_size=20, **settings)
        return method(KEY, target())

    whole, store, reports = fit(False), io.TrainingStore(tmp_path), []
    with pytest.raises(Stopped):
        fit(begins_on_host, progress=stop_at(1 if begins_on_host else 3), checkpoint=store)
    resumed = fit(not begins_on_host, progress=reports.append, checkpoint=store)
    assert reports[0].done == (3 if begins_on_host else 4)
    assert reports[-1].done == 60
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), resumed, whole)


def test_the_training_before_laplace_is_read_back(tmp_path):
    def fit(progress=None):
        store = io.TrainingStore(tmp_path)
        method = inference.laplace(pretrain_epochs=3, batch_size=8, progress=progress, checkpoint=store)
        return method(KEY, target())

    first, reports = fit(), []
    jax.tree.map(np.testing.assert_array_equal, fit(reports.append), first)
    assert not reports


def test_stochastic_gradient_chains_go_on_from_their_chunks_and_redo_a_damaged_one(tmp_path):
    def fit(progress=None, **settings):
        method = inference.sgmcmc(
            num_samples=4,
            step_size=1e-3,
            num_burnin=5,
            thinning=2,
            batch_size=8,
            progress=progress,
            **settings,
        )
        return method(KEY, target())

    sink = io.ChunkStore(tmp_path)
    with pytest.raises(Stopped):
        fit(stop_at(3), sink=sink)
    whole = fit()
    jax.tree.map(np.testing.assert_array_equal, fit(sink=sink), whole)
    chunk = sorted(tmp_path.glob("chunk-*"))[1]
    chunk.write_bytes(chunk.read_bytes()[:-7])
    with pytest.warns(RuntimeWarning, match=f"Chunk 1 is computed again: .*{chunk.name}"):
        jax.tree.map(np.testing.assert_array_equal, fit(sink=sink), whole)
    with pytest.raises(ValueError, match="belongs to another run: its method"):
        fit(sink=sink, friction=1.0)


def test_epochs_on_the_host_are_kept_one_by_one(tmp_path):
    reports = []
    run(io.TrainingStore(tmp_path, keep=3), reports.append)
    assert [report.done for report in reports] == list(range(1, EPOCHS + 1))
    assert sorted(int(path.name) for path in (tmp_path / "ensemble-0").iterdir()) == [6, 7, 8]


OPTIMIZERS = {
    "adam": lambda: optax.adam(1e-3),
    "faster": lambda: optax.adam(1.000001e-3),
    "other moments": lambda: optax.adam(1e-3, b1=0.8),
    "cosine": lambda: optax.adam(optax.cosine_decay_schedule(1e-3, 100)),
    "longer": lambda: optax.adam(optax.cosine_decay_schedule(1e-3, 101)),
    "steps": lambda: optax.sgd(optax.piecewise_constant_schedule(0.1, {50: 0.1})),
    "later": lambda: optax.sgd(optax.piecewise_constant_schedule(0.1, {60: 0.1})),
    "by leaf": lambda: optax.multi_transform(
        {"a": optax.sgd(0.1), "b": optax.adamw(1e-3)}, {"hidden": "a", "out": "b"}
    ),
}
PLATEAUS = {
    "plateau": {},
    "more patience": {"patience": 11},
    "another share": {"rtol": 1.01e-4},
    "another step": {"atol": 1e-7},
}
OPTIMIZERS |= {
    name: lambda settings=settings: optax.chain(
        optax.adam(1e-3), optax.contrib.reduce_on_plateau(**{"atol": 0.0, **settings})
    )
    for name, settings in PLATEAUS.items()
}
SHAPES = {"hidden": np.zeros((3, 4), np.float32), "out": np.zeros(4, np.float32)}


def test_an_optimiser_is_known_by_what_it_does_in_every_process():
    """The same checksum in another process, and another one for every other optimiser."""
    here = [optimizer_checksum(make(), SHAPES) for make in OPTIMIZERS.values()]
    assert len(set(here)) == len(OPTIMIZERS)
    program = (
        "from tests.inference.training import test_training_resume as t\n"
        "padding = [object() for _ in range(100_000)]\n"
        "print(*(t.optimizer_checksum(make(), t.SHAPES) for make in t.OPTIMIZERS.values()), sep='\\n')\n"
        "try: t.inference.ensemble(num_members=2, optimizer='adam')\n"
        "except ValueError as error: print(error)"
    )
    command = [sys.executable, "-c", program]
    there = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    assert there[:-1] == here
    # Without the tests' shape checking, which would be first to notice.
    assert there[-1].startswith("optimizer must be an optax.GradientTransformation, for instance optax.adam")
