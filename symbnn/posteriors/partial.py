"""A posterior over some leaves of a network while the others are known (last-layer Laplace)."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn import tree
from symbnn.posteriors.base import register
from symbnn.types import Key, Params, Samples


@register()
@dataclasses.dataclass(frozen=True)
class FixedLeaves:
    """Leaves named in `free` follow that posterior, a law over a dict by leaf name; the rest is `params`.

    `params` is the whole network, so that its structure is known; its free leaves are not read.
    """

    params: Params
    free: Any

    @property
    def mean(self) -> Params:
        """The mean network, if the law of the free leaves has one."""
        means = self.free.mean
        return tree.map_named(lambda name, leaf: means.get(name, leaf), self.params)

    def loadings(self, direction: Params) -> Any:
        """Those of the free leaves, the only ones that vary (see `posteriors.Gaussian`)."""
        leaves = tree.named_leaves(direction)
        return self.free.loadings({name: leaves[name] for name in self.free.mean})

    def sample(self, key: Key, num: int) -> Samples:
        """`num` networks that differ in the free leaves only."""
        drawn = self.free.sample(key, num)
        return tree.map_named(
            lambda name, leaf: drawn[name] if name in drawn else jnp.broadcast_to(leaf, (num, *leaf.shape)),
            self.params,
        )

    def log_prob(self, params: Params) -> Float[Array, ""]:
        """Log-density over the free leaves; -inf if another leaf is not the known one."""
        tree.check_same_shapes("params", params, self.params)
        leaves, known = tree.named_leaves(params), tree.named_leaves(self.params)
        names = jax.eval_shape(lambda key: self.free.sample(key, 1), jax.random.key(0)).keys()
        same = [jnp.all(leaves[name] == known[name]) for name in leaves if name not in names]
        density = self.free.log_prob({name: leaves[name] for name in names})
        return jnp.where(jnp.all(jnp.stack(same)), density, -jnp.inf) if same else density
