"""What the rest of the library sees of a network: pure functions, a spec, an input shape."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.typing import ArrayLike

from symbnn import tree
from symbnn.symmetry import SymmetrySpec
from symbnn.types import Key, Params

WEIGHTS, STATISTICS = "params", "batch_stats"
"""The two halves of the tree of a network that keeps running statistics."""


class Model(NamedTuple):
    """A network as functions.

    - `init(key)`: framework-default weights.
    - `apply(params, inputs)`: outputs (logits) of a batch in evaluation mode.
    - `spec`: the symmetries, discovered from shapes.
    - `train(params, inputs, key)`: outputs in training mode (dropout, statistics of this batch), and the
      parameters with new running statistics; the same parameters if the net keeps none. Not needed for a
      net without such a mode.
    - `input_shape`: without the batch axis; if given, inputs are checked against it.
    - `params(network)`: the parameters of a network in its library's own form: an nnx or Equinox module
      (with its state, if it has one), linen's variables, Haiku's parameters (with its state).
    - `network(params)`: the inverse, for instance a merged Equinox module.
    """

    init: Callable[[Key], Params]
    apply: Callable[[Params, ArrayLike], jax.Array]
    spec: SymmetrySpec
    train: Callable[[Params, ArrayLike, Key], tuple[jax.Array, Params]] | None = None
    input_shape: tuple[int, ...] | None = None
    params: Callable[[Any], Params] | None = None
    network: Callable[[Params], Any] | None = None


def in_training(model: Any, params: Params, inputs: ArrayLike, key: Key) -> tuple[jax.Array, Params]:
    """Outputs in training mode, and the parameters after it; a model without such a mode has only one."""
    return (model.apply(params, inputs), params) if model.train is None else model.train(params, inputs, key)


def frozen(model: Any) -> Any:
    """The network in evaluation mode for good: its running statistics are constants, in training too.

    So every example has a likelihood of its own, and `sgmcmc`, `variational`, `laplace`, `dropout` and `swag`
    approximate the posterior of the weights given the statistics of the network they start from. These stay
    in the tree, where they move with their units when networks are aligned; no method changes them. Freeze a
    network that is trained: fresh statistics normalise nothing. Its dropout layers are off, too.
    """
    return model._replace(train=None)


def is_frozen(model: Any) -> bool:
    """Whether the network has no training mode, so that its running statistics, if any, are constants."""
    return getattr(model, "train", None) is None


def has_batch_statistics(params: Params) -> bool:
    """Whether the tree is that of a net with running statistics, as batch normalisation keeps them."""
    return isinstance(params, dict) and STATISTICS in params


def split_statistics(params: Params) -> tuple[Params, Params]:
    """(weights, running statistics); the statistics are an empty dict for a net that keeps none."""
    return (params[WEIGHTS], params[STATISTICS]) if has_batch_statistics(params) else (params, {})


def join_statistics(weights: Params, statistics: Params) -> Params:
    """The inverse of `split_statistics`."""
    return {WEIGHTS: weights, STATISTICS: statistics} if statistics else weights


def named_weights(params: Params) -> dict[str, Any]:
    """Leaves that are no running statistics, by their names in the whole tree."""
    start = f"{WEIGHTS}/" if has_batch_statistics(params) else ""
    return {f"{start}{name}": leaf for name, leaf in tree.named_leaves(split_statistics(params)[0]).items()}
