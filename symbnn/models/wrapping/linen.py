"""Networks of Flax linen: descriptions without weights, whose variables are dicts."""

from collections.abc import Mapping
from typing import Any

import jax
from flax import linen as nn

from symbnn.models.base import STATISTICS, WEIGHTS
from symbnn.models.wrapping.parts import Parts, arguments_of
from symbnn.types import Key, Params


def parts(module: nn.Module, example: jax.ShapeDtypeStruct) -> Parts:
    """The parts of `module` for batches like `example`; its own form is the dict of its variables."""
    arguments = arguments_of(module.__call__)
    one = jax.ShapeDtypeStruct((1, *example.shape[1:]), example.dtype)
    name = f"the linen module {type(module).__name__}"

    def variables(weights: Params, statistics: Params) -> dict[str, Params]:
        return {WEIGHTS: weights, STATISTICS: statistics} if statistics else {WEIGHTS: weights}

    def draw(key: Key) -> Any:
        # Lazily: the forward pass is only traced. In one program many draws compile for minutes on CPU.
        return {WEIGHTS: {}, **module.lazy_init(key, one, **arguments.at(False, key))}

    def read(own: Any) -> tuple[Params, Params]:
        if not (isinstance(own, Mapping) and WEIGHTS in own):
            return own, {}
        unknown = sorted(own.keys() - {WEIGHTS, STATISTICS})
        if unknown:
            raise ValueError(
                f"{type(module).__name__} keeps {unknown}; only 'params' and 'batch_stats' are supported"
            )
        return own[WEIGHTS], own.get(STATISTICS, {})

    def call(
        weights: Params, statistics: Params, inputs: Any, key: Key | None, training: bool
    ) -> tuple[Any, Params]:
        # A stream without a key of its own takes that of the parameters.
        rngs = None if key is None else {"dropout": key, "params": jax.random.fold_in(key, 1)}
        settings: Any = {"rngs": rngs, **arguments.at(training, key)}
        if not (training and statistics):
            return module.apply(variables(weights, statistics), inputs, **settings), statistics
        outputs, updated = module.apply(
            variables(weights, statistics), inputs, mutable=[STATISTICS], **settings
        )
        return outputs, updated[STATISTICS]

    return Parts(name, call, read, variables, draw)
