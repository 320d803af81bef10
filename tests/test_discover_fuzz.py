"""Random programs: whatever is found must be a symmetry; and wrong rules must be caught.

The operations under test sit on a free hidden axis between two dense layers, so that a group runs through
them. Programs are traced with `jax.numpy` and evaluated with NumPy in double precision, and elements act by a
NumPy transcription of the formula, index by index: nothing is compiled, and nothing of `act` is trusted.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import symmetry
from symbnn.symmetry import constants
from symbnn.symmetry.degree_rules import DEGREES, equal
from symbnn.symmetry.rules import RULES
from symbnn.symmetry.rules.base import Alignment, Span, layout
from symbnn.symmetry.rules.elementwise import elementwise
from symbnn.symmetry.spec import Segments

HIDDEN, BATCH, INPUTS = 6, 3, 2
WEIGHTS = {"in": (INPUTS, HIDDEN), "out": (HIDDEN, 2), "v": (HIDDEN,), "w": (HIDDEN,), "m": (HIDDEN, HIDDEN)}
WEIGHTS |= {"a": (2, 3), "scalar": (), "up": (2, HIDDEN, 3), "down": (2, 3, HIDDEN)}
PERMUTATION = np.array([5, 3, 1, 0, 2, 4])
CONSTANT = np.array([1.0, 2, 2, 1, 3, 1])


def softmax(xp, h):
    shifted = xp.exp(h - h.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


# Each maps a (BATCH, HIDDEN) array to another, by the module it is given and the weights.
OPS = {
    "relu": lambda xp, h, p: xp.maximum(h, 0),
    "leaky": lambda xp, h, p: xp.where(h > 0, h, 0.1 * h),
    "tanh": lambda xp, h, p: xp.tanh(h),
    "abs": lambda xp, h, p: xp.abs(h),
    "sign": lambda xp, h, p: xp.sign(h) + 0 * h,
    "square": lambda xp, h, p: h * h,
    "cube": lambda xp, h, p: h**3,
    "root": lambda xp, h, p: xp.sqrt(xp.abs(h)),
    "sine": lambda xp, h, p: xp.sin(h),
    "cosine": lambda xp, h, p: xp.cos(h),
    "exp": lambda xp, h, p: xp.exp(-xp.abs(h)),
    "bias": lambda xp, h, p: h + p["v"],
    "gain": lambda xp, h, p: h * p["w"],
    "gate": lambda xp, h, p: h * xp.tanh(h @ p["m"]),
    "dense": lambda xp, h, p: h @ p["m"],
    "tied": lambda xp, h, p: h @ p["m"] @ p["m"].T,
    "residual": lambda xp, h, p: h + xp.maximum(h @ p["m"], 0),
    "threshold": lambda xp, h, p: xp.maximum(h, p["v"]),
    "clip": lambda xp, h, p: xp.clip(h, -1, 1),
    "shift": lambda xp, h, p: h + 0.5,
    "scale": lambda xp, h, p: 2 * h,
    "scalar": lambda xp, h, p: h * p["scalar"],
    "centre": lambda xp, h, p: h - h.mean(-1, keepdims=True),
    "rms": lambda xp, h, p: h / xp.sqrt((h * h).mean(-1, keepdims=True) + 1e-2),
    "batch rms": lambda xp, h, p: h / xp.sqrt((h * h).mean(0, keepdims=True)),
    "softmax": lambda xp, h, p: softmax(xp, h),
    "minmax": lambda xp, h, p: h - h.min(-1, keepdims=True) + h.max(0),
    "halves": lambda xp, h, p: xp.concatenate([h[:, :2], xp.tanh(h[:, 2:])], -1),
    "glu": lambda xp, h, p: xp.concatenate([h[:, :3] * h[:, 3:], h[:, 3:]], -1),
    "swap": lambda xp, h, p: xp.concatenate([h[:, 3:], h[:, :3]], -1),
    "matrix": lambda xp, h, p: (h.reshape(BATCH, 2, 3) * p["a"]).reshape(BATCH, HIDDEN),
    "transpose": lambda xp, h, p: xp.swapaxes(h.reshape(BATCH, 2, 3), 1, 2).reshape(BATCH, HIDDEN),
    "maxout": lambda xp, h, p: xp.repeat(h.reshape(BATCH, 2, 3).max(-1), 3, axis=-1),
    "group norm": lambda xp, h, p: (
        h.reshape(BATCH, 2, 3) - h.reshape(BATCH, 2, 3).mean(-1, keepdims=True)
    ).reshape(BATCH, HIDDEN),
    "attention": lambda xp, h, p: softmax(xp, h.T @ h)[0].sum() * h,
    "outer": lambda xp, h, p: (h[:, :, None] * h[:, None, :]).sum(1),
    "tile": lambda xp, h, p: xp.tile(h[:, :3], (1, 2)),
    "pad": lambda xp, h, p: xp.pad(h[:, 1:], ((0, 0), (0, 1))),
    "broadcast": lambda xp, h, p: h + xp.zeros((BATCH, 1)),
    "divide": lambda xp, h, p: h / (1 + xp.abs(p["v"])),
    "ratio": lambda xp, h, p: h / (h.sum(-1, keepdims=True) ** 2 + 1),
    "power": lambda xp, h, p: xp.abs(h) ** 1.5,
    "compare": lambda xp, h, p: xp.where(h > p["v"], h, p["w"]),
    "equal": lambda xp, h, p: xp.where(h == h.max(-1, keepdims=True), h, 0),
    "experts": lambda xp, h, p: (xp.maximum(h @ p["up"], 0) @ p["down"]).sum(0),
    "crossed experts": lambda xp, h, p: xp.einsum("ebk,fkh->bh", xp.tanh(h @ p["up"]), p["down"]),
    "gated experts": lambda xp, h, p: xp.einsum("e,ebk,ekh->bh", p["a"][:, 0], h @ p["up"], p["down"]),
    "gram": lambda xp, h, p: h * (p["a"] @ p["a"].T).sum(),
    "gram of columns": lambda xp, h, p: h * xp.tanh(p["a"].T @ p["a"]).sum(),
    "squared sum": lambda xp, h, p: h * xp.tanh(p["a"]).sum(),
    # Order matters in these: they are what the mutants below get wrong.
    "cumsum": lambda xp, h, p: xp.cumsum(h, -1),
    "argmax": lambda xp, h, p: h * xp.argmax(h, -1)[:, None],
    "reverse": lambda xp, h, p: h + xp.flip(h, -1),
    "sort": lambda xp, h, p: xp.sort(h, -1) + 0 * h,
    "sorted only": lambda xp, h, p: xp.sort(h, -1),
    "gather": lambda xp, h, p: h + h[:, PERMUTATION],
    "constant": lambda xp, h, p: h * CONSTANT.astype(h.dtype),
    "roll": lambda xp, h, p: h + xp.roll(h, 1, -1),
    "position": lambda xp, h, p: h + xp.arange(HIDDEN),
}


def program(xp, names):
    def apply(params, x):
        h = x @ params["in"]
        for name in names:
            h = OPS[name](xp, h, params)
        return h @ params["out"]

    return apply


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
    """new[i, j] = s[i, j]^e · old[ρ(i), π[i](j)], one element at a time."""
    over = {group.name: group.over for group in spec.groups}
    axes = [ways(word) for word in leaf.axes]
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
        new[position] = (array[tuple(old)] + leaf.shift) * factor_here - leaf.shift
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


SHAPES = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in WEIGHTS.items()}


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


def random_names(random, *, containing=None):
    names = [str(name) for name in random.choice(list(OPS), random.integers(1, 5))]
    return [*names[:2], containing, *names[2:]] if containing else names


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


def without_pins(name):
    rule = RULES[name]
    return lambda equation: rule(equation)._replace(pins={})


def sort_in_place(equation):
    same = layout(range(len(equation.results[0].shape)))
    return Alignment((same,), (same,))


def gather_in_place(equation):
    same = layout(range(len(equation.results[0].shape)))
    indices = layout(("index", axis) for axis in range(len(equation.operands[1].shape)))
    return Alignment((same, indices), (same,))


def concatenate_backwards(equation):
    aligned = RULES_BEFORE["concatenate"](equation)
    results = tuple(
        Span(span.axes, span.variables[::-1], span.is_sum) if span.is_sum else span
        for span in aligned.results[0]
    )
    return aligned._replace(results=(results,))


RULES_BEFORE = dict(RULES)
# Wrong on purpose: (what is replaced, by what, the operation that must show it).
WRONG_RULES = {
    "cumsum": ("cumsum", without_pins("cumsum"), "cumsum"),
    "argmax": ("argmax", without_pins("argmax"), "argmax"),
    "reverse": ("rev", without_pins("rev"), "reverse"),
    "sort": ("sort", sort_in_place, "sort"),
    "gather": ("gather", gather_in_place, "gather"),
    "roll": ("concatenate", concatenate_backwards, "roll"),
    "iota": ("iota", without_pins("iota"), "position"),
}
WRONG_DEGREES = {
    "tanh scales": ("tanh", (equal, equal), "tanh"),
    "max flips": ("max", (DEGREES["max"][0], equal), "relu"),
    "exp scales": ("exp", (equal, equal), "exp"),
    "mul is linear": ("mul", (equal, equal), "gain"),
    "sine scales": ("sin", (equal, equal), "sine"),
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
    monkeypatch.setitem(DEGREES, primitive, relations)
    assert caught(operation)


def test_constants_taken_for_uniform_are_caught(monkeypatch):
    monkeypatch.setattr("symbnn.symmetry.assign.uniform_axes", lambda array: (True,) * array.ndim)
    assert caught("constant")
    assert not all(constants.uniform_axes(CONSTANT))


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
    from symbnn.symmetry import fibres

    def careless(seen, occurrences):
        for place, c in occurrences:
            others = {d: None for _, d in occurrences if d is not c}
            before = seen.get((place, c), others)
            seen[place, c] = {d: None for d in before if d in others}

    monkeypatch.setattr(fibres, "_look", careless)
    assert caught("gram")
