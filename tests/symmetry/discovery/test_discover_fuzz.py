"""Random programs: whatever is found must be a symmetry; and wrong rules must be caught.

The operations under test sit on a free hidden axis between two dense layers, so that a group runs through
them, or on the axis of experts, heads or layers that hidden units vary over. Programs are traced with
`jax.numpy` and evaluated with NumPy in double precision, and elements act by a NumPy transcription of the
formula, index by index: nothing is compiled, and nothing of `act` is trusted.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import symmetry
from symbnn.symmetry.discovery import axis_words, fibres, known_values
from symbnn.symmetry.discovery import permutations as first_pass
from symbnn.symmetry.discovery.exponent_rules import EXPONENT_RULES, equal, equal_ignoring_constants
from symbnn.symmetry.discovery.rules import RULES
from symbnn.symmetry.discovery.rules.base import AxisMap, Span, layout
from symbnn.symmetry.discovery.rules.elementwise import elementwise
from symbnn.symmetry.spec import Segments, slices, word_size
from tests.symmetry.discovery.fuzz_programs import (
    BATCH,
    BLOCKS,
    CONSTANT,
    INPUTS,
    OPS,
    OVER,
    PLACES,
    SHAPES,
    WEIGHTS,
    program,
    random_names,
)


def ways(word, path=()):
    """For every place of an axis the factors on the way there, with where they stand and their index."""
    places = [()]
    for number, factor in enumerate(word):
        if isinstance(factor, Segments):
            segments = enumerate(factor.words)
            inner = [way for segment, words in segments for way in ways(words, (*path, number, segment))]
        else:
            inner = [(((*path, number), factor, index),) for index in range(factor.size)]
        places = [before + after for before in places for after in inner]
    return places


def act_by_formula(spec, permutations, factors, leaf, array):
    """new[i, j] = s[i, j]^e · old[ρ(i), π[i](j)], one element at a time, slice by slice."""
    described = slices(leaf.axes)
    if described == (leaf.axes,):
        return act_on_slice(spec, permutations, factors, leaf.shift, leaf.axes, array)
    ends = np.cumsum([word_size(words[0]) for words in described])
    pairs = zip(described, np.split(array, ends[:-1]), strict=True)
    return np.concatenate([act_on_slice(spec, permutations, factors, leaf.shift, *pair) for pair in pairs])


def act_on_slice(spec, permutations, factors, shift, words, array):
    over = {group.name: group.over for group in spec.groups}
    axes = [ways(word) for word in words]
    lookup = [
        {tuple((path, index) for path, _, index in way): n for n, way in enumerate(axis)} for axis in axes
    ]
    new = np.empty_like(array)
    for position in itertools.product(*(range(size) for size in array.shape)):
        labels = {
            factor.group: index for axis, n in enumerate(position) for _, factor, index in axes[axis][n]
        }
        old, factor_here = [], 1.0
        for axis, n in enumerate(position):
            source = []
            for path, factor, index in axes[axis][n]:
                if factor.group in permutations:
                    fibre = tuple(labels[name] for name in over[factor.group])
                    factor_here *= factors(factor, (*fibre, index))
                    index = int(permutations[factor.group][(*fibre, index)])
                source.append((path, index))
            old.append(lookup[axis][tuple(source)])
        new[position] = (array[tuple(old)] + shift) * factor_here - shift
    return new


def act(spec, params, random):
    """A random element of all kinds, applied."""
    permutations, scales, signs = {}, {}, {}
    for group in spec.groups:
        shape = spec.shape(group)
        permutations[group.name] = random.permuted(np.broadcast_to(np.arange(group.size), shape), axis=-1)
        scales[group.name] = random.uniform(0.5, 2, (group.num_scales, *shape))
        signs[group.name] = random.choice([-1.0, 1.0], (group.num_signs, *shape))

    def factors(factor, place):
        value = np.prod(
            [s[place] ** float(e) for s, e in zip(scales[factor.group], factor.scales, strict=True)]
        )
        return value * np.prod(
            [s[place] ** e for s, e in zip(signs[factor.group], factor.signs, strict=True)]
        )

    leaves = {leaf.name: leaf for leaf in spec.leaves}
    return {
        name: act_by_formula(spec, permutations, factors, leaves[name], array)
        for name, array in params.items()
    }


def find_and_try(names, random):
    """Groups found in the program of these operations, and how much a random element changes its output."""
    spec = symmetry.discover(program(jnp, names), SHAPES, jax.ShapeDtypeStruct((BATCH, INPUTS), jnp.float32))
    params = {name: random.normal(size=shape) for name, shape in WEIGHTS.items()}
    x = random.normal(size=(BATCH, INPUTS))
    with np.errstate(all="ignore"):
        before = program(np, names)(params, x)
        after = program(np, names)(act(spec, params, random), x)
    if not np.isfinite(before).all() or np.abs(before).max() > 1e12:
        return spec, 0.0
    # An output that is zero but for rounding has no relative error.
    return spec, np.abs(after - before).max() / max(np.abs(before).max(), 1e-6)


def check(count: int, seed: int):
    random = np.random.default_rng(seed)
    groups = scales = signs = 0
    for _ in range(count):
        names = random_names(random)
        spec, error = find_and_try(names, random)
        assert error < 1e-6, (names, error, spec.explain())
        groups += len(spec.groups)
        scales += sum(group.num_scales for group in spec.groups)
        signs += sum(group.num_signs for group in spec.groups)
    return groups, scales, signs


def test_nothing_is_invented():
    groups, scales, signs = check(100, seed=0)
    # The programs must have something to find, or the test has no teeth.
    assert groups > 50
    assert scales > 20
    assert signs > 20


@pytest.mark.slow
def test_nothing_is_invented_in_two_thousand_programs():
    check(2000, seed=1)


@pytest.mark.parametrize("name", OPS)
def test_each_operation_alone(name):
    _, error = find_and_try([name], np.random.default_rng(2))
    assert error < 1e-6


@pytest.mark.parametrize("name", OVER)
def test_each_operation_on_an_axis_that_units_vary_over(name):
    _, error = find_and_try([f"experts/hidden/{name}"], np.random.default_rng(2))
    assert error < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
def test_each_operation_at_each_place(block):
    random = np.random.default_rng(5)
    for place, name in itertools.product(PLACES, OVER):
        _, error = find_and_try([f"{block}/{place}/{name}"], random)
        assert error < 1e-6, (place, name)


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
    "row repeated": ("gather", gather_without_repetition, "experts/hidden/one row"),
}
WRONG_DEGREES = {
    "tanh scales": ("tanh", (equal, equal), "tanh"),
    "max flips": ("max", (EXPONENT_RULES["max"][0], equal), "relu"),
    "exp scales": ("exp", (equal, equal), "exp"),
    "mul is linear": ("mul", (equal, equal), "gain"),
    "sine scales": ("sin", (equal, equal), "sine"),
    "padding scales": ("pad", (equal_ignoring_constants, equal), "pad with one"),
}


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


@pytest.mark.parametrize("mutant", WRONG_DEGREES)
def test_wrong_exponents_are_caught(mutant, monkeypatch):
    primitive, relations, operation = WRONG_DEGREES[mutant]
    monkeypatch.setitem(EXPONENT_RULES, primitive, relations)
    assert caught(operation)


def test_constants_taken_for_uniform_are_caught(monkeypatch):
    monkeypatch.setattr(
        "symbnn.symmetry.discovery.permutations.uniform_axes", lambda array: (True,) * array.ndim
    )
    assert caught("constant")
    assert not all(known_values.uniform_axes(CONSTANT))


def test_unmutated_operations_are_not_caught():
    for _, _, operation in (*WRONG_RULES.values(), *WRONG_DEGREES.values()):
        assert find_and_try([operation], np.random.default_rng(4))[1] < 1e-6


def test_a_mutant_of_addition_is_caught(monkeypatch):
    """Operands of a sum that do not share their index."""

    def separate(equation):
        aligned = elementwise(equation)
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
