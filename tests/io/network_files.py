"""Posteriors over networks of every kind, as one process writes them and another reads them.

`python -m tests.io.network_files DIRECTORY` reads all files and prints what is in them.
"""

import dataclasses
import hashlib
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import nnx

from symbnn import density, io, models, posteriors, tree
from symbnn.inference import storage
from tests.models.wrapping.networks import LinenMLP, NnxMLP, haiku_mlp, list_of_tuples, plain_cases

ONE_ROW = jnp.ones((1, 3))


class Layers(NamedTuple):
    first: Any
    second: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Registered:
    weight: Any
    units: int = dataclasses.field(metadata={"static": True})


class Custom:
    """A container that JAX knows by its flattening alone."""

    def __init__(self, weight, bias):
        self.weight, self.bias = weight, bias


jax.tree_util.register_pytree_node(
    Custom, lambda custom: ((custom.weight, custom.bias), None), lambda _, children: Custom(*children)
)


def equinox_mlp(key):
    return eqx.filter(eqx.nn.MLP(3, 2, 4, 1, key=key), eqx.is_inexact_array)


NETWORKS = {
    "linen": lambda key: LinenMLP().init(key, ONE_ROW)["params"],
    "frozen linen": lambda key: nn.FrozenDict(LinenMLP().init(key, ONE_ROW)["params"]),
    "nnx": lambda key: nnx.state(NnxMLP(nnx.Rngs(key)), nnx.Param),
    "equinox": equinox_mlp,
    "haiku": lambda key: hk.transform(haiku_mlp).init(key, ONE_ROW),
    "list of tuples": list_of_tuples,
    "named tuples": lambda key: Layers(*list_of_tuples(key)),
    "registered dataclass": lambda key: Registered(jax.random.normal(key, (3, 2)), 2),
    "custom": lambda key: {"layer": Custom(jax.random.normal(key, (3, 2)), jnp.zeros(2))},
    "whole numbers as keys": lambda key: {0: jax.random.normal(key, (2,)), 10: jnp.ones(1)},
}
"""(key) -> one network."""


def samples(kind):
    return tree.stack([NETWORKS[kind](key) for key in jax.random.split(jax.random.key(4), 6)])


def make(kind):
    """An empirical posterior with two chains, and a Gaussian."""
    networks = samples(kind)
    mean = jax.tree.map(lambda leaf: leaf.mean(0), networks)
    spread = jax.tree.map(lambda leaf: leaf.std(0), networks)
    return posteriors.Empirical(networks, num_chains=2), posteriors.DiagonalGaussian(mean, spread)


def paths(directory, kind):
    return [Path(directory) / f"{kind}-{law}" for law in ("empirical", "gaussian")]


def summary(posterior):
    """Class, structure and bits."""
    structure = jax.tree.structure(posterior)
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(posterior):
        digest.update(np.asarray(leaf).tobytes())
    return [str(structure), digest.hexdigest()]


def fingerprints():
    """By which the run of a wrapped network is known when it is gone on with."""
    data = density.Batch(np.ones((4, 3), np.float32), np.zeros(4, np.int32))
    found = {}
    for kind, case in plain_cases().items():
        target = density.target(models.wrap(case.network, ONE_ROW, init=case.init), data)
        found[kind] = storage.fingerprint(jax.random.key(0), target, {})
    return found


def main(directory):
    found = {"fingerprints": fingerprints()}
    for kind in NETWORKS:
        like = NETWORKS[kind](jax.random.key(9))
        found[kind] = [summary(io.load_posterior(path, like)[0]) for path in paths(directory, kind)]
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
