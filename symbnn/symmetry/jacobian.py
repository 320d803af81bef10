"""The Jacobian of a network's outputs in its weights, over data drawn like the given: for the certificate."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import keys, tree
from symbnn.symmetry.numerics import quick_options
from symbnn.types import Key, Params

# Outputs, or random combinations of them, that are looked at for every parameter.
OUTPUTS_PER_PARAMETER = 3
# Draws of the data at least: they differ in width, and a unit that is on in all of one is off in another.
FEWEST_DRAWS = 32


def jacobian_of(
    apply: Callable[..., Any], rebuild: Callable[[jax.Array], Params], size: int, inputs: tuple, key: Key
) -> Callable[[jax.Array], np.ndarray]:
    """Weights as a vector to rows of the Jacobian, or random combinations of them: the same null space."""
    _check_varied(inputs)

    def outputs_of(flat: jax.Array, data: tuple) -> jax.Array:
        found = jax.tree.leaves(apply(rebuild(flat), *data))
        real = [part for leaf in found for part in (leaf.real, *([leaf.imag] * jnp.iscomplexobj(leaf)))]
        return jnp.concatenate([jnp.ravel(part).astype(flat.dtype) for part in real])

    rows = jax.eval_shape(outputs_of, jax.ShapeDtypeStruct((size,), jnp.float64), inputs).size
    needed = OUTPUTS_PER_PARAMETER * size
    count = max(1 + -(-needed // max(rows, 1)), FEWEST_DRAWS)
    taken = min(rows, -(-needed // count))

    def slopes(flat: jax.Array, key: Key) -> jax.Array:
        """Of one draw of the data."""
        _, back = jax.vjp(lambda flat: outputs_of(flat, _drawn(inputs, keys.named(key, "data"))), flat)
        mixed = jax.random.normal(keys.named(key, "rows"), (taken, rows))
        weights = jnp.eye(rows) if taken == rows else mixed
        return jax.lax.map(lambda row: back(row)[0], weights, batch_size=64)

    compiled = jax.jit(
        lambda flat, all_keys: jax.lax.map(partial(slopes, flat), all_keys), compiler_options=quick_options()
    )

    def jacobian(flat: jax.Array) -> np.ndarray:
        found = np.asarray(compiled(flat, jax.random.split(key, count))).reshape(-1, size)
        if not np.isfinite(found).all():
            raise ValueError("the outputs or their derivatives are not finite on data drawn like the inputs")
        return found

    return jacobian


def _check_varied(inputs: tuple) -> None:
    """`ValueError` if there are numbers among the inputs and none of them differ: no data are like these."""
    named = {name: jnp.asarray(leaf) for name, leaf in tree.named_leaves(inputs).items()}
    real = {name: leaf for name, leaf in named.items() if jnp.issubdtype(leaf.dtype, jnp.floating)}
    if real and not any(leaf.size > 1 and float(jnp.std(leaf)) > 0 for leaf in real.values()):
        raise ValueError(
            "the inputs are all one number, and data are drawn like them: give inputs as the network sees "
            f"them, such as jax.random.normal(key, {next(iter(real.values())).shape})"
        )


def _drawn(inputs: tuple, key: Key) -> tuple:
    """Data like the inputs, some narrower and some wider: 2 to the power of a normal deviate."""
    width = 2 ** jax.random.normal(keys.named(key, "width"))

    def drawn(name: str, leaf: jax.Array) -> jax.Array:
        own = keys.named(key, name)
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.mean(leaf) + width * jnp.std(leaf) * jax.random.normal(own, leaf.shape)
        if jnp.issubdtype(leaf.dtype, jnp.integer) and leaf.ndim:
            return jax.random.choice(own, leaf.reshape(-1), leaf.shape)
        return leaf

    return tree.map_named(drawn, inputs)
