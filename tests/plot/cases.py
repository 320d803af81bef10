"""Small chains of one hidden layer, raw and aligned, and one call of every plot."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import evaluate, inference, plot, posteriors, symmetry

CHAINS, DRAWS, UNITS = 3, 8, 4
INPUTS = np.random.default_rng(1).normal(size=(20, 5)).astype(np.float32)
LABELS = np.arange(20, dtype=np.int32) % 2


def apply(params, inputs):
    return jax.nn.relu(inputs @ params["hidden"]["kernel"] + params["hidden"]["bias"]) @ params["out"]


def networks():
    """Chains of noise around one network, every chain with its units in another order; and a counter."""
    random = np.random.default_rng(0)
    centre = {
        "hidden": {"kernel": random.normal(size=(5, UNITS)), "bias": random.normal(size=UNITS)},
        "out": random.normal(size=(UNITS, 2)),
    }
    orders = np.stack([np.roll(np.arange(UNITS), chain) for chain in range(CHAINS)]).repeat(DRAWS, axis=0)
    noisy = jax.tree.map(lambda leaf: leaf + 0.1 * random.normal(size=(CHAINS * DRAWS, *leaf.shape)), centre)
    rows = np.arange(CHAINS * DRAWS)[:, None]
    moved = {
        "hidden": {
            "kernel": noisy["hidden"]["kernel"].swapaxes(1, 2)[rows, orders].swapaxes(1, 2),
            "bias": noisy["hidden"]["bias"][rows, orders],
        },
        "out": noisy["out"][rows, orders],
    }
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), moved)


SAMPLES = networks()
RAW = posteriors.Empirical(SAMPLES, CHAINS)
FIT = inference.Fit(RAW, {})
ONE = jax.tree.map(lambda leaf: leaf[0], SAMPLES)
SPEC = symmetry.discover(apply, ONE, INPUTS)


@functools.cache
def aligned():
    return symmetry.align(SPEC, SAMPLES)


@functools.cache
def barriers():
    """Of two pairs, before and after alignment."""
    first = jax.tree.map(lambda leaf: leaf[:2], SAMPLES)

    def of(second):
        return jax.vmap(lambda a, b: evaluate.barrier(apply, a, b, (INPUTS, LABELS)))(first, second)

    ends = [jax.tree.map(lambda leaf: leaf[-2:], tree) for tree in (SAMPLES, aligned().samples)]
    return dict(zip(("not aligned", "aligned"), map(of, ends), strict=True))


@functools.cache
def probs():
    return evaluate.predict(apply, SAMPLES, INPUTS)


PLOTS = {
    "spread": lambda **settings: plot.spread(FIT, aligned(), **settings),
    "rank": lambda **settings: plot.rank(FIT, aligned(), **settings),
    "trace": lambda **settings: plot.trace(RAW, aligned(), **settings),
    "pairs": lambda **settings: plot.pairs(SAMPLES, aligned(), **settings),
    "reliability": lambda **settings: plot.reliability(probs(), LABELS, **settings),
    "barrier": lambda **settings: plot.barrier(barriers(), **settings),
    "transpositions": lambda **settings: plot.transpositions(aligned(), **settings),
    "groups": lambda **settings: plot.groups(SPEC, **settings),
}
