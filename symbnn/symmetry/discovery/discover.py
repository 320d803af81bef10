"""Find the symmetries of any network from its jaxpr: `discover(apply, params, *inputs)`.

The traced function is flattened, every axis of every value gets a word of atoms, atoms that must be
relabelled together are unified (`assign`), the classes that stay free are permutation groups, `fibres` finds
over what they may vary, and `degrees` finds the rescalings and sign flips. One pass each; shapes are enough.
Every rule is equivariant under the group it leaves, so what is found is a symmetry in exact arithmetic; what
the rules do not understand is pinned and reported by `explain`.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from symbnn import tree
from symbnn.symmetry.discovery import reasons, unstack
from symbnn.symmetry.discovery.axis_words import Atom, Sum, Word, atoms
from symbnn.symmetry.discovery.exponents import Shift, exponents, find_shifts
from symbnn.symmetry.discovery.fibres import dependencies
from symbnn.symmetry.discovery.known_values import known_values
from symbnn.symmetry.discovery.names import name_classes
from symbnn.symmetry.discovery.permutations import Assignment, assign
from symbnn.symmetry.discovery.redundancy import Generators, remove_redundant
from symbnn.symmetry.discovery.roles import Roles, find_roles
from symbnn.symmetry.discovery.unknowns import Slot, Slots, number_slots, unknowns
from symbnn.symmetry.program import Program, Value, flatten
from symbnn.symmetry.spec.spec import Factor, Group, Index, Leaf, Role, Segments, Slices, SymmetrySpec
from symbnn.symmetry.spec.spec import Word as SpecWord
from symbnn.types import Params


class Found(NamedTuple):
    """What the passes found out, before it is given names."""

    names: dict[str, Value]
    assignment: Assignment
    slots: Slots
    roles: Roles
    shifts: dict[Value, Shift]
    over: dict[Atom, list[Atom]]
    scales: Generators
    signs: Generators


def discover(
    apply: Callable[..., Any], params: Params, *inputs: Any, eval_only: bool = False
) -> SymmetrySpec:
    """All symmetries of `apply(params, *inputs)` that the rules can prove.

    `params` and `inputs` may be arrays or `jax.ShapeDtypeStruct`. `eval_only` adds the rescalings of a
    BatchNorm that hold in evaluation but detach its running variance from the statistics it stands for.
    """
    names = list(tree.named_leaves(params))
    if len(names) != len(jax.tree.leaves(params)):
        raise ValueError(f"leaves of params do not have distinct names: {names}")
    shapes = jax.tree.map(_shape, (params, inputs))
    program = flatten(jax.make_jaxpr(lambda params, inputs: apply(params, *inputs))(*shapes))
    leaves = dict(zip(names, program.inputs[: len(names)], strict=True))
    whole: frozenset[str] = frozenset()
    while True:
        sliced = unstack.take_apart(program, leaves, whole=whole)
        spec = _describe(_find(sliced.program, sliced.names, eval_only), _used(sliced.program))
        described = {leaf.name: leaf for leaf in spec.leaves}
        if not (unfit := unstack.disagreeing(described, sliced.parts)):
            break
        whole |= unfit
    kept = {name: value for name, value in leaves.items() if name not in sliced.parts}
    return replace(
        spec,
        leaves=unstack.put_together(described, leaves, sliced.parts),
        notes=(*spec.notes, *unstack.remarks(program, kept)),
    )


def _find(program: Program, names: dict[str, Value], eval_only: bool) -> Found:
    known = known_values(program)
    used = _used(program)
    leaves = [value for value in names.values() if value in used]
    assignment = assign(program, len(names), known)
    over = dependencies(assignment, leaves, known)
    slots = number_slots(assignment, leaves, known, program.outputs)
    shifts = find_shifts(program, leaves, known)
    shifted = dict.fromkeys(unknown for value in shifts for unknown in unknowns(slots.values[value]))
    num_leaf_slots = sum(len(unknowns(slots.values[value])) for value in leaves)
    roles = find_roles(slots, num_leaf_slots, program.inputs[len(names) :], shifted)
    generators = []
    for modulus in (None, 2):
        system = exponents(slots, known, roles, shifts, signs=modulus is not None, eval_only=eval_only)
        forms = [system.reduce({unknown: Fraction(1)}) for unknown in range(num_leaf_slots)]
        found = Generators.from_forms(slots.atoms, forms, roles.ranks)
        words = [slots.values[value] for value in leaves]
        generators.append(remove_redundant(found, over, words, modulus=modulus))
    return Found(names, assignment, slots, roles, shifts, over, *generators)


def _describe(found: Found, used: dict[Value, None]) -> SymmetrySpec:
    """Give names to classes and write down what happens to every leaf."""
    classes = _classes(found)
    indices = dict.fromkeys(d for c in classes for d in found.over[c] if d.causes)
    labels = name_classes(_places(found, [*indices, *classes]), {c: found.over[c] for c in classes})
    groups = tuple(
        Group(
            labels[c],
            c.size,
            tuple(labels[d] for d in found.over[c]),
            found.scales.count(c),
            found.signs.count(c),
        )
        for c in classes
    )
    leaves = tuple(_leaf(found, name, value, value in used, labels) for name, value in found.names.items())
    pins, notes = reasons.collect(found.names, found.assignment, used, labels)
    return SymmetrySpec(
        groups, leaves, tuple(Index(labels[d], d.size) for d in indices), tuple(pins), tuple(notes)
    )


def _classes(found: Found) -> list[Atom]:
    """Free classes in order of appearance, each after those it varies over."""
    ordered: dict[Atom, None] = {}

    def visit(c: Atom) -> None:
        if c.causes or c in ordered:
            return
        for d in found.over[c]:
            visit(d)
        ordered[c] = None

    appearance = sorted(
        range(len(found.roles.ranks)), key=lambda unknown: found.roles.ranks.get(unknown, unknown)
    )
    for unknown in appearance:
        visit(found.slots.atoms[unknown])
    return list(ordered)


def _places(found: Found, classes: list[Atom]) -> dict[Atom, list[str]]:
    """Names of the leaves that have a class, those that produce it first."""
    ranks, labelled = found.roles.ranks, found.slots.values
    places: dict[Atom, list[tuple[int, str]]] = {c: [] for c in classes}
    for name, value in found.names.items():
        if value not in labelled:
            continue
        for factor in (factor for word in labelled[value] for factor in atoms(word)):
            atom = factor.atom if isinstance(factor, Slot) else factor
            rank = ranks[factor.unknown] if isinstance(factor, Slot) else len(ranks)
            if atom in places:
                places[atom].append((rank, name))
    return {
        c: [name for _, name in sorted(found_at, key=lambda pair: pair[0])] for c, found_at in places.items()
    }


def _leaf(found: Found, name: str, value: Value, is_used: bool, labels: dict[Atom, str]) -> Leaf:
    if not is_used:
        return Leaf(name, value.shape, tuple((Factor(size),) for size in value.shape))
    axes = tuple(_word(found, word, labels) for word in found.slots.values[value])
    is_shifted = value in found.shifts and any(
        any(found.scales.exponents(unknown)) for unknown in unknowns(found.slots.values[value])
    )
    return Leaf(name, value.shape, axes, found.shifts[value].amount if is_shifted else 0.0)


def _word(found: Found, word: Word, labels: dict[Atom, str]) -> SpecWord:
    factors: list[Factor | Segments | Slices] = []
    for factor in word:
        if isinstance(factor, Sum):
            described: Factor | Segments | Slices = _segments(
                [_word(found, inner, labels) for inner in factor.words]
            )
        elif isinstance(factor, Slot):
            described = _factor(found, factor, labels)
        else:
            described = Factor(factor.size, labels.get(factor))
        if factors and _is_fixed(factors[-1]) and _is_fixed(described):
            described = Factor(factors.pop().size * described.size)
        factors.append(described)
    return tuple(factors)


def _factor(found: Found, slot: Slot, labels: dict[Atom, str]) -> Factor:
    return Factor(
        slot.size,
        labels[slot.atom],
        found.scales.exponents(slot.unknown),
        tuple(int(parity) for parity in found.signs.exponents(slot.unknown)),
        _role(found, slot.unknown),
    )


def _role(found: Found, unknown: int) -> Role:
    produces, consumes = unknown in found.roles.produces, unknown in found.roles.consumes
    if produces and consumes:
        return "both"
    return "consumes" if consumes else "produces"


def _segments(words: list[SpecWord]) -> Factor | Segments | Slices:
    """Words end to end; neighbours that do not move are one."""
    merged: list[SpecWord] = []
    for word in words:
        word = word or (Factor(1),)
        if merged and _fixed_word(merged[-1]) and _fixed_word(word):
            merged.append((Factor(merged.pop()[0].size + word[0].size),))
        else:
            merged.append(word)
    if len(merged) == 1 and _fixed_word(merged[0]):
        return merged[0][0]
    return Segments(tuple(merged))


def _fixed_word(word: SpecWord) -> bool:
    return len(word) == 1 and _is_fixed(word[0])


def _is_fixed(factor: Factor | Segments | Slices) -> bool:
    return isinstance(factor, Factor) and factor.group is None


def _used(program: Program) -> dict[Value, None]:
    used = dict.fromkeys(program.outputs)
    for equation in program.equations:
        used.update(dict.fromkeys(equation.operands))
    return used


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        leaf = jnp.asarray(leaf)
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
