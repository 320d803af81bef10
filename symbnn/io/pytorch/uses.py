"""How a network uses each of its leaves, read from its program and not from names.

The program is walked once. Values that depend on weights alone remember which digits of which leaf lie on
which axis; values that depend on data remember what their axes mean (`axes`). Where the two meet, the leaf is
used: as a matrix, as a convolution kernel, as rows that are looked up, or element by element. What an
equation does to axes is said by the rules of `symmetry`, so primitives that users register are known too.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from jax.extend.core import ClosedJaxpr

from symbnn.io.pytorch.axes import Digit, Places, as_tokens, digits_of, meet, pairs, part, size_of
from symbnn.io.pytorch.passing import Word, Words, moved, placed, variables
from symbnn.symmetry.discovery.rules import RULES, AxisMap, elementwise_rule
from symbnn.symmetry.program import Equation, Value, flatten

Kind = Literal["matrix", "convolution", "rows", "elementwise"]
ROOTS = ("sqrt", "rsqrt", "pow")


class Use(NamedTuple):
    """One use of a leaf."""

    kind: Kind
    shape: tuple[int, ...]
    """PyTorch's, of a layer that does the same."""
    outputs: tuple[Digit, ...] = ()
    """Digits in the order of the program; all of them unless the use is a product."""
    inputs: tuple[Digit, ...] = ()
    window: tuple[Digit, ...] = ()
    reads: tuple[Word, ...] = ()
    """What the inputs are; of an elementwise use, what each axis with digits is combined with."""
    primitive: str = ""
    is_second: bool = False
    is_root: bool = False
    """Whether a square root was taken on the way, as of a variance."""


class Unusable(NamedTuple):
    """A use that no layer of PyTorch has."""

    reason: str


def find_uses(traced: ClosedJaxpr, names: list[str]) -> dict[str, tuple[Use | Unusable, ...]]:
    """Every leaf that the outputs depend on, in the order of the program, with its uses.

    `names` are those of the leaves, the first inputs of the traced function; the other inputs are data.
    """
    program = flatten(traced)
    walk = _Walk(names, program.inputs, _depends_on(program.equations, program.inputs[len(names) :]))
    for equation in program.equations:
        if equation.primitive != "link" and all(value.size for value in equation.results):
            walk.read(equation)
    return {name: tuple(dict.fromkeys(map(walk.final, uses))) for name, uses in walk.uses.items()}


