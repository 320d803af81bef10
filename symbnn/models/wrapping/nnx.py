"""Networks of Flax nnx: objects that hold their weights, taken apart by `nnx.split`.

Weights are the variables of type `nnx.Param`, statistics those of type `nnx.BatchStat`, both as nested dicts
under the module's own names (`layers/0/kernel`). Streams of random numbers are seeded anew by every call.
Other variables stay as they are; a network that changes them is refused.
"""

from typing import Any

import jax

from symbnn import tree
from symbnn.models.wrapping.parts import Parts, arguments_of, filled, plain
from symbnn.types import Key, Params


def parts(module: Any) -> Parts:
    """The parts of `module`, whose own form is a module like it."""
    from flax import nnx

    arguments = arguments_of(module.__call__)
    kinds: Any = (nnx.Param, nnx.BatchStat, nnx.RngState, ...)
    definition, *states = nnx.split(module, *kinds)
    params, batch_statistics, streams, rest = states
    name = f"the nnx module {type(module).__name__}"

    def in_mode(training: bool) -> Any:
        copy = nnx.merge(definition, *states)
        # What its methods `train` and `eval` do.
        copy.set_attributes(
            deterministic=not training, use_running_average=not training, raise_if_not_found=False
        )
        return nnx.split(copy, *kinds)[0]

    definitions = {training: in_mode(training) for training in (False, True)}

    def merged(definition: Any, weights: Params, statistics: Params, key: Key | None) -> Any:
        # Copies of all variables: those of the network belong to whoever gave it.
        others = jax.tree.map(lambda leaf: leaf, rest)
        return nnx.merge(
            definition,
            filled(params, weights),
            filled(batch_statistics, statistics),
            _seeded(streams, key),
            others,
        )

    def read(own: Any) -> tuple[Params, Params]:
        return plain(nnx.state(own, nnx.Param)), plain(nnx.state(own, nnx.BatchStat))

    def build(weights: Params, statistics: Params) -> Any:
        return merged(definition, weights, statistics, None)

    def call(
        weights: Params, statistics: Params, inputs: Any, key: Key | None, training: bool
    ) -> tuple[Any, Params]:
        copy = merged(definitions[training], weights, statistics, key)
        outputs = copy(inputs, **arguments.at(training, key))
        _refuse_changes(name, rest, nnx.split(copy, *kinds)[-1])
        return outputs, plain(nnx.state(copy, nnx.BatchStat))

    return Parts(name, call, read, build, given=module, has_streams=bool(jax.tree.leaves(streams)))


def weights_state(module: Any) -> Any:
    """The `nnx.State` of a module's parameters."""
    from flax import nnx

    return nnx.state(module, nnx.Param)


def _seeded(streams: Any, key: Key | None) -> Any:
    """Streams whose every key comes from `key`, if there is one; their counters stay."""
    leaves, structure = jax.tree.flatten(streams)
    fresh = [
        jax.random.split(jax.random.fold_in(key, index), leaf.shape)
        if key is not None and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        else leaf
        for index, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, fresh)


def _refuse_changes(name: str, before: Any, after: Any) -> None:
    """`ValueError` if a traced call changed a variable that is neither a weight nor a batch statistic."""
    old, new = tree.named_leaves(before), tree.named_leaves(after)
    changed = [leaf for leaf in old if isinstance(new.get(leaf), jax.core.Tracer)]
    if changed:
        raise ValueError(
            f"{name} changes {changed[0]!r} when it is called, which is neither an nnx.Param nor an "
            "nnx.BatchStat; only these can be kept for every network"
        )
