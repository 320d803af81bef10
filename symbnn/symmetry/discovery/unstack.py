"""Leaves that hold several layers, and are only ever read in parts: `W[0]`, `W[1]`; `qkv.reshape(3, ...)[0]`.

Where a program reads a leaf, or what is computed from it, in no other way, the parts are as good as leaves of
their own: the same function of the same numbers. They are put in its place before anything is unified, so
every layer, and each of queries, keys and values, gets its own permutations and exponents. Equations between
the leaf and where it is read are written once for every part (`digits`). The parts are put together again
when the spec is written.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from symbnn.symmetry.discovery.digits import READERS, Digit, Range, of_part, passed, reading
from symbnn.symmetry.program import Equation, Program, Value, constant, live
from symbnn.symmetry.spec import Factor, Leaf, Slices
from symbnn.symmetry.spec.explain import slice_name
from symbnn.symmetry.spec.translations import Cut, Place

MAX_PARTS = 256
"""As many layers as a leaf may hold; beyond, they share their permutations."""


class Cutting(NamedTuple):
    """How a leaf falls into parts: along what, and the names of the parts in order."""

    digit: Digit
    labels: list[str]
    ranges: list[Range]


class Sliced(NamedTuple):
    """A program whose leaves are parts, by the leaf that they come from."""

    program: Program
    names: dict[str, Value]
    parts: dict[str, Cutting]
    """Of every leaf that was cut, and of every part that was cut again."""


class _Piece(NamedTuple):
    """Values that are only read in parts of one digit, back to the leaves they come from."""

    digits: dict[Value, Digit]
    tiles: list[Range]
    read: tuple[Range, ...]
    """Those of the tiles that something reads."""


def take_apart(program: Program, names: dict[str, Value], *, whole: frozenset[str] = frozenset()) -> Sliced:
    """Replace every leaf that is only read in disjoint parts by those parts; not those of `whole`."""
    sliced = Sliced(program, dict(names), {})
    while (cut := _cut_once(sliced, whole)) is not None:
        sliced = cut
    return sliced


def put_together(
    leaves: Mapping[str, Leaf], names: Mapping[str, Value], parts: Mapping[str, Cutting]
) -> tuple[Leaf, ...]:
    """Leaves as the caller has them: parts described one by one on the array that holds them."""
    return tuple(_joined(name, leaves, parts) for name in names)


def disagreeing(leaves: Mapping[str, Leaf], parts: Mapping[str, Cutting]) -> frozenset[str]:
    """Leaves whose parts rescale around different shifts, of which an array can have only one."""
    return frozenset(name for name in parts if len(_shifts(list(_within(name, leaves, parts)))) > 1)


def places(sliced: Sliced, leaves: Iterable[str]) -> Iterator[tuple[Value, Place]]:
    """Where every leaf of the cut program lies in the leaves that the caller has."""

    def within(leaf: str, name: str, cuts: tuple[Cut, ...]) -> Iterator[tuple[Value, Place]]:
        if name not in sliced.parts:
            yield sliced.names[name], Place(leaf, cuts, name)
            return
        digit, labels, ranges = sliced.parts[name]
        for label, (start, length) in zip(labels, ranges, strict=True):
            cut = Cut(digit.axis, digit.outer, start * digit.inner, length * digit.inner)
            yield from within(leaf, label, (*cuts, cut))

    for leaf in leaves:
        yield from within(leaf, leaf, ())


def remarks(program: Program, names: dict[str, Value]) -> Iterator[str]:
    """Notes on leaves that are indexed, but whose slices share permutations."""
    readers = program.readers()
    for name, leaf in names.items():
        for axis in range(len(leaf.shape)):
            cut = [equation for equation in readers.get(leaf, []) if _is_index(equation, axis)]
            if len(leaf.shape) > 1 and (len(cut) > 1 or any(e.primitive != "slice" for e in cut)):
                yield (
                    f"leaf {name!r} axis {axis} is indexed {_obstacle(readers[leaf])}, so its "
                    "slices share their permutations; to free them, give each slice a leaf of its own, or "
                    "scan over the first axis"
                )


def _cut_once(sliced: Sliced, whole: frozenset[str]) -> Sliced | None:
    """The program with all leaves cut that can be; None if there are none."""
    program, names = sliced.program, sliced.names
    replaced, cuttings = _pieces(program, {value: name for name, value in names.items() if name not in whole})
    if not cuttings:
        return None
    equations = [new for equation in program.equations for new in _rewritten(equation, replaced)]
    leaves: dict[str, Value] = {}
    for name, value in names.items():
        labels = cuttings[name].labels if name in cuttings else [name]
        if name in cuttings and any(label in names for label in labels):
            return _cut_once(sliced, whole | {name})
        leaves.update(zip(labels, replaced[value].values() if name in cuttings else [value], strict=True))
    data = program.inputs[len(names) :]
    new = Program(live(equations, program.outputs), [*leaves.values(), *data], program.outputs)
    return Sliced(new, leaves, sliced.parts | cuttings)


def _pieces(
    program: Program, cuttable: Mapping[Value, str]
) -> tuple[dict[Value, dict[Range, Value]], dict[str, Cutting]]:
    """Values to be replaced by their parts, and the leaves among them by name."""
    readers = program.readers()
    makers = {result: equation for equation in program.equations for result in equation.results}
    replaced: dict[Value, dict[Range, Value]] = {}
    cuttings: dict[str, Cutting] = {}
    for value, equations in readers.items():
        if value in replaced or equations[0].primitive not in READERS:
            continue
        piece = _traced_back(value, makers, readers, cuttable)
        is_free = piece is not None and not {*piece.digits} & {*replaced, *program.outputs}
        if piece is None or not is_free or not _is_worth(piece, value, cuttable):
            continue
        for each, digit in piece.digits.items():
            replaced[each] = {one: _part(each, digit, one) for one in piece.tiles}
            if each in cuttable:
                labels = _labels(cuttable[each], digit, piece.tiles)
                cuttings[cuttable[each]] = Cutting(digit, labels, piece.tiles)
    return replaced, cuttings


def _traced_back(
    value: Value,
    makers: Mapping[Value, Equation],
    readers: Mapping[Value, list[Equation]],
    cuttable: Mapping[Value, str],
) -> _Piece | None:
    """All values whose parts are needed if this one is computed in parts; None if one is needed whole."""
    first = reading(readers[value][0])
    digits: dict[Value, Digit] = {value: first.digit} if first else {}
    ranges: dict[Range, None] = {}
    pending = list(digits)
    while pending:
        current = pending.pop()
        maker = None if current in cuttable else makers.get(current)
        inner = passed(maker, digits[current]) if maker else ([] if current in cuttable else None)
        if inner is None:
            return None
        for operand, digit in zip(maker.operands if maker else (), inner, strict=True):
            if digit is not None and operand not in digits:
                digits[operand] = digit
                pending += [operand] if operand.constant is None else []
    for current, digit in digits.items():
        for equation in readers[current]:
            found = reading(equation)
            if found is not None and found.digit == digit:
                ranges |= dict.fromkeys(found.ranges)
            elif not _passes(equation, digits):
                return None
    tiles = _tiles(list(ranges), first.digit.middle) if first else None
    return None if tiles is None else _Piece(digits, tiles, tuple(ranges))


def _passes(equation: Equation, digits: Mapping[Value, Digit]) -> bool:
    """Whether parts of its result are all that is needed, and follow from parts of its operands."""
    if equation.results[0] not in digits:
        return False
    inner = passed(equation, digits[equation.results[0]])
    if inner is None:
        return False
    pairs = zip(equation.operands, inner, strict=True)
    return all(digits[operand] == digit for operand, digit in pairs if operand in digits)


def _tiles(ranges: list[Range], count: int) -> list[Range] | None:
    """The ranges and the gaps between them, in order; None if they overlap."""
    tiles, end = [], 0
    for start, length in sorted(ranges):
        if start < end or not length:
            return None
        tiles += [Range(end, start - end)] if start > end else []
        tiles.append(Range(start, length))
        end = start + length
    tiles += [Range(end, count - end)] if end < count else []
    return tiles if 1 < len(tiles) <= MAX_PARTS else None


def _is_worth(piece: _Piece, value: Value, cuttable: Mapping[Value, str]) -> bool:
    """Whether parts are freer than segments of an axis, which words have anyway.

    They are where a leaf holds arrays of its own along its first axis, and where single positions are read of
    an index that has others beside it, on its axis or on further ones.
    """
    leaves = {leaf: digit for leaf, digit in piece.digits.items() if leaf in cuttable}
    if value in leaves and piece.digits[value].axis == 0 and len(value.shape) > 1:
        return True
    return all(length == 1 for _, length in piece.read) and any(
        digit.outer * digit.inner > 1 or len(leaf.shape) > 2 for leaf, digit in leaves.items()
    )


def _part(value: Value, digit: Digit, one: Range) -> Value:
    shape = digit.taken(value.shape, one.length)
    if value.constant is None:
        return Value(shape, value.dtype, value.loops)
    before, after = value.shape[: digit.axis], value.shape[digit.axis + 1 :]
    nested = value.constant.reshape(*before, digit.outer, digit.middle, digit.inner, *after)
    positions = range(one.start, one.start + one.length)
    return constant(nested.take(positions, axis=digit.axis + 1).reshape(shape))


def _labels(name: str, digit: Digit, ranges: list[Range]) -> list[str]:
    return [
        slice_name(name, digit.axis, digit.outer, one.start * digit.inner, one.length * digit.inner)
        for one in ranges
    ]


def _rewritten(equation: Equation, replaced: Mapping[Value, Mapping[Range, Value]]) -> Iterator[Equation]:
    parts = replaced.get(equation.results[0])
    read = reading(equation) if equation.operands and equation.operands[0] in replaced else None
    if parts is not None:
        for one, result in parts.items():
            yield of_part(equation, {v: replaced[v][one] for v in equation.operands if v in replaced}, result)
    elif read is not None:
        is_stack = equation.primitive == "unstack"
        name, params = ("squeeze", {"dimensions": (read.digit.axis,)}) if is_stack else ("copy", {})
        for one, result in zip(read.ranges, equation.results, strict=True):
            part = replaced[equation.operands[0]][one]
            yield Equation(name, params, (part,), (result,), equation.where, (True,))
    else:
        yield equation


def _joined(name: str, leaves: Mapping[str, Leaf], parts: Mapping[str, Cutting]) -> Leaf:
    if name not in parts:
        return leaves[name]
    digit, labels, _ = parts[name]
    inner = [_joined(label, leaves, parts) for label in labels]
    slices = Slices(tuple(leaf.axes for leaf in inner), digit.axis, digit.outer)
    shape = digit.taken(inner[0].shape, digit.middle)
    words = ((slices,), *((Factor(size),) for size in shape[1:]))
    shift = next(iter(_shifts(inner)), 0.0)
    return Leaf(name, shape, words, shift, any(leaf.is_statistic for leaf in inner))


def _within(name: str, leaves: Mapping[str, Leaf], parts: Mapping[str, Cutting]) -> Iterator[Leaf]:
    """The parts that a leaf is made of in the end."""
    if name not in parts:
        yield leaves[name]
        return
    for label in parts[name].labels:
        yield from _within(label, leaves, parts)


def _shifts(leaves: list[Leaf]) -> dict[float, None]:
    scaled = [leaf for leaf in leaves if any(any(factor.scales) for _, factor in leaf.factors())]
    return dict.fromkeys(leaf.shift for leaf in scaled)


def _is_index(equation: Equation, axis: int) -> bool:
    """Whether it takes single positions of an axis."""
    if equation.primitive in ("slice", "dynamic_slice"):
        return equation.results[0].shape[axis] == 1 < equation.operands[0].shape[axis]
    return equation.primitive == "unstack" and equation.params["axis"] == axis


def _obstacle(readers: list[Equation]) -> str:
    if any(equation.primitive == "dynamic_slice" for equation in readers):
        return "by a computed index"
    others = [e.primitive for e in readers if e.primitive not in READERS]
    return (
        f"but also read as a whole (by `{others[0]}`)" if others else "in slices that overlap or have steps"
    )
