"""Zoos of independently trained networks: perceptrons with LayerNorm of one width, on MNIST.

Trained once and kept in the folder that `SYMBNN_ZOO_DIR` names (default: one in the system's temporary
folder): 50 networks of width 512 take ten minutes of two cores, all others together about two.
`python -m tests.bench.zoo 512 50` trains one beforehand.
"""

import os
import pathlib
import sys
import tempfile
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from symbnn import data, symmetry, tree

NUM_HIDDEN = 3
EPOCHS = {16: 6, 64: 4, 512: 2}
BATCH = 128
EPSILON = 1e-5


class Zoo(NamedTuple):
    """Trained networks and their symmetries."""

    spec: symmetry.SymmetrySpec
    networks: Any
    """Stacked."""
    accuracies: np.ndarray
    """Of each network on the test part."""


def apply(params: Any, inputs: jax.Array) -> jax.Array:
    """Dense layers, each normalised before its ReLU; a dense layer at the end."""
    for layer in range(NUM_HIDDEN):
        weights = params[f"hidden{layer}"]
        inputs = inputs @ weights["kernel"] + weights["bias"]
        centred = inputs - jnp.mean(inputs, axis=-1, keepdims=True)
        inputs = centred * jax.lax.rsqrt(jnp.var(inputs, axis=-1, keepdims=True) + EPSILON)
        inputs = jax.nn.relu(inputs * weights["scale"] + weights["shift"])
    return inputs @ params["out"]["kernel"] + params["out"]["bias"]


def init(key: jax.Array, width: int) -> Any:
    """Uniform on ±1/√fan-in, as PyTorch does; the normalisation starts with one and zero."""
    sizes = [784, *[width] * NUM_HIDDEN, 10]
    params: dict[str, dict[str, jax.Array]] = {}
    for layer in range(len(sizes) - 1):
        key_kernel, key_bias = jax.random.split(jax.random.fold_in(key, layer))
        limit = sizes[layer] ** -0.5
        kernel = jax.random.uniform(key_kernel, (sizes[layer], sizes[layer + 1]), minval=-limit, maxval=limit)
        bias = jax.random.uniform(key_bias, (sizes[layer + 1],), minval=-limit, maxval=limit)
        if layer == NUM_HIDDEN:
            params["out"] = {"kernel": kernel, "bias": bias}
        else:
            normal = {"scale": jnp.ones(width), "shift": jnp.zeros(width)}
            params[f"hidden{layer}"] = {"kernel": kernel, "bias": bias} | normal
    return params


def zoo(width: int, num: int) -> Zoo:
    """The first `num` networks of a width, trained if they are not kept."""
    names = list(tree.named_leaves(init(jax.random.key(0), 2)))
    nets = []
    for index in range(num):
        path = _path(width, index)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            trained = tree.named_leaves(_trained(width, index))
            np.savez(path, **{name: np.asarray(leaf) for name, leaf in trained.items()})
        with np.load(path) as kept:
            nets.append({name: kept[name] for name in names})
    networks: dict[str, dict[str, jax.Array]] = {}
    for name in names:
        layer, leaf = name.split("/")
        networks.setdefault(layer, {})[leaf] = jnp.asarray(np.stack([net[name] for net in nets]))
    spec = symmetry.discover(apply, tree.take(networks, 0), jnp.zeros((2, 784)))
    return Zoo(spec, networks, np.array([accuracy(tree.take(networks, index)) for index in range(num)]))


def is_kept(width: int, num: int) -> bool:
    """Whether the networks need no training any more."""
    return all(_path(width, index).exists() for index in range(num))


def accuracy(params: Any) -> float:
    """Share of the test part that a network labels right."""
    _, _, inputs, labels = _images()
    return float(_hits(params, inputs, labels)) / len(labels)


def _path(width: int, index: int) -> pathlib.Path:
    folder = os.environ.get("SYMBNN_ZOO_DIR", f"{tempfile.gettempdir()}/symbnn_zoo")
    return pathlib.Path(folder) / f"{width}_{index}.npz"


@jax.jit
def _hits(params: Any, inputs: jax.Array, labels: jax.Array) -> jax.Array:
    return jnp.sum(jnp.argmax(apply(params, inputs), axis=-1) == labels)


def _images() -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    if not _LOADED:
        found = data.load("mnist")
        for part in (found.train, found.test):
            _LOADED.extend(
                [jnp.asarray(part.inputs).reshape(len(part.inputs), -1), jnp.asarray(part.targets)]
            )
    return tuple(_LOADED)  # type: ignore[return-value]


_LOADED: list[jax.Array] = []


def _trained(width: int, index: int) -> Any:
    inputs, labels, _, _ = _images()
    return _train(jax.random.key(1_000 * width + index), inputs, labels, width, EPOCHS.get(width, 2))


@partial(jax.jit, static_argnames=("width", "epochs"))
def _train(key: jax.Array, inputs: jax.Array, labels: jax.Array, width: int, epochs: int) -> Any:
    """Adam with a cosine schedule, every epoch in an order of its own."""
    steps = len(inputs) // BATCH
    optimiser = optax.adam(optax.cosine_decay_schedule(2e-3, epochs * steps))
    params = init(jax.random.fold_in(key, 0), width)

    def loss(params: Any, batch: jax.Array) -> jax.Array:
        logits = apply(params, inputs[batch])
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels[batch]))

    def step(carry: Any, batch: jax.Array) -> tuple[Any, None]:
        params, state = carry
        updates, state = optimiser.update(jax.grad(loss)(params, batch), state)
        return (optax.apply_updates(params, updates), state), None

    keys = jax.random.split(jax.random.fold_in(key, 1), epochs)
    orders = jax.vmap(lambda one: jax.random.permutation(one, len(inputs))[: steps * BATCH])(keys)
    (params, _), _ = jax.lax.scan(step, (params, optimiser.init(params)), orders.reshape(-1, BATCH))
    return params


if __name__ == "__main__":
    shares = 100 * zoo(int(sys.argv[1]), int(sys.argv[2])).accuracies
    print(f"{len(shares)} networks, {shares.min():.2f} % to {shares.max():.2f} %")
