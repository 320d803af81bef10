"""The published methods are themselves right: planted orders are undone, values do not fall."""

import jax
import numpy as np
import pytest

from tests.bench import published
from tests.networks import mlp_params, mlp_spec, noisy_copies

SIZES = (20, 12, 10, 5)
BASE = mlp_params(SIZES, jax.random.key(0))
SPEC = mlp_spec(SIZES, BASE)
AXES = published.axes_of(SPEC)
SAMPLES, PLANTED = noisy_copies(SPEC, BASE, jax.random.key(1), 6, noise=0.2)
NETWORKS = published.unstacked(SAMPLES)


def test_weight_matching_undoes_planted_orders():
    target = published.unstacked(jax.tree.map(lambda leaf: leaf[None], BASE))[0]
    for index, network in enumerate(NETWORKS):
        found = published.weight_matching(AXES, target, network, np.random.default_rng(index))
        for group, order in found.items():
            np.testing.assert_array_equal(
                np.asarray(PLANTED.permutations[group])[index][order], range(len(order))
            )


@pytest.mark.parametrize(
    "merge",
    [
        lambda networks: published.merge_many(AXES, networks, np.random.default_rng(0)),
        lambda networks: published.universe(AXES, networks),
    ],
    ids=["merge many", "universe"],
)
def test_copies_are_brought_together(merge):
    """As near to each other as if they had never been permuted."""
    straight = [
        published.moved(
            AXES,
            {group: np.argsort(np.asarray(order)[index]) for group, order in PLANTED.permutations.items()},
            network,
        )
        for index, network in enumerate(NETWORKS)
    ]
    expected = published.mean_pair_product(straight)
    assert published.mean_pair_product(NETWORKS) < 0.6 * expected
    np.testing.assert_allclose(published.mean_pair_product(merge(NETWORKS)), expected, rtol=1e-3)


def test_the_mean_pair_product_is_that_of_pairs():
    pairs = [
        sum(np.vdot(a[name], b[name]) for name in a)
        for i, a in enumerate(NETWORKS)
        for j, b in enumerate(NETWORKS)
        if i != j
    ]
    np.testing.assert_allclose(published.mean_pair_product(NETWORKS), np.mean(pairs), rtol=1e-5)
