"""Specs written by hand: what the marks mean, and wrong ones by name."""

from fractions import Fraction

import jax.numpy as jnp
import pytest

from symbnn import symmetry
from symbnn.symmetry.spec import Factor, Group

PARAMS = {"hidden": {"kernel": jnp.zeros((3, 5))}, "out": {"kernel": jnp.zeros((5, 2))}}
AXES = {"hidden/kernel": (None, "h"), "out/kernel": ("h", None)}


def test_marks_become_exponents():
    spec = symmetry.from_axes(
        AXES,
        PARAMS,
        scales={"hidden/kernel": (None, "+"), "out/kernel": ("-", None)},
        signs={"hidden/kernel": (None, "±"), "out/kernel": ("±", None)},
    )
    assert spec.groups == (Group("h", 5, num_scales=1, num_signs=1),)
    assert spec.leaves[0].axes == ((Factor(3),), (Factor(5, "h", (Fraction(1),), (1,)),))
    assert spec.leaves[1].axes == ((Factor(5, "h", (Fraction(-1),), (1,)),), (Factor(2),))


def test_kinds_are_stated_by_group():
    scales = {"hidden/kernel": (None, "+"), "out/kernel": ("-", None)}
    spec = symmetry.from_axes(AXES, PARAMS, scales=scales, kinds={"h": "invertible"})
    assert spec.groups == (Group("h", 5, num_scales=1, kind="invertible"),)
    spec = symmetry.from_axes(AXES, PARAMS, kinds={"h": "orthogonal"})
    assert spec.groups == (Group("h", 5, kind="orthogonal"),)


def test_leaves_without_marks_do_not_move():
    spec = symmetry.from_axes(AXES, PARAMS | {"spare": jnp.zeros(4)})
    assert spec.leaves[-1].axes == ((Factor(4),),)


@pytest.mark.parametrize(
    ("axes", "marks", "message"),
    [
        ({"hiden/kernel": (None, "h")}, {}, "unknown leaf 'hiden/kernel'; did you mean 'hidden/kernel'"),
        (AXES | {"out/kernel": (None, "h")}, {}, r"'out/kernel' has shape \(5, 2\); group 'h' has 5 units"),
        ({"hidden/kernel": ("h",)}, {}, r"has shape \(3, 5\), so it needs 2 marks; got \('h',\)"),
        (AXES, {"scales": {"out/kernel": ("*", None)}}, r"in scales must be '\+', '-' or None; got '\*'"),
        (AXES, {"kinds": {"k": "orthogonal"}}, "unknown group 'k'"),
        (AXES, {"kinds": {"h": "linear"}}, "unknown kind of group 'linear'"),
        (AXES, {"kinds": {"h": "invertible"}}, "leaf 'hidden/kernel' has no such mark"),
        (AXES, {"signs": {"out/kernel": ("-", None)}}, "in signs must be '±' or None; got '-'"),
    ],
)
def test_wrong_marks_are_named(axes, marks, message):
    with pytest.raises(ValueError, match=message):
        symmetry.from_axes(axes, PARAMS, **marks)