class _Walk:
    def __init__(self, names: list[str], inputs: list[Value], data: set[Value]) -> None:
        self.data = data
        self.uses: dict[str, list[Use | Unusable]] = {}
        self.places: dict[Value, tuple[Word, ...]] = {}
        # Per value, the leaves it is made of, each with the words of its digits.
        self.origins: dict[Value, dict[str, Words]] = {}
        self.roots: dict[Value, set[str]] = {}
        # What unsure axes, by number, turned out to be.
        self.learnt: dict[int, Places] = {}
        self.num_unsure = 0
        for name, value in zip(names, inputs[: len(names)], strict=True):
            self.origins[value] = {name: digits_of(value.shape)}
        for value in inputs[len(names) :]:
            self.places[value] = tuple(
                (Places(size, "input", axis),) if size > 1 else () for axis, size in enumerate(value.shape)
            )

    def read(self, equation: Equation) -> None:
        """Follow one equation."""
        rule = RULES.get(equation.primitive)
        axis_map = rule(equation) if rule is not None else None
        if self.data.isdisjoint(equation.results):
            self.pass_on(equation, axis_map)
            return
        for index, value in enumerate(equation.results):
            places = self.result(equation, axis_map, index)
            self.places[value] = tuple(tuple(map(self.numbered, word)) for word in places)
        for number, value in enumerate(equation.operands):
            for name, words in self.origins.get(value, {}).items():
                self.uses.setdefault(name, []).append(self.use(equation, number, name, words))

    def numbered(self, place: Places) -> Places:
        """The place, with a number of its own if it is unsure."""
        if place.meaning != "unsure" or place.number:
            return place
        self.num_unsure += 1
        return Places(place.size, "unsure", self.num_unsure)

    def join(self, first: Word, second: Word) -> Word:
        """`meet`, and what it tells about unsure axes."""
        for both in pairs(first, second) or ():
            for one, other in (both, both[::-1]):
                if (
                    one.meaning == "unsure"
                    and one.number
                    and other.meaning in ("channel", "position", "token", "plain")
                ):
                    self.learnt.setdefault(one.number, other)
        return meet(first, second)

    def final(self, use: Use | Unusable) -> Use | Unusable:
        """The use, with what was learnt after it."""
        if isinstance(use, Unusable):
            return use
        return use._replace(
            reads=tuple(
                tuple(
                    self.learnt[place.number].resized(place.size)
                    if place.meaning == "unsure" and place.number in self.learnt
                    else place
                    for place in word
                )
                for word in use.reads
            )
        )

    def pass_on(self, equation: Equation, axis_map: AxisMap | None) -> None:
        """Weights that become other weights."""
        for index, result in enumerate(equation.results):
            found: dict[str, Words] = {}
            for number, value in enumerate(equation.operands):
                for name, words in self.origins.get(value, {}).items():
                    now = moved(axis_map, number, words, index, result.shape)
                    before = found.get(name, now)
                    found[name] = tuple(old or new for old, new in zip(before, now, strict=True))
                    is_root = equation.primitive in ROOTS or name in self.roots.get(value, ())
                    self.roots.setdefault(result, set()).update([name] if is_root else [])
            self.origins[result] = found

    def use(self, equation: Equation, number: int, name: str, words: Words) -> Use | Unusable:
        """What the equation does with a leaf that is its operand of that number."""
        known = [word for word in words if word is not None]
        found = None
        if len(known) == len(words):
            if equation.primitive == "dot_general":
                found = self.matrix(equation, number, known)
            elif equation.primitive == "conv_general_dilated":
                found = self.convolution(equation, number, known)
            elif equation.primitive == "gather" and number == 0:
                found = Use("rows", equation.operands[0].shape, outputs=sum(known, ()))
            elif RULES.get(equation.primitive) is elementwise_rule or equation.primitive == "concatenate":
                found = self.elementwise(equation, known)
        if found is None:
            return Unusable(f"{equation.primitive!r} uses it as no layer of PyTorch does")
        is_root = name in self.roots.get(equation.operands[number], ())
        return found._replace(primitive=equation.primitive, is_second=number == 1, is_root=is_root)

    def matrix(self, equation: Equation, number: int, words: list[Word]) -> Use | None:
        """A matrix product: contracted axes are inputs, in the order in which the data has them."""
        contracted, batched = equation.params["dimension_numbers"]
        data = self.places.get(equation.operands[1 - number])
        if batched[number] or data is None:
            return None
        sides = sorted(zip(contracted[1 - number], contracted[number], strict=True))
        free = [word for axis, word in enumerate(words) if axis not in contracted[number]]
        outputs, inputs = sum(free, ()), sum((words[own] for _, own in sides), ())
        reads = sum((data[axis] for axis, _ in sides), ())
        return Use("matrix", (size_of(outputs), size_of(inputs)), outputs, inputs, reads=(reads,))

    def convolution(self, equation: Equation, number: int, words: list[Word]) -> Use | None:
        """A convolution, but not one that PyTorch calls transposed, whose kernels have another layout."""
        params, data = equation.params, self.places.get(equation.operands[0])
        is_plain = params["batch_group_count"] == 1 and set(params["lhs_dilation"]) <= {1}
        if number != 1 or not is_plain or data is None:
            return None
        numbers = params["dimension_numbers"]
        outputs, inputs, *window = (words[axis] for axis in numbers.rhs_spec)
        shape = tuple(equation.operands[1].shape[axis] for axis in numbers.rhs_spec)
        reads = data[numbers.lhs_spec[1]]
        if params["feature_group_count"] > 1:
            # Each group reads a part of the channels.
            reads = part(reads, size_of(inputs))
        return Use("convolution", shape, outputs, inputs, sum(window, ()), (reads,))

    def elementwise(self, equation: Equation, words: list[Word]) -> Use:
        """An operation on corresponding elements, or a part of a concatenation."""
        places, kept = self.places[equation.results[0]], [axis for axis, word in enumerate(words) if word]
        reads = tuple(part(places[axis], size_of(words[axis])) for axis in kept)
        if equation.primitive != "concatenate":
            reads = tuple(places[axis] for axis in kept)
        outputs = sum((words[axis] for axis in kept), ())
        return Use("elementwise", (size_of(outputs),), outputs, reads=reads)

    def result(self, equation: Equation, axis_map: AxisMap | None, index: int) -> tuple[Word, ...]:
        """What the axes of a result that depends on data mean."""
        shape = equation.results[index].shape
        if equation.primitive == "conv_general_dilated":
            return _image(equation, shape)
        found: dict[Any, Word] = {}
        for number, value in enumerate(equation.operands):
            if value not in self.places or axis_map is None:
                continue
            for variable, word in variables(self.places[value], axis_map, axis_map.operands[number]).items():
                # Pinned variables are reversed, accumulated or sorted.
                ordered = part(word, size_of(word)) if variable in axis_map.pins else word
                found[variable] = self.join(found[variable], ordered) if variable in found else ordered
        placed_words = placed(axis_map, index, found, shape)
        words = tuple(
            self.guess(equation, axis, size) if word is None else word
            for axis, (word, size) in enumerate(zip(placed_words, shape, strict=True))
        )
        return as_tokens(words) if _makes_tokens(found, words) else words

    def guess(self, equation: Equation, axis: int, size: int) -> Word:
        """An axis that no rule follows: units of a matrix, or an axis that was pooled, padded or made."""
        if equation.primitive in ("dot_general", "gather"):
            is_weight = any(self.origins.get(value) for value in equation.operands)
            return (Places(size, "plain" if is_weight else "unsure"),)
        rank, operands = len(equation.results[0].shape), [v for v in equation.operands if v in self.places]
        if equation.primitive != "reshape":
            alike = [self.places[value][axis] for value in operands if len(value.shape) == rank]
            if alike:
                return part(functools.reduce(meet, alike), size)
        is_mixed = any(len(word) > 1 for value in operands for word in self.places[value])
        return (Places(size, "mixed" if is_mixed or equation.primitive == "reshape" else "unsure"),)


