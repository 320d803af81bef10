"""Leaves that hold several layers: one array, read slice by slice along its first axis (`W[0]`, `W[1]`, ...).

Where a program reads a leaf in no other way, its slices are as good as leaves of their own: the same function
of the same numbers. They are put in its place before anything is unified, so every layer gets its own
permutations, and put together again when the spec is written.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from symbnn.symmetry.program import Equation, Program, Value
from symbnn.symmetry.spec import Factor, Leaf, Slices
from symbnn.symmetry.spec.explain import slice_name

INDEXED_APART = ("slice", "split", "unstack")


class Range(NamedTuple):
    """Positions along the first axis."""

    start: int
    length: int


class Sliced(NamedTuple):
    """A program whose leaves are slices, by the leaf that they come from."""

    program: Program
    names: dict[str, Value]
    parts: dict[str, list[str]]
    """Names of the slices of every leaf that has any, in order."""


def take_apart(program: Program, names: dict[str, Value], *, whole: frozenset[str] = frozenset()) -> Sliced:
    """Replace every leaf that is only read in disjoint slices by those slices; not those of `whole`."""
    replaced: dict[Value, dict[Range, Value]] = {}
    leaves: dict[str, Value] = {}
    parts: dict[str, list[str]] = {}
    readers = program.readers()
    for name, leaf in names.items():
        ranges = _ranges(program, leaf, readers.get(leaf, [])) if name not in whole else []
        labels = [slice_name(name, *one) for one in ranges]
        if not ranges or any(label in names for label in labels):
            leaves[name] = leaf
            continue
        values = [Value((one.length, *leaf.shape[1:]), leaf.dtype) for one in ranges]
        leaves.update(zip(labels, values, strict=True))
        replaced[leaf] = dict(zip(ranges, values, strict=True))
        parts[name] = labels
    equations = [new for equation in program.equations for new in _rewritten(equation, replaced)]
    data = program.inputs[len(names) :]
    return Sliced(Program(equations, [*leaves.values(), *data], program.outputs), leaves, parts)


def put_together(
    leaves: Mapping[str, Leaf], names: Mapping[str, Value], parts: dict[str, list[str]]
) -> tuple[Leaf, ...]:
    """Leaves as the caller has them: slices described one by one on the array that holds them."""
    return tuple(
        _joined(name, names[name].shape, [leaves[part] for part in parts[name]])
        if name in parts
        else leaves[name]
        for name in names
    )


def disagreeing(leaves: Mapping[str, Leaf], parts: dict[str, list[str]]) -> frozenset[str]:
    """Leaves whose slices rescale around different shifts, of which an array can have only one."""
    return frozenset(
        name for name, labels in parts.items() if len(_shifts([leaves[part] for part in labels])) > 1
    )


def remarks(program: Program, names: dict[str, Value]) -> Iterator[str]:
    """Notes on leaves that are indexed, but whose slices share permutations."""
    readers = program.readers()
    for name, leaf in names.items():
        for axis in range(len(leaf.shape)):
            cut = [equation for equation in readers.get(leaf, []) if _is_index(equation, axis)]
            if len(leaf.shape) > 1 and (len(cut) > 1 or any(e.primitive != "slice" for e in cut)):
                yield (
                    f"leaf {name!r} axis {axis} is indexed {_obstacle(leaf, axis, readers[leaf])}, so its "
                    "slices share their permutations; to free them, give each slice a leaf of its own, or "
                    "scan over the first axis"
                )


def _ranges(program: Program, leaf: Value, readers: list[Equation]) -> list[Range]:
    """The slices that tile a leaf's first axis, those that nothing reads too; none if there is other use."""
    if len(leaf.shape) < 2 or not readers or leaf in program.outputs:
        return []
    read = [_read_ranges(equation) for equation in readers]
    if any(not ranges for ranges in read):
        return []
    found = sorted({one for ranges in read for one in ranges})
    tiles, end = [], 0
    for start, length in found:
        if start < end or not length:
            return []
        tiles += [Range(end, start - end)] if start > end else []
        tiles.append(Range(start, length))
        end = start + length
    tiles += [Range(end, leaf.shape[0] - end)] if end < leaf.shape[0] else []
    return tiles if len(tiles) > 1 else []


def _read_ranges(equation: Equation) -> list[Range]:
    """The slices of the first axis that an equation takes; none if it does anything else."""
    params, shape = equation.params, equation.operands[0].shape
    if equation.primitive == "unstack" and params["axis"] == 0:
        return [Range(start, 1) for start in range(shape[0])]
    if equation.primitive == "split" and params["axis"] == 0:
        sizes = [int(size) for size in params["sizes"]]
        return [Range(sum(sizes[:number]), size) for number, size in enumerate(sizes)]
    if equation.primitive != "slice" or not _is_whole_beyond_first(equation):
        return []
    return [Range(params["start_indices"][0], params["limit_indices"][0] - params["start_indices"][0])]


def _is_whole_beyond_first(equation: Equation) -> bool:
    params, shape = equation.params, equation.operands[0].shape
    is_plain = not params["strides"] or all(stride == 1 for stride in params["strides"])
    return (
        is_plain and not any(params["start_indices"][1:]) and tuple(params["limit_indices"][1:]) == shape[1:]
    )


def _rewritten(equation: Equation, replaced: dict[Value, dict[Range, Value]]) -> Iterator[Equation]:
    slices = replaced.get(equation.operands[0]) if equation.operands else None
    if slices is None:
        yield equation
        return
    name, params = ("squeeze", {"dimensions": (0,)}) if equation.primitive == "unstack" else ("copy", {})
    for one, result, is_used in zip(_read_ranges(equation), equation.results, equation.is_used, strict=True):
        if is_used:
            yield Equation(name, params, (slices[one],), (result,), equation.where, (True,))


def _joined(name: str, shape: tuple[int, ...], leaves: list[Leaf]) -> Leaf:
    slices = Slices(tuple(leaf.axes for leaf in leaves))
    shift = next(iter(_shifts(leaves)), 0.0)
    words = ((slices,), *((Factor(size),) for size in shape[1:]))
    return Leaf(name, shape, words, shift, any(leaf.is_statistic for leaf in leaves))


def _shifts(leaves: list[Leaf]) -> dict[float, None]:
    scaled = [leaf for leaf in leaves if any(any(factor.scales) for _, factor in leaf.factors())]
    return dict.fromkeys(leaf.shift for leaf in scaled)


def _is_index(equation: Equation, axis: int) -> bool:
    """Whether it takes single positions of an axis."""
    if equation.primitive in ("slice", "dynamic_slice"):
        return equation.results[0].shape[axis] == 1 < equation.operands[0].shape[axis]
    return equation.primitive == "unstack" and equation.params["axis"] == axis


def _obstacle(leaf: Value, axis: int, readers: list[Equation]) -> str:
    if any(equation.primitive == "dynamic_slice" for equation in readers):
        return "by a computed index"
    if axis:
        return "on an axis that is not its first"
    others = [e.primitive for e in readers if e.primitive not in INDEXED_APART]
    return (
        f"but also read as a whole (by `{others[0]}`)" if others else "in slices that overlap or have steps"
    )
