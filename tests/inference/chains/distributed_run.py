"""One of two: `python -m tests.distributed_run RESULT STORE` with the cluster in the environment."""

import sys

import jax
import numpy as np

from symbnn import density, inference
from symbnn.inference import distributed
from symbnn.io import ChunkStore
from tests.inference.cases import small_network

SETTINGS = {
    "num_chains": 5,
    "num_samples": 3,
    "num_burnin": 2,
    "step_size": 0.05,
    "num_steps": 3,
    "chunk_size": 1,
}


def run(**settings):
    """The run that both processes make together, and a test makes alone."""
    model, batch = small_network()
    target = density.target(model, batch, chunk_size=8)
    return inference.hmc(**SETTINGS, **settings)(jax.random.key(3), target)


if __name__ == "__main__":
    distributed.start()
    rank = jax.process_index()
    mapped = run(sink=ChunkStore(f"{sys.argv[2]}-{rank}"))
    everything = distributed.gather(mapped)
    sharded = distributed.gather(run(placement=inference.Placement(data_shards=4)))
    np.savez(
        f"{sys.argv[1]}-{rank}.npz",
        own=mapped.posterior.samples["hidden"]["kernel"],
        chains=mapped.diagnostics["chains"],
        all=everything.posterior.samples["hidden"]["kernel"],
        acceptance=everything.diagnostics["acceptance"],
        sharded=sharded.posterior.samples["hidden"]["kernel"],
    )
