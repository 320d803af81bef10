"""Alignment by what single units do, of networks in which other units are mixed by matrices.

An activation or a precision belongs to one unit. What a network makes of units that matrices mix depends on
all of them together, so those, and the heads that they belong to, are matched by weights, in a pass of their
own: after the others where these are matched by activations, which no matrix changes, and before them where
all are matched by weights first and by precision then.
"""

from collections.abc import Callable
from functools import partial

import jax
import numpy as np

from symbnn.symmetry.alignment.samples import Aligned, move
from symbnn.symmetry.group import Element, compose, identity
from symbnn.symmetry.spec import SymmetrySpec
from symbnn.types import Samples

Match = Callable[[SymmetrySpec, Samples], Aligned]


def in_passes(
    spec: SymmetrySpec, samples: Samples, plain: Match, asked: Match, *, mixed_last: bool
) -> Aligned:
    """Units by themselves as was `asked`, those that matrices mix by `plain` weights.

    The latter come last, or first and then together with the others. The objective is that of what was asked.
    """
    single, mixed = single_and_mixed(spec)
    passes = [(single, asked), (mixed, plain)] if mixed_last else [(spec, plain), (single, asked)]
    results, moved, elements = dict[Match, Aligned](), samples, None
    for part, matched in passes:
        if part.groups:
            found = results[matched] = matched(part, moved)
            moved, step = found.samples, jax.vmap(partial(_completed, spec))(found.elements)
            elements = step if elements is None else jax.vmap(partial(compose, spec))(step, elements)
    assert elements is not None
    return found._replace(
        samples=move(spec, elements, samples),
        elements=elements,
        objective=results.get(asked, found).objective,
        converged=np.all([each.converged for each in results.values()], axis=0),
    )


def single_and_mixed(spec: SymmetrySpec) -> tuple[SymmetrySpec, SymmetrySpec]:
    """The spec of all units that go by themselves, and that of all that matrices mix and of their heads."""
    mixed = {group.name for group in spec.groups if group.is_linear}
    names = {group.name for group in spec.groups}
    while True:
        near = [g for g in spec.groups if g.name in mixed or mixed.intersection(g.over)]
        wider = mixed.union(*({g.name, *g.over} for g in near)) & names
        if wider == mixed:
            return spec.restricted(names - mixed), spec.restricted(mixed)
        mixed = wider


def _completed(spec: SymmetrySpec, element: Element) -> Element:
    """The element with the identity for the groups that it does not know."""
    return Element(*(none | given for none, given in zip(identity(spec), element, strict=True)))
