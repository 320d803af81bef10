"""Chains move as vectors: the same moves, and trees again wherever a chain is kept."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import density, inference
from symbnn.inference.chains.adaptation import initial_tuning
from symbnn.inference.chains.packing import pack
from symbnn.inference.mclmc import unadjusted_kernel
from tests.inference.cases import small_network

KEY = jax.random.key(0)
KERNEL = unadjusted_kernel()


class Chain(NamedTuple):
    sampler: Any
    mean: Any
    weight: Any


def chain_of(params):
    """With a second tree of the weights' shapes, and a number that is none."""
    state = KERNEL.init(KEY, params, density.LogDensity(total))
    return Chain(state, jax.tree.map(lambda leaf: 2 * leaf, params), jnp.zeros(3))


def total(params):
    return -sum(
        jnp.sum(jnp.square(leaf) * jnp.arange(leaf.size).reshape(leaf.shape))
        for leaf in jax.tree.leaves(params)
    )


PARAMS = {"a": jnp.arange(6.0).reshape(2, 3), "b": -jnp.arange(4.0)}


def test_what_is_shaped_like_the_weights_becomes_a_vector_and_comes_back():
    chain = chain_of(PARAMS)
    packing = pack(KERNEL, chain, density.LogDensity(total))
    packed = packing.pack(chain)
    assert packed.sampler.position.shape == packed.sampler.momentum.shape == packed.mean.shape == (10,)
    assert packed.weight.shape == (3,)
    jax.tree.map(np.testing.assert_array_equal, packing.unpack(packed), chain)
    assert packing.density(packed.sampler.position) == total(PARAMS)


def test_a_vector_moves_as_the_tree_does():
    chain, tuning = chain_of(PARAMS), initial_tuning(PARAMS, 0.1, 1.0)
    packing = pack(KERNEL, chain, density.LogDensity(total))
    tree, info = KERNEL.step(KEY, chain.sampler, tuning, density.LogDensity(total))
    vector, same = KERNEL.step(KEY, packing.pack(chain).sampler, tuning, packing.density)
    moved = packing.unpack(packing.pack(chain)._replace(sampler=vector)).sampler
    for one, other in ((moved, tree), (same, info)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), one, other)


@pytest.mark.parametrize(
    ("kernel", "params"),
    [
        (KERNEL._replace(takes_vectors=False), PARAMS),
        (KERNEL, {"one": jnp.ones(3)}),
        (KERNEL, {"half": jnp.ones(2, jnp.bfloat16), "single": jnp.ones(2)}),
    ],
    ids=["other kernels", "one leaf", "several dtypes"],
)
def test_left_as_it_is(kernel, params):
    chain = Chain(KERNEL.init(KEY, PARAMS, density.LogDensity(total))._replace(position=params), params, 0)
    packing = pack(kernel, chain, density.LogDensity(total))
    assert packing.pack(chain) is chain
    assert packing.unpack(chain) is chain


@pytest.mark.slow
def test_draws_and_the_state_between_chunks_are_trees():
    target = density.target(*small_network())
    settings = {"num_chains": 2, "num_samples": 4, "num_burnin": 6, "thinning": 2, "chunk_size": 2}
    fit = inference.mclmc(**settings, step_size=0.01, length=1.0, progress=None)(KEY, target)
    shapes = jax.tree.map(lambda leaf: (8, *leaf.shape), target.init(KEY))
    assert jax.tree.map(jnp.shape, fit.posterior.samples) == shapes
