"""Activations of any network: what its weight arrays are multiplied with.

The jaxpr of `apply` is evaluated equation by equation. Where a matrix product or convolution joins data with
a view of a weight array, the operand contracted over a group's axis holds that group's activations (after the
nonlinearity), and the result's free axes hold the units that the array writes (before it). A group that no
array reads in this way (queries and keys of attention) is compared by what writes it.

Inlined: jit, custom derivatives, remat. The body of a scan is walked as well, and what is seen in it is
stacked along the scanned axis. While loops and branches are run as they are; groups that live only inside
them have no activation here.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core

from symbnn import tree
from symbnn.symmetry.alignment.features.weights import ACTIVATION, Arrays, Features, is_moved, plain_leaf
from symbnn.symmetry.program import BODY_OF_CALL
from symbnn.symmetry.spec import Factor, Leaf, Slices, SymmetrySpec, Word, split, word_size, words_by_axis
from symbnn.symmetry.spec.blocks import cut_words
from symbnn.types import Params, Samples

Apply = Callable[..., Any]
Words = tuple[Word, ...]

UNCHANGED = frozenset({"convert_element_type", "copy", "copy_p", "stop_gradient", "reduce_precision"})


class Seen(NamedTuple):
    """A value whose axes carry groups."""

    is_read: bool
    """Contracted with a weight array, not written by one."""
    words: Words
    value: jax.Array


def arguments(inputs: Any) -> tuple:
    """What a network is called with besides its weights: a tuple is several inputs, all else is one."""
    several = inputs if isinstance(inputs, tuple) else (inputs,)
    return jax.tree.map(jnp.asarray, several, is_leaf=lambda node: isinstance(node, list))


def activation_features(spec: SymmetrySpec, apply: Apply, params: Params, inputs: Any) -> Features:
    """One feature for every place where a group's activations are read; `ValueError` for groups with none."""
    inputs = arguments(inputs)
    leaves: list[Leaf] = []

    def described(one: Params, some: tuple) -> list[jax.Array]:
        found = _chosen(spec, apply, one, some)
        leaves.extend(leaf for leaf, _ in found)
        return [array for _, array in found]

    jax.eval_shape(described, params, inputs)
    captured = {factor.group for leaf in leaves for _, factor in leaf.factors()}
    missing = [group.name for group in spec.groups if group.name not in captured]
    if missing:
        raise ValueError(
            f"no activations of groups {missing} were found in the network (they may be inside a while loop "
            "or a branch); pass activations=, a function that returns activations by group"
        )
    return Features(tuple(leaves), lambda samples: _extract(spec, apply, samples, inputs))


@partial(jax.jit, static_argnames=("spec", "apply"))
def _extract(spec: SymmetrySpec, apply: Apply, samples: Samples, inputs: tuple) -> Arrays:
    return jax.lax.map(
        lambda one: tuple(array for _, array in _chosen(spec, apply, one, inputs)), samples, batch_size=8
    )


def _chosen(spec: SymmetrySpec, apply: Apply, params: Params, inputs: tuple) -> list[tuple[Leaf, jax.Array]]:
    """Features of one network: reads of every group, and writes of the groups that are never read."""
    pieces = [
        (seen.is_read, piece)
        for seen in _walk_network(spec, apply, params, inputs)
        for piece in split(seen.words, seen.value)
        if is_moved(spec, piece.factors) and _has_what_it_varies_over(spec, piece.factors)
    ]
    read = {factor.group for is_read, piece in pieces if is_read for factor in piece.factors}
    return [
        (plain_leaf(ACTIVATION, piece.factors), piece.array)
        for is_read, piece in pieces
        if is_read or any(factor.group is not None and factor.group not in read for factor in piece.factors)
    ]


def _has_what_it_varies_over(spec: SymmetrySpec, factors: Sequence[Factor]) -> bool:
    present = {factor.group for factor in factors}
    return all(set(group.over) <= present for group in spec.groups if group.name in present)


