"""Specs: static under jit, and refused where they contradict themselves or the weights."""

import jax
import jax.numpy as jnp
import pytest

from symbnn import symmetry
from symbnn.symmetry.spec import Factor, Group, Leaf, SymmetrySpec, check_params
from tests.symmetry.specs import everything_spec, random_params

H = Factor(4, "h")


def test_equal_specs_are_traced_once():
    spec = everything_spec()
    traces = []

    def moved(spec, g, params):
        traces.append(1)
        return symmetry.act(spec, g, params)

    jitted = jax.jit(moved, static_argnums=0)
    g = symmetry.random_element(spec, jax.random.key(0))
    jitted(spec, g, random_params(spec, 0))
    jitted(everything_spec(), g, random_params(spec, 1))
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("groups", "leaf", "message"),
    [
        (
            (Group("h", 4, over=("e",)),),
            Leaf("w", (4,), ((H,),)),
            r"varies over \['e'\], which must be listed before it",
        ),
        ((Group("h", 4),), Leaf("w", (3,), ((H,),)), r"has shape \(3,\); its words .* describe \(4,\)"),
        ((Group("h", 5),), Leaf("w", (4,), ((H,),)), "'w' axis 0 has 4 units of group 'h', which has 5"),
        ((), Leaf("w", (4,), ((H,),)), "'w' axis 0 has 4 units of group 'h', which is not listed"),
    ],
)
def test_contradictions_are_named(groups, leaf, message):
    with pytest.raises(ValueError, match=message):
        SymmetrySpec(groups, (leaf,))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ((Group("h", 4, kind="linear"),), "unknown kind of group 'linear'"),
        ((Group("h", 4, kind="invertible"),), "needs exactly one scale, .* got 0"),
        ((Group("h", 4, num_scales=1, kind="orthogonal"),), "is orthogonal, so it has no scales; got 1"),
        ((Group("h", 4, num_signs=1, kind="orthogonal", centred=True),), "without signs; .* 1 signs"),
        ((Group("h", 4, centred=True),), "must be orthogonal .* got kind 'permutation'"),
        (
            (Group("h", 4, kind="orthogonal"), Group("k", 2, over=("h",))),
            "'k' varies over 'h', which must then be of kind 'permutation'; got 'orthogonal'",
        ),
    ],
)
def test_kinds_that_contradict_are_named(groups, message):
    with pytest.raises(ValueError, match=message):
        SymmetrySpec(groups, ())


def test_foreign_weights_are_named():
    spec = SymmetrySpec((Group("h", 4),), (Leaf("w", (2, 4), ((Factor(2),), (H,))),))
    with pytest.raises(ValueError, match=r"missing leaves \['w'\], unknown leaves \['v'\]"):
        check_params(spec, {"v": jnp.zeros((2, 4))})
    with pytest.raises(ValueError, match=r"'w' has shape \(2, 3\); the spec expects \(2, 4\)"):
        check_params(spec, {"w": jnp.zeros((2, 3))})
    with pytest.raises(ValueError, match=r"'w' has shape \(5, 6, 2, 4\); the spec expects \(samples, 2, 4\)"):
        check_params(spec, {"w": jnp.zeros((5, 6, 2, 4))}, num_leading=1)
