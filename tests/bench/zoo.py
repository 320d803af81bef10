"""Zoos of independently trained networks: perceptrons 784-w-w-w-10 with LayerNorm, on MNIST.

Trained once by `inference.ensemble` and kept in the folder that `SYMBNN_ZOO_DIR` names (default: one in the
system's temporary folder): 50 networks of width 512 take some ten minutes of a core, all others two together.
`python -m tests.bench.zoo 512 50` trains one beforehand.
"""

import functools
import os
import pathlib
import sys
import tempfile
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from symbnn import data, density, inference, models, symmetry, tree

NUM_HIDDEN = 3
EPOCHS = {16: 4, 64: 2, 512: 1}
# The settings of alignment to the mean were chosen on the networks of seed 0; others are measured.
SEED = 1
# Networks that are trained by one call, and kept when it ends.
TRAINED_TOGETHER = 5
OPTIMISER = optax.adam(1e-3)


class Perceptron(nn.Module):
    """Dense layers, each normalised before its ReLU; a dense layer at the end."""

    width: int

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Logits of images."""
        inputs = inputs.reshape(len(inputs), -1)
        for layer in range(NUM_HIDDEN):
            inputs = nn.Dense(self.width, name=f"hidden{layer}")(inputs)
            inputs = nn.relu(nn.LayerNorm(name=f"norm{layer}")(inputs))
        return nn.Dense(10, name="out")(inputs)


class Zoo(NamedTuple):
    """Trained networks and their symmetries."""

    spec: symmetry.SymmetrySpec
    networks: Any
    """Stacked."""


def zoo(width: int, num: int) -> Zoo:
    """The first `num` networks of a width, trained if they are not kept."""
    for begin in range(0, num, TRAINED_TOGETHER):
        if not is_kept(width, slice(begin, min(begin + TRAINED_TOGETHER, num))):
            _train(width, begin)
    kept = [tree.nested(dict(np.load(_path(width, index)))) for index in range(num)]
    return Zoo(_model(width).spec, jax.tree.map(jnp.asarray, tree.stack(kept)))


def folder() -> pathlib.Path:
    """Where the networks are kept."""
    return pathlib.Path(os.environ.get("SYMBNN_ZOO_DIR", f"{tempfile.gettempdir()}/symbnn_zoo"))


def is_kept(width: int, indices: slice) -> bool:
    """Whether the networks need no training any more."""
    return all(_path(width, index).exists() for index in range(indices.start or 0, indices.stop))


def accuracy(width: int, params: Any) -> float:
    """Share of the test part that a network labels right."""
    test = _images().test
    hits = jnp.argmax(_model(width).apply(params, test.inputs), axis=-1) == test.targets
    return float(jnp.mean(hits))


def _train(width: int, begin: int) -> None:
    """Networks from an index on; each is known by its own key, so they are the same in any order."""
    method = inference.ensemble(
        num_members=TRAINED_TOGETHER,
        members_per_block=1,
        epochs=EPOCHS.get(width, 1),
        batch_size=128,
        optimizer=OPTIMISER,
        objective="mle",
        progress=None,
    )
    key = jax.random.fold_in(jax.random.key(SEED), 1_000 * width + begin)
    fit = method(key, density.target(_model(width), _images().train))
    for number in range(TRAINED_TOGETHER):
        path = _path(width, begin + number)
        path.parent.mkdir(parents=True, exist_ok=True)
        leaves = tree.named_leaves(tree.take(fit.posterior.samples, number))
        np.savez(path, **{name: np.asarray(leaf) for name, leaf in leaves.items()})


@functools.cache
def _model(width: int) -> models.Model:
    return models.wrap(Perceptron(width), jax.ShapeDtypeStruct((2, 28, 28, 1), jnp.float32))


@functools.cache
def _images() -> Any:
    return data.load("mnist")


def _path(width: int, index: int) -> pathlib.Path:
    return folder() / f"{width}_{SEED}_{index}.npz"


if __name__ == "__main__":
    width, num = map(int, sys.argv[1:])
    found = zoo(width, num).networks
    shares = [100 * accuracy(width, tree.take(found, index)) for index in range(num)]
    print(f"{len(shares)} networks, {min(shares):.2f} % to {max(shares):.2f} %")