def _makes_tokens(before: Mapping[Any, Word], after: Sequence[Word]) -> bool:
    """Whether PyTorch may have to put its channels last here, or merges positions as a sequence has them.

    A sum over the channels of every position is that of a dense layer or of a norm, which PyTorch has for the
    last axis only; and who merges positions, but not the channels, makes tokens.
    """
    meanings = [{place.meaning for place in word} for word in after]
    is_summed = any("channel" in {p.meaning for p in word} for word in before.values()) and not any(
        "channel" in meaning for meaning in meanings
    )
    is_merged = any(
        sum(place.meaning == "position" for place in word) > 1 and "channel" not in meaning
        for word, meaning in zip(after, meanings, strict=True)
    )
    return is_summed or is_merged


def _image(equation: Equation, shape: tuple[int, ...]) -> tuple[Word, ...]:
    """Images whose channels come first are as in PyTorch: plain, whatever is done with them."""
    batch, channel, *positions = equation.params["dimension_numbers"].out_spec
    is_last = all(channel > position for position in positions)
    places = {batch: Places(shape[batch], "input")}
    places[channel] = Places(shape[channel], "channel" if is_last else "plain")
    for number, axis in enumerate(positions, start=1):
        places[axis] = Places(shape[axis], "position" if is_last else "plain", number)
    return tuple((places[axis],) if size > 1 else () for axis, size in enumerate(shape))


def _depends_on(equations: Sequence[Equation], inputs: Iterable[Value]) -> set[Value]:
    """Values that depend on the inputs; a fixpoint, because a loop's carry may turn out to."""
    data, count = set(inputs), -1
    while count != len(data):
        count = len(data)
        for equation in equations:
            if not data.isdisjoint(equation.operands):
                data.update(equation.results)
    return data
