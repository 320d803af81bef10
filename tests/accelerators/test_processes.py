"""Four processes with a device each give the chains of one process, bit for bit."""

import numpy as np
import pytest

from tests.inference.chains import test_distributed as two
from tests.inference.chains.distributed_run import run

NUMBER = 4


@pytest.mark.slow
def test_four_processes_draw_what_one_draws(tmp_path, monkeypatch):
    started, port = two.subprocess.Popen, two.free_port()

    def one_of_four(command, *, env, **settings):
        changed = {"SYMBNN_NUM_PROCESSES": str(NUMBER), "JAX_NUM_CPU_DEVICES": "1"}
        return started(command, env=env | changed, **settings)

    monkeypatch.setattr(two.subprocess, "Popen", one_of_four)
    processes = [two.start_process(rank, port, tmp_path) for rank in range(NUMBER)]
    errors = [process.communicate(timeout=600)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * NUMBER, "\n".join(errors)
    expected = np.asarray(run().posterior.samples["hidden"]["kernel"])
    for rank in range(NUMBER):
        np.testing.assert_array_equal(np.load(tmp_path / f"result-{rank}.npz")["all"], expected)
