"""A small network whose pre-activations are known, and a batch."""

import jax
import numpy as np

RANDOM = np.random.default_rng(0)
BATCH = (np.float32(RANDOM.normal(size=(37, 4))), RANDOM.integers(0, 3, 37).astype(np.int32))


def preactivations(params, inputs):
    return {"hidden": inputs @ params["hidden"]["kernel"] + params["hidden"]["bias"]}


def apply(params, inputs):
    return jax.nn.relu(preactivations(params, inputs)["hidden"]) @ params["out"]["kernel"]


def network(key):
    keys = jax.random.split(key, 3)
    return {
        "hidden": {"kernel": jax.random.normal(keys[0], (4, 6)), "bias": jax.random.normal(keys[1], (6,))},
        "out": {"kernel": jax.random.normal(keys[2], (6, 3))},
    }
