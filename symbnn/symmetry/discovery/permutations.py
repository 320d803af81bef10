"""Words for every axis of every value, by applying each equation's rule.

Invariant, by induction over equations: value(g · params, inputs) = g · value(params, inputs), where g acts on
a value by permuting every atom of every axis. Inputs and outputs are pinned, hence outputs do not change.
"""

from typing import Any, NamedTuple

import numpy as np

from symbnn.symmetry.discovery.axis_words import MAX_SEGMENTS, Cause, fresh, pin, resolve, unify
from symbnn.symmetry.discovery.known_values import equal_runs, period, uniform_axes
from symbnn.symmetry.discovery.rules import RULES
from symbnn.symmetry.discovery.rules.base import AxisMap, Layout, Span, Variable, layout
from symbnn.symmetry.program import Equation, Loop, Program, Value
from symbnn.symmetry.spec import Segments, Word

INPUT, OUTPUT = Cause("order of the inputs"), Cause("order of the outputs")
ITERATIONS = Cause("order of the iterations")
NOISE = "random numbers drawn along it"
RANDOM = {
    *("random_bits", "random_split", "random_fold_in", "random_seed", "random_wrap", "random_unwrap"),
    *("random_gamma", "threefry2x32", "rng_bit_generator", "rng_uniform"),
}


class Record(NamedTuple):
    """An equation with what its rule said and the word of every variable."""

    equation: Equation
    axis_map: AxisMap
    words: dict[Variable, Word]


class Permutations(NamedTuple):
    """Words of all values, resolved, and what was said about each equation."""

    words: dict[Value, tuple[Word, ...]]
    records: list[Record]
    loops: dict[Loop, Word]


def find_permutations(program: Program, num_leaves: int, known: dict[Value, float]) -> Permutations:
    """Walk the program once. The first `num_leaves` inputs are weights, the rest data."""
    permutations = Permutations({}, [], {})
    for number, value in enumerate(program.inputs):
        words = tuple(fresh(size) for size in value.shape)
        permutations.words[value] = words
        if number >= num_leaves:
            _pin_all(words, INPUT)
    for equation in program.equations:
        if any(value.size for value in equation.results) and not all(
            value in known for value in equation.results
        ):
            _apply(permutations, equation, known)
    for value in program.outputs:
        if value not in known:
            _pin_all(_words(permutations, value), OUTPUT)
    return _resolved(permutations)


def layouts(record: Record, known: dict[Value, float]) -> list[tuple[Value, Layout]]:
    """Each value of an equation that is not a known constant, with its layout."""
    equation, axis_map = record.equation, record.axis_map
    pairs = [
        *zip(equation.operands, axis_map.operands, strict=True),
        *zip(equation.results, axis_map.results, strict=True),
    ]
    return [(value, spans) for value, spans in pairs if value not in known and value.size]


def _apply(permutations: Permutations, equation: Equation, known: dict[Value, float]) -> None:
    rule = RULES.get(equation.primitive)
    axis_map = rule(equation) if rule is not None else None
    if axis_map is None:
        axis_map = _opaque(equation)
    record = Record(equation, axis_map, {})
    cause = Cause("the axis is split in two ways that do not fit", equation.primitive, equation.where)
    for value, spans in layouts(record, known):
        words = _words(permutations, value, equation)
        for span in spans:
            if span.axes:
                _unify_span(permutations, record, span, sum((words[axis] for axis in span.axes), ()), cause)
        covered = {axis for span in spans for axis in span.axes}
        for axis, word in enumerate(words):
            if axis not in covered:
                pin(word, Cause("the rule says nothing about this axis", equation.primitive, equation.where))
    counted = None if equation.operands else equation.results[0]
    for variable, reason in axis_map.pins.items():
        pin(record.words.get(variable, ()), Cause(reason, equation.primitive, equation.where, counted))
    permutations.records.append(record)


def _unify_span(permutations: Permutations, record: Record, span: Span, word: Word, cause: Cause) -> None:
    """Make the word of some axes the product, or the sum, of the words of the span's variables."""
    for variable in span.variables:
        if (loop := _loop_of(variable)) is not None and variable not in record.words:
            record.words[variable] = _loop_word(permutations, loop)
    if len(span.variables) == 1 and span.variables[0] not in record.words:
        record.words[span.variables[0]] = word
        return
    sizes = record.axis_map.sizes
    parts = [
        record.words[variable] if variable in record.words else fresh(int(sizes[variable]))
        for variable in span.variables
    ]
    record.words.update(zip(span.variables, parts, strict=True))
    unify(word, (Segments(tuple(parts)),) if span.is_sum else sum(parts, ()), cause)


def _resolved(permutations: Permutations) -> Permutations:
    """Every word as it is known after the last equation; before, any word may still be refined."""
    memo: dict[Word, Word] = {}

    def final(word: Word) -> Word:
        if word not in memo:
            memo[word] = resolve(word)
        return memo[word]

    return Permutations(
        {value: tuple(map(final, words)) for value, words in permutations.words.items()},
        [
            record._replace(words={variable: final(word) for variable, word in record.words.items()})
            for record in permutations.records
        ],
        {loop: final(word) for loop, word in permutations.loops.items()},
    )


def _opaque(equation: Equation) -> AxisMap:
    """Every axis of every value pinned."""
    values = (*equation.operands, *equation.results)
    spans = [
        layout((number, axis) for axis in range(len(value.shape))) for number, value in enumerate(values)
    ]
    reason = NOISE if equation.primitive in RANDOM else f"no rule for {equation.primitive}"
    pins = {variable: reason for each in spans for span in each for variable in span.variables}
    split = len(equation.operands)
    return AxisMap(tuple(spans[:split]), tuple(spans[split:]), pins)


def _words(permutations: Permutations, value: Value, equation: Equation | None = None) -> tuple[Word, ...]:
    if value not in permutations.words:
        words = tuple(fresh(size) for size in value.shape)
        if value.constant is not None:
            cause = Cause("meets a constant that differs along it", *_place(equation), value)
            is_uniform = uniform_axes(value.constant)
            words = tuple(
                word if is_uniform[axis] else _constant_word(value.constant, axis, cause)
                for axis, word in enumerate(words)
            )
        permutations.words[value] = words
    return permutations.words[value]


def _constant_word(array: np.ndarray, axis: int, cause: Cause) -> Word:
    """Positions where a constant is equal may be relabelled, if they are neighbours or repeat in turn."""
    size, runs = array.shape[axis], equal_runs(array, axis)
    if len(runs) < min(size, MAX_SEGMENTS):
        return (Segments(tuple(map(fresh, runs))),)
    step = period(array, axis)
    return (*fresh(size // step), *fresh(step, (cause,)))


def _place(equation: Equation | None) -> tuple[str, Any]:
    return ("", ()) if equation is None else (equation.primitive, equation.where)


def _loop_of(variable: Variable) -> Loop | None:
    is_loop = isinstance(variable, tuple) and len(variable) == 2 and isinstance(variable[1], Loop)
    return variable[1] if is_loop else None  # type: ignore[index]


def _loop_word(permutations: Permutations, loop: Loop) -> Word:
    causes = (ITERATIONS,) if loop.is_ordered else ()
    return permutations.loops.setdefault(loop, fresh(loop.length, causes))


def _pin_all(words: tuple[Word, ...], cause: Cause) -> None:
    for word in words:
        pin(word, cause)