def _walk_network(spec: SymmetrySpec, apply: Apply, params: Params, inputs: tuple) -> list[Seen]:
    closed = jax.make_jaxpr(apply)(params, *inputs)
    words = {leaf.name: words_by_axis(leaf.axes) for leaf in spec.leaves}
    views = [words[name] for name in tree.named_leaves(params)] + [None] * len(jax.tree.leaves(inputs))
    seen: list[Seen] = []
    _walk(closed.jaxpr, closed.consts, jax.tree.leaves((params, inputs)), views, seen)
    return list(_unique(seen))


def _walk(
    jaxpr: core.Jaxpr, consts: Sequence[Any], args: Sequence[Any], views: Sequence[Words | None], seen: list
) -> tuple[list[Any], list[Words | None]]:
    """Evaluate; `views` says for every argument which words its axes have, if it is a view of a leaf."""
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    values |= dict(zip(jaxpr.invars, args, strict=True))
    words: dict[Any, Words | None] = dict(zip(jaxpr.invars, views, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    def view(atom: Any) -> Words | None:
        return None if isinstance(atom, core.Literal) else words.get(atom)

    for eqn in jaxpr.eqns:
        inputs, known = [read(atom) for atom in eqn.invars], [view(atom) for atom in eqn.invars]
        name = eqn.primitive.name
        if name in BODY_OF_CALL:
            body = eqn.params[BODY_OF_CALL[name]]
            inner, body_consts = (body.jaxpr, body.consts) if hasattr(body, "consts") else (body, [])
            outputs, new = _walk(inner, body_consts, inputs, known, seen)
        elif name == "scan":
            outputs, new = _walk_scan(eqn, inputs, known, seen), [None] * len(eqn.outvars)
        else:
            result = eqn.primitive.bind(*inputs, **eqn.primitive.get_bind_params(eqn.params))
            outputs = list(result) if eqn.primitive.multiple_results else [result]
            new = _views_of(name, eqn, known)
            seen.extend(_seen(name, eqn, inputs, known, outputs))
        values |= dict(zip(eqn.outvars, outputs, strict=True))
        words |= dict(zip(eqn.outvars, new, strict=True))
    return [read(atom) for atom in jaxpr.outvars], [view(atom) for atom in jaxpr.outvars]


def _walk_scan(eqn: Any, inputs: list, known: list[Words | None], seen: list) -> list[Any]:
    """Evaluate a scan; what its body sees leaves it as further stacked results."""
    body, carried = eqn.params["jaxpr"], eqn.params["num_carry"]
    first = eqn.params["num_consts"]
    last = first + carried
    scanned = [_scanned_view(words) for words in known[last:]]
    over = next((words[0] for words in scanned if words is not None), (Factor(eqn.params["length"]),))
    views = [*known[:first], *[None] * carried, *(words and words[1:] for words in scanned)]
    inside: list[Seen] = []

    def step(carry: list, slices: list) -> tuple[list, tuple[list, list]]:
        found: list[Seen] = []
        outputs, _ = _walk(body.jaxpr, body.consts, [*inputs[:first], *carry, *slices], views, found)
        # Traced more than once; the descriptions are the same each time.
        inside[:] = _unique(found)
        return outputs[:carried], (outputs[carried:], [one.value for one in inside])

    carry, (stacked, values) = jax.lax.scan(
        step, inputs[first:last], inputs[last:], length=eqn.params["length"], reverse=eqn.params["reverse"]
    )
    seen.extend(
        one._replace(words=(over, *one.words), value=value) for one, value in zip(inside, values, strict=True)
    )
    return [*carry, *stacked]


def _scanned_view(words: Words | None) -> Words | None:
    """Words of a leaf that is scanned over: its first axis must be one index."""
    is_plain = words is not None and len(words[0]) == 1 and isinstance(words[0][0], Factor)
    return words if is_plain else None


def _views_of(name: str, eqn: Any, known: list[Words | None]) -> list[Words | None]:
    """Words of the results of an operation that only rearranges a leaf; None if it does anything else."""
    if not known or known[0] is None:
        return [None] * len(eqn.outvars)
    if name == "slice" and not any(stride != 1 for stride in eqn.params["strides"] or ()):
        starts, ends = eqn.params["start_indices"], eqn.params["limit_indices"]
        return [cut_words(known[0], [slice(*pair) for pair in zip(starts, ends, strict=True)])]
    if name in ("split", "unstack"):
        axis, sizes = eqn.params["axis"], eqn.params.get("sizes", (1,) * len(eqn.outvars))
        ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
        parts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        cut = [cut_words(known[0], [slice(None)] * axis + [part]) for part in parts]
        shapes = [variable.aval.shape for variable in eqn.outvars]
        return [words and _regrouped(words, shape) for words, shape in zip(cut, shapes, strict=True)]
    return [_view_of(name, eqn, known[0]), *[None] * (len(eqn.outvars) - 1)]


def _view_of(name: str, eqn: Any, words: Words) -> Words | None:
    shape = eqn.outvars[0].aval.shape
    if name in UNCHANGED:
        return words
    if isinstance(words[0][0] if words and words[0] else None, Slices):
        return None
    if name == "transpose":
        return tuple(words[axis] for axis in eqn.params["permutation"])
    if name == "squeeze" or (name == "reshape" and eqn.params.get("dimensions") is None):
        return _regrouped(words, shape)
    if name == "broadcast_in_dim":
        placed = dict(zip(eqn.params["broadcast_dimensions"], words, strict=True))
        return tuple(
            placed[axis] if axis in placed and word_size(placed[axis]) == size else (Factor(size),)
            for axis, size in enumerate(shape)
        )
    return None


def _regrouped(words: Words, shape: tuple[int, ...]) -> Words | None:
    """The same factors under another shape, if its borders fall between factors."""
    factors = [factor for word in words for factor in word if factor.size > 1]
    result = []
    for size in shape:
        word, product = [], 1
        while product < size and factors:
            word.append(factors.pop(0))
            product *= word[-1].size
        if product != size:
            return None
        result.append(tuple(word))
    return tuple(result)


def _seen(name: str, eqn: Any, inputs: list, known: list[Words | None], outputs: list) -> Iterator[Seen]:
    if name == "dot_general" and (known[0] is None) != (known[1] is None):
        yield from _seen_dot(eqn, inputs, known, outputs[0])
    if name == "conv_general_dilated" and known[0] is None and known[1] is not None:
        yield from _seen_conv(eqn, inputs, known[1], outputs[0])


def _seen_dot(eqn: Any, inputs: list, known: list[Words | None], output: jax.Array) -> Iterator[Seen]:
    contracted, batched = eqn.params["dimension_numbers"]
    leaf = 0 if known[0] is not None else 1
    words, data = known[leaf], inputs[1 - leaf]
    assert words is not None
    own = dict(
        zip((*contracted[1 - leaf], *batched[1 - leaf]), (*contracted[leaf], *batched[leaf]), strict=True)
    )
    on_data = _words_on(data, {axis: words[other] for axis, other in own.items()})
    yield Seen(True, on_data, data)
    free = [words[axis] for axis in range(len(words)) if axis not in (*contracted[leaf], *batched[leaf])]
    width = output.ndim - len(batched[leaf])
    first = len(batched[leaf]) + (0 if leaf == 0 else width - len(free))
    placed = {axis: words[other] for axis, other in enumerate(batched[leaf])}
    placed |= {first + position: word for position, word in enumerate(free)}
    yield Seen(False, _words_on(output, placed), output)


def _seen_conv(eqn: Any, inputs: list, words: Words, output: jax.Array) -> Iterator[Seen]:
    numbers = eqn.params["dimension_numbers"]
    if eqn.params["feature_group_count"] == 1:
        yield Seen(True, _words_on(inputs[0], {numbers.lhs_spec[1]: words[numbers.rhs_spec[1]]}), inputs[0])
    yield Seen(False, _words_on(output, {numbers.out_spec[1]: words[numbers.rhs_spec[0]]}), output)


def _words_on(value: jax.Array, placed: dict[int, Word]) -> Words:
    return tuple(placed.get(axis, (Factor(size),)) for axis, size in enumerate(value.shape))


def _unique(seen: list[Seen]) -> Iterator[Seen]:
    """Without repetitions: a value that two arrays read counts once."""
    known: set[tuple[int, Words]] = set()
    for one in seen:
        if (id(one.value), one.words) not in known:
            known.add((id(one.value), one.words))
            yield one
