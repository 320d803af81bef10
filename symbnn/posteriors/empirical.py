"""The empirical law of stored networks: MCMC draws, ensemble members."""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn import tree
from symbnn.posteriors.base import check_num, register
from symbnn.types import Key, Params, Samples


@register(static=("num_chains",))
@dataclasses.dataclass(frozen=True)
class Empirical:
    """Equal mass on every stored network, in chain-major order: index = chain · draws + draw."""

    samples: Samples
    num_chains: int = 1

    def __post_init__(self) -> None:
        tree.check_chains(self.samples, self.num_chains)

    def sample(self, key: Key, num: int) -> Samples:
        """`num` stored networks, drawn with replacement."""
        check_num(num)
        return tree.take(self.samples, jax.random.randint(key, (num,), 0, tree.num_samples(self.samples)))

    def log_prob(self, params: Params) -> Float[Array, ""]:
        """Logarithm of the share of stored networks equal to `params`; -inf for any other network."""
        tree.check_same_shapes("params", params, tree.take(self.samples, 0))
        equal = jax.tree.map(
            lambda stored, leaf: jnp.all((stored == leaf).reshape(stored.shape[0], -1), axis=1),
            self.samples,
            params,
        )
        hits = jnp.sum(jnp.all(jnp.stack(jax.tree.leaves(equal)), axis=0).astype(jnp.float32))
        return jnp.log(hits) - math.log(tree.num_samples(self.samples))

    def by_chain(self) -> Samples:
        """The samples with two leading axes, `(chains, draws, ...)`."""
        return tree.by_chain(self.samples, self.num_chains)
