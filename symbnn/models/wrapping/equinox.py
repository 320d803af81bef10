"""Networks of Equinox: trees that hold their weights, taken apart by `eqx.partition`.

Weights are the floating-point arrays of the module, as a nested dict under the module's own names
(`layers/0/weight`). A network with running statistics comes as `eqx.nn.make_with_state` gives it, the pair
of module and state; the statistics are named by the place of their index in the module.
"""

from typing import Any

import jax

from symbnn import tree
from symbnn.models.wrapping.parts import Parts, arguments_of, filled, plain
from symbnn.types import Key, Params


def is_stateful(network: Any) -> bool:
    """Whether it is a pair of an Equinox module and its state."""
    is_pair = type(network) is tuple and len(network) == 2
    return is_pair and f"{type(network[1]).__module__}.".startswith("equinox.nn.")


def parts(network: Any) -> Parts:
    """The parts of a module, or of `(module, state)`; its own form is one like it."""
    import equinox as eqx

    module, state = _with_state(network)
    arguments = arguments_of(module.__call__)
    weights_of_module, fixed = eqx.partition(module, eqx.is_inexact_array)
    modes = {
        training: eqx.partition(eqx.nn.inference_mode(module, value=not training), eqx.is_inexact_array)[1]
        for training in (False, True)
    }
    leaves, structure = jax.tree.flatten(state)
    # A state has no names of its own: where the leaf of every name lies in it.
    places = tree.named_leaves(_values(module, jax.tree.unflatten(structure, range(len(leaves)))))

    def state_of(statistics: Params) -> Any:
        found = tree.named_leaves(statistics)
        return jax.tree.unflatten(structure, [found[name] for name in sorted(places, key=places.__getitem__)])

    def read(own: Any) -> tuple[Params, Params]:
        own_module, own_state = _with_state(own)
        weights = plain(eqx.filter(own_module, eqx.is_inexact_array))
        return weights, {} if own_state is None else plain(_values(own_module, own_state))

    def build(weights: Params, statistics: Params) -> Any:
        built = eqx.combine(filled(weights_of_module, weights), fixed)
        return built if state is None else (built, state_of(statistics))

    def call(
        weights: Params, statistics: Params, inputs: Any, key: Key | None, training: bool
    ) -> tuple[Any, Params]:
        now = eqx.combine(filled(weights_of_module, weights), modes[training])
        given = arguments.at(training, key)
        if state is None:
            return now(inputs, **given), statistics
        outputs, updated = now(inputs, state=state_of(statistics), **given)
        return outputs, plain(_values(module, updated))

    return Parts(
        name=f"the Equinox module {type(module).__name__}",
        call=call,
        read=read,
        build=build,
        given=network,
        is_batched=None,
        axis_name=_axis_name(module),
    )


def _with_state(network: Any) -> tuple[Any, Any]:
    """(module, state or None); a state that is still inside the module is taken out of it."""
    import equinox as eqx

    if is_stateful(network):
        return network
    if not _indices(network):
        return network, None
    try:
        return eqx.nn.delete_init_state(network), eqx.nn.State(network)
    except ValueError:
        raise ValueError(
            f"{type(network).__name__} keeps running statistics in a state of its own; give both, as "
            "eqx.nn.make_with_state gives them: (module, state)"
        ) from None


def _indices(module: Any) -> dict[str, Any]:
    """The places in the module that point into the state, by name."""
    import equinox as eqx

    nodes = jax.tree_util.tree_leaves_with_path(
        module, is_leaf=lambda node: isinstance(node, eqx.nn.StateIndex)
    )
    return {tree.path_name(path): node for path, node in nodes if isinstance(node, eqx.nn.StateIndex)}


def _values(module: Any, state: Any) -> dict[str, Any]:
    """What the state holds, by the name of the place that points to it."""
    return {name: state.get(index) for name, index in _indices(module).items()}


def _axis_name(module: Any) -> Any:
    """What the module's BatchNorm layers call the axis of the batch."""
    import equinox as eqx

    layers = jax.tree.leaves(module, is_leaf=lambda node: isinstance(node, eqx.nn.BatchNorm))
    return next((layer.axis_name for layer in layers if isinstance(layer, eqx.nn.BatchNorm)), "batch")
