"""Networks that are plain functions `apply(params, inputs)`."""

from collections.abc import Callable
from typing import Any

from symbnn.models.base import join_statistics, split_statistics
from symbnn.models.wrapping.parts import Parts, arguments_of
from symbnn.types import Key, Params


def parts(function: Callable[..., Any]) -> Parts:
    """The parts of a function; its own form is the tree of parameters it takes."""
    arguments = arguments_of(function)

    def call(
        weights: Params, statistics: Params, inputs: Any, key: Key | None, training: bool
    ) -> tuple[Any, Params]:
        params = join_statistics(weights, statistics)
        return function(params, inputs, **arguments.at(training, key)), statistics

    name = f"the function {getattr(function, '__name__', type(function).__name__)}"
    return Parts(name, call, split_statistics, join_statistics)
