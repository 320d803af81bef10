"""Wrong rules must be caught by random programs: the tests of `test_discover_fuzz` can fail."""

import numpy as np
import pytest

from symbnn.symmetry.discovery import axis_words, fibres, kinds, known_values, ties
from symbnn.symmetry.discovery import permutations as first_pass
from symbnn.symmetry.discovery.exponent_rules import EXPONENT_RULES, equal, equal_ignoring_constants
from symbnn.symmetry.discovery.rules import RULES, AxisMap, Span, elementwise_rule, layout
from tests.symmetry.discovery.fuzz_elements import find_and_try
from tests.symmetry.discovery.fuzz_programs import CONSTANT, random_names


def without_pins(name):
    rule = RULES[name]
    return lambda equation: rule(equation)._replace(pins={})


def sort_in_place(equation):
    same = layout(range(len(equation.results[0].shape)))
    return AxisMap((same,), (same,))


def gather_in_place(equation):
    same = layout(range(len(equation.results[0].shape)))
    indices = layout(("index", axis) for axis in range(len(equation.operands[1].shape)))
    return AxisMap((same, indices), (same,))


def concatenate_backwards(equation):
    aligned = RULES_BEFORE["concatenate"](equation)
    results = tuple(
        Span(span.axes, span.variables[::-1], span.is_sum) if span.is_sum else span
        for span in aligned.results[0]
    )
    return aligned._replace(results=(results,))


def gather_without_repetition(equation):
    """Forgets that an operand is constant along the indices."""
    aligned = RULES_BEFORE["gather"](equation)
    operand = tuple(span for span in aligned.operands[0] if span.axes)
    return aligned._replace(operands=(operand, *aligned.operands[1:]))


RULES_BEFORE = dict(RULES)
SPANS_BEFORE = fibres._spans
# Wrong on purpose: (what is replaced, by what, the operation that must show it).
WRONG_RULES = {
    "cumsum": ("cumsum", without_pins("cumsum"), "cumsum"),
    "argmax": ("argmax", without_pins("argmax"), "argmax"),
    "reverse": ("rev", without_pins("rev"), "reverse"),
    "sort": ("sort", sort_in_place, "sort"),
    "gather": ("gather", gather_in_place, "gather"),
    "roll": ("concatenate", concatenate_backwards, "roll"),
    "iota": ("iota", without_pins("iota"), "position"),
    "cumsum of experts": ("cumsum", without_pins("cumsum"), "experts/hidden/accumulated"),
    "experts reversed": ("rev", without_pins("rev"), "experts/hidden/reversed"),
    "experts gathered": ("gather", gather_in_place, "experts/hidden/gathered"),
    "experts stacked": ("stack", without_pins("stack"), "experts/hidden/stacked"),
    "experts rolled": ("concatenate", concatenate_backwards, "experts/hidden/rolled"),
    "fourier": ("fft", elementwise_rule, "fourier of units"),
    "row repeated": ("gather", gather_without_repetition, "experts/hidden/one row"),
}
WRONG_EXPONENTS = {
    "tanh scales": ("tanh", (equal, equal), "tanh"),
    "max flips": ("max", (EXPONENT_RULES["max"][0], equal), "relu"),
    "exp scales": ("exp", (equal, equal), "exp"),
    "mul is linear": ("mul", (equal, equal), "gain"),
    "sine scales": ("sin", (equal, equal), "sine"),
    "messages onto constants scale": (
        "scatter-max",
        (equal_ignoring_constants, equal_ignoring_constants),
        "largest message or one",
    ),
    "padding scales": ("pad", (equal_ignoring_constants, equal), "pad with one"),
}


WRONG_KINDS = {
    "tanh mixes": ("tanh", kinds._passed, "tanh"),
    "sine mixes": ("sin", kinds._passed, "sine"),
    "exp mixes": ("exp", kinds._passed, "exponential"),
    "products mix": ("mul", lambda uses: 1, "square kept"),
    "a product is always summed": ("mul", lambda uses: min(2, kinds._product(uses) or 2), "square times"),
    "squares mix": ("integer_pow", lambda uses: 1, "cube"),
    "quotients mix": ("div", kinds._passed, "reciprocal"),
    "orders mix": ("sort", lambda uses: 1, "sorted only"),
    "comparisons mix": ("gt", lambda uses: 0, "above a half"),
}


