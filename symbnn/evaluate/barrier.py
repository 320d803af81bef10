"""Loss and error along the straight line between two networks (Entezari et al. 2021, Ainsworth et al. 2022).

    w_l = (1 - l) a + l b,   l = 0, 1/(points - 1), ..., 1
    excess_l = loss(w_l) - ((1 - l) loss(a) + l loss(b)),   barrier = max_l excess_l

Pairs stack: `jax.vmap(lambda a, b: barrier(apply, a, b, batch))(samples_a, samples_b)`. What repairs a mean
network before it is judged (new batch statistics, REPAIR) is a function passed as `correct`; see
`symbnn.evaluate.corrections`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from symbnn import tree
from symbnn.evaluate.given import Apply
from symbnn.evaluate.stream import map_blocks
from symbnn.types import Params

PerInput = Callable[[jax.Array, jax.Array], jax.Array]
"""`(outputs, targets) -> (inputs,)`."""
Correction = Callable[[Params, Params, float | jax.Array, Params], Params]
"""`(a, b, weight, interpolated) -> corrected`."""


class Barrier(NamedTuple):
    """Curves over the points of the line, and their largest excess over the straight line of the ends."""

    weights: jax.Array
    loss: jax.Array
    error: jax.Array
    loss_excess: jax.Array
    error_excess: jax.Array
    loss_barrier: jax.Array
    error_barrier: jax.Array


def cross_entropy(
    logits: Float[Array, "n *places c"], labels: Int[Array, " n *places"]
) -> Float[Array, " n"]:
    """Negative log-probability of each label in nats; of a sequence, the mean over its places."""
    each = -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=-1)[..., 0]
    return jnp.mean(each, axis=range(1, each.ndim))


def misclassified(
    logits: Float[Array, "n *places c"], labels: Int[Array, " n *places"]
) -> Float[Array, " n"]:
    """One where the most probable class is not the label; of a sequence, the share of such places."""
    is_wrong = (jnp.argmax(logits, axis=-1) != labels).astype(jnp.float32)
    return jnp.mean(is_wrong, axis=range(1, is_wrong.ndim))


def barrier(
    apply: Apply,
    params_a: Params,
    params_b: Params,
    batch: Any,
    *,
    points: int = 11,
    loss: PerInput = cross_entropy,
    error: PerInput = misclassified,
    correct: Correction | None = None,
    block_inputs: int = 1024,
) -> Barrier:
    """The barrier between two networks.

    Args:
        apply: `(params, inputs) -> outputs` of one network.
        params_a: Where the line starts.
        params_b: Where it ends.
        batch: `(inputs, targets)` to judge on.
        points: Of the line, both ends included.
        loss: `(outputs, targets) -> (inputs,)`.
        error: Likewise, for the second curve.
        correct: Changes every network of the line before it is judged.
        block_inputs: Inputs that a network is applied to at a time.
    """
    if points < 2:
        raise ValueError(f"points: expected at least the two ends, got {points}")
    tree.check_same_shapes("params_b", params_b, params_a)
    inputs, targets = (jnp.asarray(array) for array in batch)
    if inputs.shape[0] != targets.shape[0] or inputs.shape[0] == 0:
        raise ValueError(
            f"batch: expected as many targets as inputs, got shapes {targets.shape} and {inputs.shape}"
        )
    return _barrier(apply, loss, error, correct, points, block_inputs, params_a, params_b, inputs, targets)


def interpolate(params_a: Params, params_b: Params, weight: Float[Array, ""] | float) -> Params:
    """(1 - weight) a + weight b, exact at both ends."""
    return jax.tree.map(lambda a, b: (1.0 - weight) * a + weight * b, params_a, params_b)


@partial(jax.jit, static_argnums=range(6))
def _barrier(
    apply: Apply,
    loss: PerInput,
    error: PerInput,
    correct: Correction | None,
    points: int,
    block_inputs: int,
    params_a: Params,
    params_b: Params,
    inputs: jax.Array,
    targets: jax.Array,
) -> Barrier:
    def judge(weight: jax.Array) -> tuple[jax.Array, jax.Array]:
        params = interpolate(params_a, params_b, weight)
        params = params if correct is None else correct(params_a, params_b, weight, params)

        def rows(inputs: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
            outputs = apply(params, inputs)
            return loss(outputs, targets), error(outputs, targets)

        losses, errors = map_blocks(rows, (inputs, targets), block_inputs)
        return jnp.mean(losses), jnp.mean(errors)

    weights = jnp.linspace(0.0, 1.0, points)
    # One point after the other: memory of one network, however many points.
    losses, errors = jax.lax.map(judge, weights)
    loss_excess, error_excess = _excess(weights, losses), _excess(weights, errors)
    return Barrier(
        weights, losses, errors, loss_excess, error_excess, jnp.max(loss_excess), jnp.max(error_excess)
    )


def _excess(weights: Float[Array, " points"], curve: Float[Array, " points"]) -> Float[Array, " points"]:
    return curve - ((1.0 - weights) * curve[0] + weights * curve[-1])
