"""What is given to be evaluated: stacked networks, a posterior that keeps some, one to draw from, or a store.

Chains that are taken for draws broadcast through many a network function without an error. Here they are told
by the shapes of its outputs.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import chains, tree
from symbnn.types import Key, Params, Samples

Apply = Callable[[Params, jax.Array], jax.Array]


def count_samples(samples: Any, key: Key | None, num_samples: int | None) -> int:
    """Number of networks to average over, after checking what was given."""
    samples = kept(samples, key)
    if is_chunked(samples):
        if key is not None or num_samples is not None:
            raise ValueError(
                "all stored draws are averaged; leave key and num_samples out, or pass sample(key, num)"
            )
        return samples.num_chains * samples.num_samples
    if is_posterior(samples):
        if key is None or num_samples is None:
            raise ValueError("a posterior is drawn from as it is used: give key and num_samples")
        if num_samples < 1:
            raise ValueError(f"num_samples: expected a positive integer, got {num_samples}")
        return num_samples
    if num_samples is not None or key is not None:
        raise ValueError("key and num_samples apply to a posterior; samples are all used, so leave both out")
    count = tree.num_samples(samples)
    if count == 0:
        raise ValueError("samples: expected at least one network along axis 0, got none")
    return count


def is_posterior(samples: Any) -> bool:
    """Something one can draw from, rather than stacked networks."""
    return callable(getattr(samples, "sample", None))


def is_chunked(samples: Any) -> bool:
    """Draws that stay where they are stored and are read chunk by chunk.

    `chunks()` gives trees with axes (chain, draw, ...); there are `num_chains` of `num_samples` each.
    """
    return callable(getattr(samples, "chunks", None))


def kept(given: Any, key: Key | None) -> Any:
    """The networks of a posterior (or `Fit`) that keeps them, unless it is to be drawn from."""
    holder = chains.keeper(given)
    return holder if key is not None and is_posterior(holder) else chains.networks(holder)


def refuse_chains(apply: Apply, samples: Any, inputs: Any) -> None:
    """`ValueError` for networks with two leading axes: what `apply` gives for one network tells.

    Only a tree whose leaves all agree on their two leading axes is looked at: nothing is traced for others.
    """
    leading = None if is_posterior(samples) or is_chunked(samples) else chains.grouped(samples)
    if leading is None or 0 in leading:
        return
    one, two = (_outputs(apply, samples, inputs, num_leading) for num_leading in (1, 2))
    rows = np.shape(inputs)[:1]
    if two is None or two[:1] != rows:
        return
    # As many draws as inputs, and the axis of draws may pass for that of the inputs: with one axis too many.
    if one is None or one[:1] != rows or (len(one) > 2 and one[1:] == two):
        raise ValueError(
            f"every leaf of the samples has shape ({leading[0]}, {leading[1]}, ...), one leading axis more "
            f"than the network takes; {tree.FROM_CHAINS}"
        )


def _outputs(apply: Apply, samples: Samples, inputs: Any, num_leading: int) -> tuple[int, ...] | None:
    """Shape of what `apply` gives for leaves without their leading axes; None if it takes no such network."""
    network = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[num_leading:], leaf.dtype), samples)
    try:
        outputs = jax.eval_shape(apply, network, jnp.asarray(inputs))
    except Exception:  # Whatever a network function says about weights of another shape.
        return None
    return np.shape(outputs)
