"""A small network whose pre-activations are known, a batch, and a small residual network with norms."""

import jax
import numpy as np
from flax import linen as nn

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


class ResidualNorms(nn.Module):
    """Convolution and BatchNorm, two residual blocks of the same, average, dense."""

    @nn.compact
    def __call__(self, x, train=False):
        for index in range(3):
            y = nn.Conv(4, (3, 3), name=f"conv{index}")(x)
            y = nn.BatchNorm(use_running_average=not train, name=f"norm{index}")(y)
            x = nn.relu(y) if index == 0 else nn.relu(x + y)
        return nn.Dense(3, name="out")(x.mean((1, 2)))
