"""Stopped runs go on, bit for bit: after kill -9, after damage, and never from another run's chunks."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import density, evaluate, inference
from symbnn.inference.storage import fingerprint
from symbnn.io import ChunkStore
from tests.inference.cases import conjugate
from tests.inference.chains.resume_run import NUM_CHUNKS, SETTINGS, run

ROOT = Path(__file__).parents[3]
KEY = jax.random.key(7)
HERE = inference.Placement(devices=jax.devices()[:1])


class Watched:
    """A `ChunkStore` that remembers what was written."""

    def __init__(self, directory):
        self.store, self.written = ChunkStore(directory), []

    def open(self, fingerprint):
        self.store.open(fingerprint)

    def read(self, index):
        return self.store.read(index)

    def write(self, index, chunk):
        self.written.append(index)
        self.store.write(index, chunk)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """(directory of a whole run, its samples)."""
    directory = tmp_path_factory.mktemp("whole")
    sink = Watched(directory)
    fit = run(sink)
    assert sink.written == list(range(NUM_CHUNKS))
    return directory, fit.posterior.samples


def assert_same(samples, expected):
    jax.tree.map(np.testing.assert_array_equal, samples, expected)


def copy(directory, to):
    for file in directory.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    return to


@pytest.mark.slow
def test_only_damaged_chunks_are_computed_again(finished, tmp_path):
    directory, expected = finished
    copy(directory, tmp_path)
    flipped, cut, gone = sorted(tmp_path.glob("chunk-*"))[3:12:4]
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 1
    flipped.write_bytes(bytes(content))
    cut.write_bytes(cut.read_bytes()[:-7])
    gone.unlink()
    sink = Watched(tmp_path)
    with pytest.warns(RuntimeWarning) as warned:
        fit = run(sink)
    messages = [str(warning.message) for warning in warned]
    assert [flipped.name in messages[0], cut.name in messages[1], len(messages)] == [True, True, 2]
    assert sink.written == [3, 7, 11]
    assert len(fit.diagnostics["damaged_chunks"]) == 2
    assert_same(fit.posterior.samples, expected)


def test_a_finished_run_is_read_and_a_longer_one_goes_on(finished, tmp_path):
    directory, expected = finished
    sink = Watched(copy(directory, tmp_path))
    longer = run(sink, num_samples=2 * NUM_CHUNKS)
    assert sink.written == [NUM_CHUNKS, NUM_CHUNKS + 1]
    draws = longer.posterior.by_chain()["out"]["kernel"]
    np.testing.assert_array_equal(draws[:, :-4].reshape(-1, 3, 1), expected["out"]["kernel"])


@pytest.mark.slow
def test_a_longer_run_goes_on_with_default_settings(tmp_path):
    settings = {"num_chains": 2, "num_burnin": 2, "step_size": 0.01, "num_steps": 2, "placement": HERE}
    fits = [
        inference.hmc(**settings, num_samples=num, sink=ChunkStore(tmp_path))(KEY, conjugate().target)
        for num in (3, 5)
    ]
    short, long = (fit.posterior.by_chain()["out"]["kernel"] for fit in fits)
    np.testing.assert_array_equal(long[:, :3], short)


@pytest.fixture
def odd(finished, tmp_path):
    """(sink with a run whose last chunk has two draws, its draws); its samples are kept in the sink."""
    sink = Watched(copy(finished[0], tmp_path))
    return sink, run(ChunkStore(tmp_path), storage=inference.Storage(collect="stored")).posterior


def test_a_shorter_run_reads_a_part_of_the_last_chunk_and_leaves_it_whole(odd, finished):
    sink, long = odd
    draws = finished[1]["out"]["kernel"].reshape(3, -1, 3, 1)
    num = draws.shape[1] - 1
    for storage in (inference.Storage(), inference.Storage(collect="stored")):
        short = run(sink, num_samples=num, storage=storage)
        assert short.diagnostics["log_density"].shape == (3, num)
        networks = short.posterior.samples if storage.collect == "samples" else short.posterior.load()
        np.testing.assert_array_equal(networks["out"]["kernel"], draws[:, :-1].reshape(-1, 3, 1))
    assert sink.written == []
    np.testing.assert_array_equal(long.load()["out"]["kernel"], draws.reshape(-1, 3, 1))


def test_a_shorter_run_of_predictions_leaves_the_last_chunk_of_a_longer_one(tmp_path):
    target, sink = conjugate().target, Watched(tmp_path)
    storage = inference.Storage(collect="predictions", inputs=np.asarray(target.data.inputs))
    settings = {"num_chains": 2, "num_burnin": 2, "step_size": 0.03, "num_steps": 2, "chunk_size": 2}

    def predicted(num, sink=None):
        method = inference.hmc(**settings, num_samples=num, placement=HERE, storage=storage, sink=sink)
        return method(KEY, target).diagnostics["predictions"]

    long = predicted(4, sink)
    np.testing.assert_array_equal(predicted(3, sink), predicted(3))
    assert sink.written == [0, 1, 2]
    np.testing.assert_array_equal(predicted(4, sink), long)


def test_stored_draws_that_were_lost_are_not_made_up(odd):
    sink, posterior = odd
    last = posterior.indices[-1]
    cut = {
        name: array[:, :1] if name.startswith(("draws/", "info/")) else array
        for name, array in sink.read(last).items()
    }
    sink.write(last, cut)
    message = r"hold \d+ draws of every chain, but this run has \d+; run it again"
    for read in (posterior.load, lambda: posterior.sample(KEY, 5), lambda: list(posterior.chunks())):
        with pytest.raises(ValueError, match=message):
            read()


def two_logits(params, inputs):
    return inputs @ params["out"]["kernel"] * jnp.array([1.0, -1.0])


def test_stored_draws_are_read_on_demand(finished):
    directory, expected = finished
    storage = inference.Storage(collect="stored")
    posterior = run(ChunkStore(directory), storage=storage).posterior
    assert isinstance(posterior, inference.Stored)
    assert_same(posterior.load(), expected)
    thinned = posterior.load(every=3)["out"]["kernel"].reshape(3, -1, 3, 1)
    np.testing.assert_array_equal(thinned, expected["out"]["kernel"].reshape(3, -1, 3, 1)[:, ::3])
    drawn = posterior.sample(jax.random.key(0), 9)["out"]["kernel"]
    known = {row.tobytes() for row in np.asarray(expected["out"]["kernel"])}
    assert all(row.tobytes() in known for row in np.asarray(drawn))
    target = conjugate().target
    streamed = evaluate.predict(two_logits, posterior, target.data.inputs)
    np.testing.assert_allclose(
        streamed, evaluate.predict(two_logits, expected, target.data.inputs), rtol=1e-5
    )
    first = jax.tree.map(lambda leaf: leaf[0], expected)
    rows = np.asarray(expected["out"]["kernel"])
    share = np.mean(np.all(rows == rows[0], axis=(1, 2)))
    np.testing.assert_allclose(posterior.log_prob(first), np.log(share), rtol=1e-5)


@pytest.mark.parametrize(
    ("key", "target", "settings", "named"),
    [
        (8, None, {}, "its key is"),
        (7, conjugate(num_data=21).target, {}, "its data is"),
        (7, conjugate(temperature=0.5).target, {}, "its temperature is"),
        (7, None, {"step_size": 0.02}, "its method is"),
        (7, None, {"num_chains": 4}, "its chains is"),
        (7, None, {"thinning": 2}, "its thinning is"),
        (7, None, {"placement": inference.Placement(lanes=1, vmaps_one=False)}, "its lanes is"),
    ],
)
def test_chunks_of_another_run_are_refused(finished, key, target, settings, named):
    directory, _ = finished
    method = inference.hmc(**{**SETTINGS, **settings}, num_samples=4, sink=ChunkStore(directory))
    with pytest.raises(ValueError, match=named):
        method(jax.random.key(key), target or conjugate().target)


@pytest.mark.parametrize("wrap", [lambda apply: apply, jax.jit], ids=["plain", "jit"])
def test_constants_of_the_network_are_part_of_the_run(wrap):
    target = conjugate().target

    def scaled(factors):
        frozen = jnp.asarray(factors, jnp.float32)
        model = target.model._replace(
            apply=wrap(lambda params, inputs: (inputs * frozen) @ params["out"]["kernel"])
        )
        return density.target(model, target.data, likelihood=target.likelihood)

    first, again, other = (fingerprint(KEY, scaled(row), {}) for row in ([1, 2, 3], [1, 2, 3], [1, 2, 4]))
    assert first == again
    assert first["network"] != other["network"]


def test_another_network_is_another_run(finished):
    directory, _ = finished
    target = conjugate().target
    model = target.model._replace(apply=lambda params, inputs: target.model.apply(params, -inputs))
    other = density.target(model, target.data, likelihood=target.likelihood, chunk_size=8)
    with pytest.raises(ValueError, match="its network is"):
        inference.hmc(**SETTINGS, num_samples=4, sink=ChunkStore(directory))(jax.random.key(7), other)


def kill_until_done(directory, num_kills, seed):
    """Samples of a run whose process is killed `num_kills` times at random moments after some progress."""
    random = np.random.default_rng(seed)
    result = directory / "result.npy"
    store = directory / "store"
    command = [sys.executable, "-m", "tests.inference.chains.resume_run", str(store), str(result)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    for kill in range(num_kills):
        process = subprocess.Popen(command, cwd=ROOT, env=environment)
        wanted = (kill + 1) * (NUM_CHUNKS - 1) // (num_kills + 1)
        while len(list(store.glob("chunk-*"))) < wanted and process.poll() is None:
            time.sleep(0.005)
        time.sleep(random.uniform(0, 0.06))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "the run ended before it could be killed"
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return np.load(result)


@pytest.mark.slow
def test_kill_9_changes_no_bit(finished, tmp_path):
    samples = kill_until_done(tmp_path, 2, seed=0)
    np.testing.assert_array_equal(samples, finished[1]["out"]["kernel"])


@pytest.mark.slow
def test_twenty_kills_change_no_bit(finished, tmp_path):
    samples = kill_until_done(tmp_path, 20, seed=1)
    np.testing.assert_array_equal(samples, finished[1]["out"]["kernel"])
