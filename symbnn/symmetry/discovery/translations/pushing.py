"""A translation of one leaf, followed through the program until others have made up for it.

What is added to a value is the same for all data: a term in the amount t. It passes what is linear, moves on
into the bias that is added next, and ends where the network is blind to it.
"""

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from symbnn.symmetry.discovery.translations.blind import Blind
from symbnn.symmetry.discovery.translations.directions import direction_of
from symbnn.symmetry.discovery.translations.facts import Facts
from symbnn.symmetry.discovery.translations.terms import (
    Axis,
    Term,
    aligned,
    contracted,
    multiplied,
    product,
    raised,
    scaled,
    summed,
)
from symbnn.symmetry.discovery.translations.views import is_view, viewed
from symbnn.symmetry.program import Equation, Loop, Value


class Seen(Exception):
    """The translation does something that nothing makes up for."""


@dataclass(frozen=True)
class Moved:
    """A leaf and the term that is added to it, over the leaf's axes."""

    leaf: Value
    term: Term


class Pushing:
    """One translation on its way."""

    def __init__(
        self,
        facts: Facts,
        blind: Blind,
        barred: frozenset[Value],
        statistics: frozenset[Value],
        reaches: bool = True,
    ) -> None:
        self.facts = facts
        self.blind = blind
        self.barred = barred
        self.statistics = statistics
        """Running variances: behind them a translation would take means away from what they are means of."""
        self.reaches = reaches
        """Whether also leaves that were added earlier may make up for it."""
        self.has_reached = False
        self.moved: list[Moved] = []
        self.terms: dict[Value, list[Term]] = {}
        self.waiting: list[int] = []
        self.equations: dict[int, Equation] = {}

    def push(self, leaf: Value, term: Term) -> list[Moved] | None:
        """All leaves that move with one, itself first; None if outputs would change."""
        self.moved.append(Moved(leaf, term))
        try:
            self._note(leaf, [term])
            while self.waiting:
                equation = self.equations[heapq.heappop(self.waiting)]
                self._note(equation.results[0], list(self._follow(equation)))
        except Seen:
            return None
        changed = {one.leaf for one in self.moved}
        used = {power.leaf for one in self.moved for power in one.term.powers}
        return None if changed & used else self.moved

    def _note(self, value: Value, terms: list[Term]) -> None:
        terms = [term for term in terms if not self._is_unseen(value, term)]
        if not terms:
            return
        lengths = [math.prod(self.facts.sizes[index] for index in axis) for axis in terms[0].axes]
        if value in self.facts.outputs or lengths != list(value.shape):
            raise Seen
        self.terms[value] = terms
        for equation in self.facts.readers.get(value, ()):
            number = self.facts.order[equation]
            if number not in self.equations:
                self.equations[number] = equation
                heapq.heappush(self.waiting, number)

    def _is_unseen(self, value: Value, term: Term) -> bool:
        for axis, size in enumerate(value.shape):
            found = direction_of(term, axis) if size > 1 else None
            if found is not None and self.blind(value, axis, found[0]):
                return True
        return False

    def _follow(self, equation: Equation) -> Iterator[Term]:
        name, operands = equation.primitive, equation.operands
        changed = [number for number, operand in enumerate(operands) if operand in self.terms]
        if len(equation.results) != 1 or not equation.results[0].is_float:
            raise Seen
        if name in ("add", "sub", "add_any"):
            yield from self._added(equation, changed)
            return
        if len(changed) > 1:
            raise Seen
        which = changed[0]
        for term in self.terms[operands[which]]:
            if is_view(equation):
                yield _sure(viewed(equation, term, self.facts.sizes))
            elif name == "neg":
                yield scaled(term, -1)
            elif name in ("mul", "div"):
                yield self._multiplied(equation, which, term)
            elif name in ("max", "min"):
                # What is compared with it moves along.
                term = self._repeated(term, operands[which].shape, equation.results[0].shape)
                self._absorb(operands[1 - which], term, 1.0, equation)
                yield term
            elif name == "dot_general":
                yield from self._contracted(equation, which, term)
            elif name == "reduce_sum":
                yield summed(term, equation.params["axes"], self.facts.sizes)
            elif name in ("slice", "dynamic_slice") and not which:
                yield self._part(equation, term)
            elif name == "gather" and not which:
                yield self._gathered(equation, term)
            else:
                raise Seen

    def _added(self, equation: Equation, changed: list[int]) -> Iterator[Term]:
        signs = (1.0, -1.0 if equation.primitive == "sub" else 1.0)
        shape = equation.results[0].shape
        for which in changed:
            operand = equation.operands[which]
            for term in (self._repeated(term, operand.shape, shape) for term in self.terms[operand]):
                if len(changed) == 1 and self._made_up(equation, 1 - which, term, signs):
                    continue
                yield scaled(term, signs[which])

    def _repeated(self, term: Term, shape: tuple[int, ...], wider: tuple[int, ...]) -> Term:
        """Along axes of length 1 it is constant."""
        fresh = self.facts.sizes.axes(wider)
        axes = [term.axes[a] if shape and shape[a] == size else fresh[a] for a, size in enumerate(wider)]
        return replace(term, axes=tuple(axes))

    def _made_up(self, equation: Equation, other: int, term: Term, signs: tuple[float, float]) -> bool:
        try:
            self._absorb(equation.operands[other], term, -signs[1 - other] * signs[other], equation)
        except Seen:
            return False
        return True

    def _absorb(self, value: Value, term: Term, factor: float, reader: Equation) -> None:
        """Let a leaf behind the value, read by nothing else, change so that the value changes by the term."""
        if self.facts.readers.get(value, []) != [reader] or value in self.facts.outputs:
            raise Seen
        found, equation = self.facts.terms.get(value), self.facts.makers.get(value)
        if found is not None:
            self._move(value, found, scaled(term, factor))
            return
        if equation is None or equation.primitive not in ("add", "sub") or not self.reaches:
            raise Seen
        for which in (1, 0):
            inner = equation.operands[which]
            sign = -1.0 if equation.primitive == "sub" and which else 1.0
            if len(inner.shape) == len(value.shape) and inner not in self.terms:
                try:
                    self._absorb(inner, term, factor * sign, equation)
                except Seen:
                    continue
                self.has_reached = True
                return
        raise Seen

    def _move(self, value: Value, found: Term, wanted: Term) -> None:
        power = found.powers[0] if len(found.powers) == 1 else None
        if power is None or power.exponent != 1 or not self._is_sole(value, power.leaf):
            raise Seen
        pairs = [(axis, axis) for axis in range(len(found.axes))]
        both = aligned(wanted, found, pairs, self.facts.sizes)
        if both is None:
            raise Seen
        wanted, found = both
        own = {index for axis in found.powers[0].axes for index in axis}
        on_axes = {index for axis in wanted.axes for index in axis}
        loops = {index for index in wanted.occurring if isinstance(index, Loop)}
        if not (wanted.occurring & on_axes) | loops <= own:
            raise Seen
        term = replace(scaled(wanted, 1 / found.coefficient), axes=found.powers[0].axes)
        self.moved.append(Moved(power.leaf, term))

    def _is_sole(self, value: Value, leaf: Value) -> bool:
        """Whether the leaf is read for this value alone, and may move."""
        if leaf in self.barred or any(one.leaf is leaf for one in self.moved):
            return False
        while value is not leaf:
            equation = self.facts.makers[value]
            value = next(operand for operand in equation.operands if operand not in self.facts.known)
            if self.facts.readers[value] != [equation] or value in self.facts.outputs:
                return False
        return True

    def _multiplied(self, equation: Equation, which: int, term: Term) -> Term:
        factor = self.facts.term(equation.operands[1 - which])
        if equation.primitive == "div":
            factor = raised(factor, -1) if factor is not None and not which else None
        if factor is None or any(power.leaf in self.statistics for power in factor.powers):
            raise Seen
        return _sure(multiplied(term, factor, equation.results[0].shape, self.facts.sizes))

    def _contracted(self, equation: Equation, which: int, term: Term) -> Iterator[Term]:
        """With leaves; or with data whose sum along the term's direction is known."""
        other = equation.operands[1 - which]
        factor = self.facts.term(other)
        if factor is not None:
            terms = (term, factor) if not which else (factor, term)
            yield _sure(contracted(equation, *terms, self.facts.sizes))
            return
        sides, _ = equation.params["dimension_numbers"]
        if len(sides[0]) != 1:
            raise Seen
        found = direction_of(term, sides[which][0])
        for one in self.facts.constraints.get(other, ()):
            if found and one.axis == sides[1 - which][0] and one.direction == found[0]:
                kept = self._without(equation, which, found[1])
                yield from (product(kept, total, kept.axes) for total in one.total)
                return
        raise Seen

    def _without(self, equation: Equation, which: int, rest: Term) -> Term:
        """The axes of the product's result: constant along those of the data."""
        sides, batches = equation.params["dimension_numbers"]
        axes: list[Axis] = [rest.axes[axis] for axis in batches[which]]
        for side, operand in enumerate(equation.operands):
            free = [a for a in range(len(operand.shape)) if a not in (*sides[side], *batches[side])]
            fresh = self.facts.sizes.axes(tuple(operand.shape[axis] for axis in free))
            axes += [rest.axes[axis] for axis in free] if side == which else fresh
        return replace(rest, axes=tuple(axes))

    def _part(self, equation: Equation, term: Term) -> Term:
        before, after = equation.operands[0].shape, equation.results[0].shape
        axes = list(term.axes)
        for axis, (whole, part) in enumerate(zip(before, after, strict=True)):
            if whole != part:
                if not term.is_constant(axis):
                    raise Seen
                axes[axis] = self.facts.sizes.axes((part,))[0]
        return replace(term, axes=tuple(axes))

    def _gathered(self, equation: Equation, term: Term) -> Term:
        """Rows of what is constant along the rows."""
        params, operand, result = equation.params, equation.operands[0], equation.results[0]
        numbers = params["dimension_numbers"]
        fill = params.get("fill_value")
        dropped = (*numbers.collapsed_slice_dims, *getattr(numbers, "operand_batching_dims", ()))
        axes = list(self.facts.sizes.axes(result.shape))
        kept = [axis for axis in range(len(operand.shape)) if axis not in dropped]
        for axis, place in zip(kept, numbers.offset_dims, strict=True):
            if params["slice_sizes"][axis] == operand.shape[axis]:
                axes[place] = term.axes[axis]
            elif not term.is_constant(axis):
                raise Seen
        is_filled = fill is not None and fill == fill
        if is_filled or not all(term.is_constant(axis) for axis in dropped):
            raise Seen
        return replace(term, axes=tuple(axes))


def _sure(term: Term | None) -> Term:
    if term is None:
        raise Seen
    return term
