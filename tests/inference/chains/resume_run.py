"""A run in a process of its own, which tests may kill: `python -m tests.resume_run STORE RESULT`."""

import sys
import time

import jax
import numpy as np

from symbnn import inference
from symbnn.io import ChunkStore
from tests.inference.cases import conjugate

NUM_CHUNKS = 24
SETTINGS = {"num_chains": 3, "num_burnin": 4, "step_size": 0.03, "num_steps": 3, "chunk_size": 2}


def run(store, *, num_samples=2 * NUM_CHUNKS - 4, **settings):
    """The run that is stopped, resumed, damaged; `num_samples` makes `NUM_CHUNKS` chunks with the burn-in."""
    method = inference.hmc(**SETTINGS, num_samples=num_samples, sink=store, **settings)
    return method(jax.random.key(7), conjugate().target)


if __name__ == "__main__":
    fit = run(ChunkStore(sys.argv[1]), progress=lambda report: time.sleep(0.03))
    np.save(sys.argv[2], np.asarray(fit.posterior.samples["out"]["kernel"]))
