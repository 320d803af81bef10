"""Pruning by uncertainty: keep the weights that the posterior is surest of, zero the others."""

import itertools

import jax
import jax.numpy as jnp

from symbnn import tree
from symbnn.types import Params


def prune(mean: Params, std: Params, keep: float) -> Params:
    """`mean` with all but the share `keep` of weights of lowest `std` set to zero; ranked over all leaves.

    Any other score may stand for `std`: minus the magnitude, or the inverse signal-to-noise ratio std/|mean|.
    """
    if not 0 <= keep <= 1:
        raise ValueError(f"keep must be a share between 0 and 1; got {keep}")
    tree.check_same_shapes("std", std, mean)
    leaves, treedef = jax.tree.flatten(mean)
    scores = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(std)])
    # Ranks rather than a threshold: exactly the share asked for is kept, ties or not.
    rank = jnp.argsort(jnp.argsort(scores))
    kept = rank < round(keep * scores.size)
    masks = jnp.split(kept, list(itertools.accumulate(leaf.size for leaf in leaves))[:-1])
    kept_leaves = [leaf * mask.reshape(leaf.shape) for leaf, mask in zip(leaves, masks, strict=True)]
    return jax.tree.unflatten(treedef, kept_leaves)
