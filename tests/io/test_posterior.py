"""Posteriors come back and draw the same networks."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from symbnn import io, posteriors
from tests.io.same import same


def gaussian(seed):
    mean = {"w": jax.random.normal(jax.random.key(seed), (3, 2)), "b": jnp.ones(2) * seed}
    return posteriors.DiagonalGaussian(mean, jax.tree.map(lambda leaf: jnp.abs(leaf) + 0.1, mean))


def low_rank():
    mean = gaussian(0).mean
    return posteriors.LowRankGaussian(mean, jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), mean))


def kronecker(seed):
    mean = gaussian(seed).mean
    blocks = {
        "w": posteriors.Block(jnp.eye(2), jnp.eye(3), jnp.ones((2, 3)), (1,)),
        "b": posteriors.Block(jnp.ones((1, 1)), jnp.eye(2), jnp.ones((1, 2)), ()),
    }
    return posteriors.KroneckerGaussian(mean, blocks)


POSTERIORS = {
    "Empirical": lambda: posteriors.Empirical({"w": jnp.arange(8.0).reshape(4, 2)}, num_chains=2),
    "DiagonalGaussian": lambda: gaussian(1),
    "LowRankGaussian": low_rank,
    "KroneckerGaussian": lambda: kronecker(1),
    "GaussianMixture of Kronecker form": lambda: posteriors.mixture([kronecker(1), kronecker(2)]),
    "GaussianMixture": lambda: posteriors.mixture([gaussian(1), gaussian(2)]),
    "GaussianMixture of low rank": lambda: posteriors.mixture([low_rank(), low_rank()]),
}


@pytest.mark.parametrize("name", POSTERIORS)
def test_posteriors_come_back(tmp_path, name):
    posterior = POSTERIORS[name]()
    io.save_posterior(tmp_path / "posterior", posterior, {"seed": 1})
    loaded, metadata = io.load_posterior(tmp_path / "posterior")
    same(loaded, posterior)
    assert metadata == {"seed": 1}
    same(loaded.sample(jax.random.key(0), 3), posterior.sample(jax.random.key(0), 3))


def test_a_kronecker_posterior_takes_the_class_of_a_network(tmp_path):
    class Weights(NamedTuple):
        w: jax.Array
        b: jax.Array

    io.save_posterior(tmp_path / "posterior", kronecker(1))
    loaded, _ = io.load_posterior(tmp_path / "posterior", like=Weights(jnp.ones((3, 2)), jnp.ones(2)))
    assert isinstance(loaded.sample(jax.random.key(0), 2), Weights)
    assert loaded.log_prob(loaded.mean) == kronecker(1).log_prob(kronecker(1).mean)


def test_posteriors_move_to_another_device_layout(tmp_path):
    mesh = jax.make_mesh((4,), ("samples",))
    split = NamedSharding(mesh, PartitionSpec("samples"))
    samples = {"w": jax.device_put(jnp.arange(8.0).reshape(4, 2), split)}
    io.save_posterior(tmp_path / "posterior", posteriors.Empirical(samples))
    one, _ = io.load_posterior(tmp_path / "posterior", sharding=jax.devices()[3])
    many, _ = io.load_posterior(tmp_path / "posterior", sharding=split)
    assert one.samples["w"].devices() == {jax.devices()[3]}
    assert len(many.samples["w"].devices()) == 4
    np.testing.assert_array_equal(one.samples["w"], many.samples["w"])


def test_a_tree_is_no_posterior(tmp_path):
    io.save_tree(tmp_path / "tree", {"a": jnp.ones(1)})
    with pytest.raises(io.ArtefactError, match="expected a posterior; found another tree"):
        io.load_posterior(tmp_path / "tree")
    io.save_posterior(tmp_path / "own", Flat())
    with pytest.raises(io.ArtefactError, match="found 'Flat'"):
        io.load_posterior(tmp_path / "own")
    assert io.load_posterior(tmp_path / "own", classes=[Flat])[0] == Flat()


class Flat(NamedTuple):
    width: float = 1.0

    def sample(self, key, num):
        return {"w": jax.random.uniform(key, (num,), maxval=self.width)}

    def log_prob(self, params):
        return -jnp.log(self.width)
