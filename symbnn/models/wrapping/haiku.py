"""Networks of Haiku: pairs of pure functions, whose parameters and state are dicts."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp

from symbnn.models.wrapping.parts import Parts, arguments_of
from symbnn.types import Key, Params


def parts(transformed: Any, example: jax.ShapeDtypeStruct) -> Parts:
    """The parts of `hk.transform(f)` or `hk.transform_with_state(f)`, with or without `apply_rng`.

    Its own form is the dict of its parameters, with a state the pair of both.
    """
    is_stateful = type(transformed).__name__ == "TransformedWithState"
    parameters = list(inspect.signature(transformed.apply).parameters)
    takes_key = parameters[1 + is_stateful : 2 + is_stateful] == ["rng"]
    arguments = arguments_of(transformed.apply)._replace(key=None)
    original = getattr(transformed.init, "_original_fn", transformed)
    name = f"the Haiku function {getattr(original, '__name__', type(original).__name__)}"

    def draw(key: Key) -> Any:
        # In training mode: Haiku makes the state of a BatchNorm only there. One row, as it is computed.
        row = jnp.zeros((1, *example.shape[1:]), example.dtype)
        return transformed.init(key, row, **arguments.at(True, None))

    def read(own: Any) -> tuple[Params, Params]:
        return own if is_stateful and isinstance(own, tuple) else (own, {})

    def build(weights: Params, statistics: Params) -> Any:
        return (weights, statistics) if is_stateful else weights

    def call(
        weights: Params, statistics: Params, inputs: Any, key: Key | None, training: bool
    ) -> tuple[Any, Params]:
        state, keys = ((statistics,) if is_stateful else ()), ((key,) if takes_key else ())
        result = transformed.apply(weights, *state, *keys, inputs, **arguments.at(training, None))
        return result if is_stateful else (result, statistics)

    return Parts(name, call, read, build, draw)
