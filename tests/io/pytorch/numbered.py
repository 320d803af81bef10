"""Networks whose weights are all different."""

import jax
import jax.numpy as jnp


def numbered(model):
    """Every weight of the network is another number, so no exchange goes unseen."""
    shapes, offset = jax.eval_shape(model.init, jax.random.key(0)), 0
    leaves = []
    for leaf in jax.tree.leaves(shapes):
        leaves.append(jnp.arange(offset, offset + leaf.size, dtype=jnp.float32).reshape(leaf.shape))
        offset += leaf.size
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)
