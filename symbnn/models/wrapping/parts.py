"""What every library's network is turned into: one pure call on weights and running statistics.

Modes and keys are arguments of the network's own call, known by their usual names. A network without any of
them is called with its inputs alone.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax

from symbnn import tree
from symbnn.types import Key, Params

MODES = {
    **dict.fromkeys(("train", "training", "is_training"), True),
    **dict.fromkeys(("deterministic", "inference", "use_running_average"), False),
}
"""Arguments that tell a network whether it trains, with their value while it does."""
KEYS = ("key", "rng")
"""Arguments that hand a network its random key."""


@runtime_checkable
class Call(Protocol):
    """A network at work."""

    def __call__(
        self, weights: Params, statistics: Params, inputs: Any, key: Key | None, training: bool
    ) -> tuple[Any, Params]:
        """Outputs and new statistics; without a key nothing random can be asked for."""
        ...


class Parts(NamedTuple):
    """A network as pure functions. `Own` is the form its library keeps a network in: an nnx or Equinox
    module, the variables of linen, the parameters of Haiku."""

    name: str
    """What messages call it."""
    call: Call
    read: Callable[[Any], tuple[Params, Params]]
    """Own -> (weights, statistics); the statistics are an empty dict for a network that keeps none."""
    build: Callable[[Params, Params], Any]
    """(weights, statistics) -> Own."""
    draw: Callable[[Key], Any] | None = None
    """(key) -> Own with fresh weights, where the library knows how."""
    given: Any = None
    """Own, where the library has no other way to tell shapes: a network that is already there."""
    is_batched: bool | None = True
    """Whether a call takes a batch (True) or one example (False); None if that has to be found out."""
    axis_name: Any = "batch"
    """What the network calls the axis of the batch, for statistics across examples."""
    has_streams: bool = False
    """Whether it draws random numbers from a state of its own."""


class Arguments(NamedTuple):
    """What a network's call takes besides its inputs."""

    modes: tuple[str, ...]
    key: str | None
    is_key_required: bool

    def at(self, training: bool, key: Key | None) -> dict[str, Any]:
        """The arguments of one call; a key that is not required is given in training only."""
        given: dict[str, Any] = {name: MODES[name] == training for name in self.modes}
        if self.key is not None and key is not None and (training or self.is_key_required):
            given[self.key] = key
        return given


def arguments_of(function: Callable[..., Any]) -> Arguments:
    """Modes and key among the parameters of `function`."""
    try:
        parameters = dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        parameters = {}
    key = next((name for name in KEYS if name in parameters), None)
    is_required = key is not None and parameters[key].default is inspect.Parameter.empty
    return Arguments(tuple(name for name in MODES if name in parameters), key, is_required)


def over_examples(call: Call, axis_name: Any) -> Call:
    """The call of a network on one example, mapped over a batch; statistics are those of the whole batch."""

    def mapped(
        weights: Params, statistics: Params, inputs: Any, key: Key | None, training: bool
    ) -> tuple[Any, Params]:
        example_keys = None if key is None else jax.random.split(key, inputs.shape[0])

        def one(example: Any, example_key: Key | None) -> tuple[Any, Params]:
            return call(weights, statistics, example, example_key, training)

        in_axes = (0, None if key is None else 0)
        return jax.vmap(one, in_axes=in_axes, out_axes=(0, None), axis_name=axis_name)(inputs, example_keys)

    return mapped


def filled(template: Params, leaves: Params) -> Params:
    """`template` with its leaves replaced by those of the same name in `leaves`."""
    found = tree.named_leaves(leaves)
    return tree.map_named(lambda name, _: found[name], template)


def plain(template: Params) -> Params:
    """The same leaves under the same names in nested dicts."""
    names = tree.leaf_names(template)
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two leaves of the network are named {repeated!r}; avoid '/' in the keys of dicts")
    return tree.nested(tree.named_leaves(template))
