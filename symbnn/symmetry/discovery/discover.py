"""Find the symmetries of any network from its jaxpr: `discover(apply, params, *inputs)`, the pipeline.

Shapes are enough. One pass each, and again from 2 where the slices of a leaf turn out to be rescaled around
different shifts, with that leaf whole:

1. `program`: the traced function as plain equations; `simplify`: odd functions in the form that rules know;
   `selection`, by `ties`: choices of the largest by their scores instead of their numbers.
2. `unstack`, by `digits`: leaves that hold several layers are taken apart into slices.
3. `known_values`: values that hold one number everywhere.
4. `permutations`, by `rules` and `axis_words`: every axis of every value gets a word of atoms; atoms that
   must be relabelled together become one class. Classes that stay free are permutation groups.
5. `fibres`: over what the permutation of a class may vary (heads, experts, scanned layers).
6. `unknowns`: every free class on every value gets an unknown exponent.
7. `exponents.find_shifts`: leaves that are only ever used as leaf + ε.
8. `roles`: which weights produce a unit and which consume it.
9. `exponents`, by `exponent_rules` and `linear`: the rescalings, then the sign flips.
10. `redundancy`: generators that another class already has are dropped.
11. `kinds`: classes that are only used linearly, which matrices may mix.
12. `describe`, by `names` and `reasons`: the spec, with names and with the reason of every pinned axis.
13. `translations`: leaves that may be moved freely while others make up for it.

Every rule is equivariant under the group it leaves, so what is found is a symmetry in exact arithmetic; what
the rules do not understand is pinned and reported by `explain`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from symbnn import frameworks, tree
from symbnn.names import lookup
from symbnn.symmetry.discovery import unstack
from symbnn.symmetry.discovery.describe import Found, describe
from symbnn.symmetry.discovery.exponents import find_exponents, find_shifts
from symbnn.symmetry.discovery.fibres import find_fibres
from symbnn.symmetry.discovery.kinds import find_kinds
from symbnn.symmetry.discovery.known_values import find_known_values
from symbnn.symmetry.discovery.permutations import find_permutations
from symbnn.symmetry.discovery.redundancy import Generators, remove_redundant
from symbnn.symmetry.discovery.roles import find_roles
from symbnn.symmetry.discovery.selection import reveal_choices
from symbnn.symmetry.discovery.simplify import simplify
from symbnn.symmetry.discovery.translations import find_translations
from symbnn.symmetry.discovery.unknowns import number_unknowns, unknown_numbers
from symbnn.symmetry.program import Program, Value, flatten
from symbnn.symmetry.spec import Leaf, SymmetrySpec
from symbnn.symmetry.spec.translations import Translation
from symbnn.types import Params


class Traced(NamedTuple):
    """A network as a program, with its weights by name."""

    program: Program
    leaves: dict[str, Value]


def discover(
    apply: Callable[..., Any],
    params: Params,
    *inputs: Any,
    eval_only: bool = False,
    held: Mapping[str, float] | None = None,
) -> SymmetrySpec:
    """All symmetries of `apply(params, *inputs)` that the rules can prove.

    A hidden axis of length one is read as no axis: the scale or the sign of a single unit is not found.

    Args:
        apply: The network: any function that JAX can trace, of the weights and of data.
        params: The weights, arrays or `jax.ShapeDtypeStruct`; values do not matter.
        inputs: The data, likewise. Their axes are never relabelled, nor are those of the outputs.
        eval_only: Adds the rescalings and translations of a BatchNorm that hold in evaluation but detach its
            running variance and mean from the statistics they stand for.
        held: Leaves that hold one number everywhere, and keep it, by name: gains of one that were folded into
            the weights behind them (`fold_gains`). They allow for more, and do not move themselves.
    """
    program, leaves = trace(apply, params, *inputs)
    program = reveal_choices(simplify(program), leaves)
    held = {} if held is None else dict(held)
    for name in held:
        lookup(leaves, name, "leaf")
    whole: frozenset[str] = frozenset(held)
    while True:
        sliced = unstack.take_apart(program, leaves, whole=whole)
        numbers = {sliced.names[name]: number for name, number in held.items()}
        spec = describe(_find(sliced.program, sliced.names, eval_only, numbers))
        described = {leaf.name: leaf for leaf in spec.leaves}
        if not (unfit := unstack.disagreeing(described, sliced.parts)):
            break
        whole |= unfit
    kept = {name: value for name, value in leaves.items() if name not in sliced.parts}
    return replace(
        spec,
        leaves=unstack.put_together(described, leaves, sliced.parts),
        notes=(*spec.notes, *unstack.remarks(program, kept)),
        held=tuple(held),
        translations=_translations(sliced, leaves, described, numbers, eval_only),
    )


def _translations(
    sliced: unstack.Sliced,
    leaves: Iterable[str],
    described: dict[str, Leaf],
    held: dict[Value, float],
    eval_only: bool,
) -> tuple[Translation, ...]:
    """Of the program whose leaves are parts, said of the leaves that hold them."""
    statistics = [sliced.names[name] for name, leaf in described.items() if leaf.is_statistic]
    return find_translations(
        sliced.program,
        dict(unstack.places(sliced, leaves)),
        find_known_values(sliced.program, held),
        held=frozenset(held),
        statistics=frozenset() if eval_only else frozenset(statistics),
    )


def trace(apply: Callable[..., Any], params: Params, *inputs: Any) -> Traced:
    """The program of `apply(params, *inputs)`, from shapes."""
    frameworks.check_apply(apply)
    names = tree.leaf_names(params)
    _refuse_other_leaves(names, params)
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"several leaves of params are named {repeated[0]!r}; give each a name of its own")
    shapes = jax.tree.map(_shape, (params, inputs))
    program = flatten(jax.make_jaxpr(lambda params, inputs: apply(params, *inputs))(*shapes))
    return Traced(program, dict(zip(names, program.inputs[: len(names)], strict=True)))


def _find(program: Program, names: dict[str, Value], eval_only: bool, held: dict[Value, float]) -> Found:
    known = find_known_values(program, held)
    used = {*program.outputs, *program.readers()} - held.keys()
    leaves = [value for value in names.values() if value in used]
    permutations = find_permutations(program, len(names), known)
    over = find_fibres(permutations, leaves, known)
    unknowns = number_unknowns(permutations, leaves, known, program.outputs)
    words = [unknowns.words[value] for value in leaves]
    num_of_leaves = sum(map(len, map(unknown_numbers, words)))
    shifts = find_shifts(program, leaves, known)
    shifted = dict.fromkeys(number for value in shifts for number in unknown_numbers(unknowns.words[value]))
    roles = find_roles(unknowns, num_of_leaves, program.inputs[len(names) :], shifted)
    generators, missing = [], []
    for modulus in (None, 2):
        system = find_exponents(
            unknowns, known, roles, shifts, signs=modulus is not None, eval_only=eval_only
        )
        forms = [system.reduce({unknown: Fraction(1)}) for unknown in range(num_of_leaves)]
        found = Generators.from_forms(unknowns.atoms, forms, roles.ranks)
        generators.append(remove_redundant(found, over, words, modulus=modulus))
        # Of several equations the first is named, so it comes last.
        bent = reversed(system.zeroed.items())
        missing.append({unknowns.atoms[unknown]: equation for unknown, equation in bent})
    scales, signs = generators
    kinds = find_kinds(unknowns, known, shifts, over, scales, signs)
    return Found(
        names, used, held, permutations, unknowns, roles, shifts, over, scales, signs, kinds, tuple(missing)
    )


def _refuse_other_leaves(names: list[str], params: Params) -> None:
    """`ValueError` naming the first leaf that is no array: a whole module has its functions among them."""
    for name, leaf in zip(names, jax.tree.leaves(params), strict=True):
        if not hasattr(leaf, "dtype") and not isinstance(leaf, int | float | complex):
            raise ValueError(
                f"leaf {name!r} of params is {frameworks.described(leaf)}, no array; keep the arrays only, "
                "for instance eqx.partition(module, eqx.is_inexact_array)[0], or give the network to "
                "models.wrap(network, example)"
            )


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        leaf = jnp.asarray(leaf)
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