def test_scores_taken_for_different_are_caught(monkeypatch):
    monkeypatch.setattr(ties.Ties, "are_apart", lambda self, value, axis: True)
    assert caught("largest of signs")


def caught(operation: str) -> bool:
    """Whether any of twenty programs around the operation changes its output."""
    random = np.random.default_rng(3)
    programs = [[operation], *(random_names(random, containing=operation) for _ in range(19))]
    return any(find_and_try(names, random)[1] > 1e-6 for names in programs)


@pytest.mark.parametrize("mutant", WRONG_RULES)
def test_wrong_rules_are_caught(mutant, monkeypatch):
    primitive, rule, operation = WRONG_RULES[mutant]
    monkeypatch.setitem(RULES, primitive, rule)
    assert caught(operation)


@pytest.mark.parametrize("mutant", WRONG_KINDS)
def test_wrong_kinds_are_caught(mutant, monkeypatch):
    primitive, rule, operation = WRONG_KINDS[mutant]
    monkeypatch.setitem(kinds.RULES, primitive, rule)
    assert caught(operation)


@pytest.mark.parametrize("mutant", WRONG_EXPONENTS)
def test_wrong_exponents_are_caught(mutant, monkeypatch):
    primitive, relations, operation = WRONG_EXPONENTS[mutant]
    monkeypatch.setitem(EXPONENT_RULES, primitive, relations)
    assert caught(operation)


def test_constants_taken_for_uniform_are_caught(monkeypatch):
    monkeypatch.setattr(
        "symbnn.symmetry.discovery.permutations.uniform_axes", lambda array: (True,) * array.ndim
    )
    assert caught("constant")
    assert not all(known_values.uniform_axes(CONSTANT))


def test_unmutated_operations_are_not_caught():
    for _, _, operation in (*WRONG_RULES.values(), *WRONG_EXPONENTS.values()):
        assert find_and_try([operation], np.random.default_rng(4))[1] < 1e-6


def test_a_mutant_of_addition_is_caught(monkeypatch):
    """Operands of a sum that do not share their index."""

    def separate(equation):
        aligned = elementwise_rule(equation)
        own = tuple(
            tuple(Span(span.axes, tuple((n, v) for v in span.variables)) for span in spans)
            for n, spans in enumerate(aligned.operands)
        )
        return aligned._replace(operands=(aligned.operands[0], *own[1:]))

    monkeypatch.setitem(RULES, "add", separate)
    assert caught("bias")


def test_fibres_that_do_not_match_are_caught(monkeypatch):
    """In A[d, c] · A[d', c] both see d beside c, but not the same d: columns must not move row by row."""

    def careless(seen, occurrences):
        for place, c in occurrences:
            others = {d: None for _, d in occurrences if d is not c}
            before = seen.get((place, c), others)
            seen[place, c] = {d: None for d in before if d in others}

    monkeypatch.setattr(fibres, "_look", careless)
    assert caught("gram")


def test_ordered_axes_taken_for_one_index_are_caught(monkeypatch):
    """A reversed axis is the same class before and after, but not the same index."""

    def careless(record, loops, known):
        unpinned = record._replace(axis_map=record.axis_map._replace(pins={}))
        return SPANS_BEFORE(unpinned, loops, known)

    monkeypatch.setattr(fibres, "_spans", careless)
    assert caught("experts/hidden/reversed")
    assert caught("layers/down/reversed")


def test_iterations_taken_for_interchangeable_are_caught(monkeypatch):
    monkeypatch.setattr(
        first_pass,
        "_loop_word",
        lambda found, loop: found.loops.setdefault(loop, axis_words.fresh(loop.length)),
    )
    assert caught("layers/up/same")
