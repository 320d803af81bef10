"""What is left of a network when only the best-ranked weights are kept.

A ranking is a score per weight, lowest kept first: the standard deviation σ of a posterior, minus the
magnitude |w|, minus the signal-to-noise ratio |w|/σ, or chance.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.problem import Problem
from symbnn import keys, tree
from symbnn.types import Key, Params, Samples

LEVELS = np.array([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.01])
ALIGNED, RAW = "HMC σ, aligned", "HMC σ, raw"
MAGNITUDE, SIGNAL_TO_NOISE, RANDOM = "magnitude", "signal-to-noise", "random"


class Labelled(NamedTuple):
    """Networks of one kind in the common labels, and in the labels they came with."""

    relabelled: Samples
    raw: Samples


def accuracy_by_ranking(
    problem: Problem, kind: Labelled, stds: dict[str, Params], key: Key, num_random: int
) -> dict[str, Any]:
    """Accuracy of one kind of networks under every ranking."""
    count = tree.num_samples(kind.relabelled)

    def accuracy(networks: Samples, scores: Params) -> np.ndarray:
        found = accuracy_curves(problem.model.apply, networks, scores, LEVELS, problem.inputs, problem.labels)
        return np.asarray(found)

    curves = {}
    for name, std in stds.items():
        networks = kind.raw if name == RAW else kind.relabelled
        curves[name] = accuracy(networks, jax.tree.map(lambda leaf: np.stack([leaf] * count), std))
    curves[MAGNITUDE] = accuracy(kind.relabelled, jax.tree.map(lambda leaf: -np.abs(leaf), kind.relabelled))
    noise = jax.tree.map(lambda leaf, std: -np.abs(leaf) / np.asarray(std), kind.relabelled, stds[ALIGNED])
    curves[SIGNAL_TO_NOISE] = accuracy(kind.relabelled, noise)
    # A single network needs many random rankings for a mean worth the name; many networks bring their own.
    repeated = tree.take(kind.relabelled, np.arange(max(count, num_random)) % count)
    chance = tree.map_named(
        lambda name, leaf: jax.random.uniform(keys.named(key, name), leaf.shape), repeated
    )
    curves[RANDOM] = accuracy(repeated, chance)
    return curves


def accuracy_curves(
    apply: Any,
    networks: Samples,
    scores: Samples,
    levels: np.ndarray,
    inputs: jax.Array,
    labels: jax.Array,
) -> jax.Array:
    """Accuracy (network, level) where each share in `levels` of the weights of lowest score is kept.

    The same networks as `compact.prune` gives level by level, with one sort for all levels.
    """
    size = tree.num_weights(tree.take(networks, 0))
    counts = jnp.array([round(float(level) * size) for level in levels])
    return _accuracy_curves(apply, networks, scores, counts, inputs, labels)


@partial(jax.jit, static_argnums=0)
def _accuracy_curves(
    apply: Any, networks: Samples, scores: Samples, counts: jax.Array, inputs: jax.Array, labels: jax.Array
) -> jax.Array:
    def curve(pair: tuple[Params, Params]) -> jax.Array:
        network, ranks = pair[0], _ranks(pair[1])

        def accuracy(count: jax.Array) -> jax.Array:
            kept = jax.tree.map(lambda leaf, rank: jnp.where(rank < count, leaf, 0.0), network, ranks)
            return jnp.mean(jnp.argmax(apply(kept, inputs), axis=-1) == labels)

        return jax.lax.map(accuracy, counts)

    return jax.lax.map(curve, (networks, scores))


def _ranks(scores: Params) -> Params:
    """Place of every weight in the order of all scores, lowest first."""
    leaves, treedef = jax.tree.flatten(scores)
    order = jnp.argsort(jnp.concatenate([leaf.ravel() for leaf in leaves]))
    ranks = jnp.zeros_like(order).at[order].set(jnp.arange(order.size))
    parts = jnp.split(ranks, np.cumsum([leaf.size for leaf in leaves])[:-1])
    shaped = [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(treedef, shaped)
