"""The empirical law of stored networks: MCMC draws, ensemble members.

posterior = Empirical.from_chains(samples)             # (chains, draws, ...), as samplers give them
posterior = Empirical(samples, num_chains=4)           # one axis, chain after chain
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn import chains, tree
from symbnn.posteriors.base import check_num, register
from symbnn.types import Key, Params, Samples


@register(static=("num_chains",))
@dataclasses.dataclass(frozen=True)
class Empirical:
    """Equal mass on every stored network, in chain-major order: index = chain · draws + draw.

    Args:
        samples: Networks, stacked along a first axis of every leaf.
        num_chains: How many chains they come from; by default one. If it is not said, a tree that looks like
            `(chains, draws, ...)` is refused: `from_chains` takes it.
    """

    samples: Samples
    num_chains: int = None  # type: ignore[assignment]  # one, but not said

    def __post_init__(self) -> None:
        chains.refuse_grouped(self.samples, self.num_chains)
        object.__setattr__(self, "num_chains", 1 if self.num_chains is None else self.num_chains)
        tree.check_chains(self.samples, self.num_chains)

    @classmethod
    def from_chains(cls, samples: Samples) -> "Empirical":
        """The draws of any sampler; what takes an `Empirical` knows its chains.

        Args:
            samples: A tree whose leaves are all `(chains, draws, ...)`.
        """
        flat, num_chains = chains.flatten(samples)
        # Past the constructor, which would have to guess what one draw a chain is.
        posterior = object.__new__(cls)
        object.__setattr__(posterior, "samples", flat)
        object.__setattr__(posterior, "num_chains", num_chains)
        return posterior

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
