"""Two processes with two devices each, over gloo: the chains of one process, bit for bit."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from symbnn.inference import distributed
from tests.inference.chains.distributed_run import run

ROOT = Path(__file__).parents[3]


def free_port():
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def start_process(rank, port, directory):
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
        "JAX_NUM_CPU_DEVICES": "2",
        "SYMBNN_COORDINATOR": f"localhost:{port}",
        "SYMBNN_NUM_PROCESSES": "2",
        "SYMBNN_PROCESS": str(rank),
    }
    files = [str(directory / name) for name in ("result", "store")]
    command = [sys.executable, "-m", "tests.inference.chains.distributed_run", *files]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    directory, port = tmp_path_factory.mktemp("processes"), free_port()
    processes = [start_process(rank, port, directory) for rank in range(2)]
    errors = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(errors)
    return [np.load(directory / f"result-{rank}.npz") for rank in range(2)], directory


def test_two_processes_draw_what_one_draws(results):
    (first, second), directory = results
    alone = run()
    expected = np.asarray(alone.posterior.samples["hidden"]["kernel"])
    by_chain = expected.reshape(5, 3, *expected.shape[1:])
    for result in (first, second):
        own = result["own"].reshape(-1, *by_chain.shape[1:])
        np.testing.assert_array_equal(own, by_chain[result["chains"]])
        np.testing.assert_array_equal(result["all"], expected)
        np.testing.assert_allclose(result["sharded"], expected, rtol=1e-3, atol=1e-3)
        # Gathering goes through JAX, in float32; the host counts in float64.
        np.testing.assert_allclose(result["acceptance"], alone.diagnostics["acceptance"], rtol=1e-6)
    assert sorted([*first["chains"], *second["chains"]]) == list(range(5))
    assert all(len(list((directory / f"store-{rank}").glob("chunk-*"))) == 5 for rank in range(2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"coordinator": "localhost:1"}, "or none of them; missing.*SYMBNN_NUM_PROCESSES"),
        ({"coordinator": "localhost:1", "num_processes": 2, "process": 2}, r"process must be in \[0, 2\)"),
    ],
)
def test_half_a_cluster_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        distributed.start(**settings)
