"""Joining the fits of several processes, played by threads that meet at every exchange."""

import threading

import jax
import numpy as np

from symbnn.inference import distributed
from symbnn.inference.base import Fit
from symbnn.posteriors import Empirical

DRAWS = 2


def fit_of(chains, prediction, verdict):
    weights = np.repeat(np.array(chains, np.float32), DRAWS)[:, None]
    diagnostics = {
        "chains": np.array(chains),
        "acceptance": np.array(chains) / 10,
        "predictions": np.full((len(chains), 2), prediction, np.float32),
        "verdict": verdict,
    }
    return Fit(Empirical({"w": weights}, num_chains=len(chains)), diagnostics)


def gather_all(fits, monkeypatch):
    """`gather` of every fit, each in a process of its own."""
    barrier, slots, rank = threading.Barrier(len(fits), timeout=30), [None] * len(fits), threading.local()
    results = list(slots)

    def process_allgather(array):
        slots[rank.value] = array
        barrier.wait()
        gathered = np.stack(slots)
        barrier.wait()
        return gathered

    def process(index):
        rank.value = index
        results[index] = distributed.gather(fits[index])

    monkeypatch.setattr(jax, "process_count", lambda: len(fits))
    monkeypatch.setattr(distributed.multihost_utils, "process_allgather", process_allgather)
    threads = [threading.Thread(target=process, args=(index,)) for index in range(len(fits))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.undo()
    return results


def test_predictions_are_weighted_by_chains_and_no_trouble_is_lost(monkeypatch):
    """Both processes predict as many inputs as they have chains, so shapes cannot tell the two apart."""
    one, other = fit_of([0, 2], 1.0, "ok"), fit_of([1, 3], 0.0, "chain 3: trouble")
    for fit in gather_all([one, other], monkeypatch):
        assert fit.posterior.samples["w"][:, 0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
        assert fit.diagnostics["acceptance"].tolist() == [0.0, 0.1, 0.2, 0.3]
        np.testing.assert_array_equal(fit.diagnostics["predictions"], np.full((2, 2), 0.5))
        assert fit.diagnostics["verdict"] == "chain 3: trouble"


def test_processes_with_different_numbers_of_chains(monkeypatch):
    one, other = fit_of([0, 2, 3], 1.0, "ok"), fit_of([1], 0.0, "ok")
    for fit in (one, other):
        fit.diagnostics["predictions"] = np.resize(fit.diagnostics["predictions"], (2, 2))
    for fit in gather_all([one, other], monkeypatch):
        np.testing.assert_array_equal(fit.diagnostics["predictions"], np.full((2, 2), 0.75))
        assert fit.diagnostics["verdict"] == "ok"
