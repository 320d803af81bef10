"""A loop whose length the compiler does not know.

XLA unrolls a loop of known length one and may then fuse its body with what surrounds it, which can change the
last bits of the results. Draws must not depend on how many chains share a device or how many draws share
a chunk, so these loops take their length at run time: the body is then compiled alike whatever the length.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array


def collect(body: Callable[[Array, Any], tuple[Any, Any]], carry: Any, number: Any, *, size: int) -> Any:
    """(last carry, outputs) as of `lax.scan`, for `number` <= `size` steps; unused rows of outputs are zero.

    `body(index, carry)` gives the next carry and one output.
    """
    _, shapes = jax.eval_shape(body, jnp.int32(0), carry)
    buffers = jax.tree.map(lambda leaf: jnp.zeros((size, *leaf.shape), leaf.dtype), shapes)

    def step(index: Array, state: tuple[Any, Any]) -> tuple[Any, Any]:
        carry, buffers = state
        carry, output = body(index, carry)
        return carry, jax.tree.map(lambda buffer, leaf: buffer.at[index].set(leaf), buffers, output)

    return jax.lax.fori_loop(0, number, step, (carry, buffers))
