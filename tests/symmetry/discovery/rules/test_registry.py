"""Rules that users register."""

import doctest

import jax
import pytest

from symbnn import symmetry
from symbnn.symmetry import rules
from tests.symmetry.cases import Case, discovered, hidden, summary


@pytest.fixture
def own_rules(monkeypatch):
    """What a test registers is gone after it."""
    for table in (rules.RULES, rules.EXPONENT_RULES):
        for name in ("doubled_for_the_test", "wrong_for_the_test", "weighted_sum"):
            monkeypatch.setitem(table, name, None)
            monkeypatch.delitem(table, name)


def test_rules_can_be_registered(own_rules):
    primitive = jax.extend.core.Primitive("doubled_for_the_test")
    primitive.def_abstract_eval(lambda x: x)
    case = hidden(lambda h, p: primitive.bind(h))
    assert discovered(case).groups == ()
    symmetry.register_rule(primitive, rules.elementwise_rule)
    assert summary(discovered(case)) == [(6, (), 0, 0)]
    symmetry.register_rule(
        "doubled_for_the_test", rules.elementwise_rule, scale=rules.equal, sign=rules.equal
    )
    assert summary(discovered(case)) == [(6, (), 1, 1)]


def test_the_example_of_a_rule_runs(own_rules):
    (example,) = doctest.DocTestFinder().find(symmetry.register_rule, "register_rule", globs={})
    result = doctest.DocTestRunner().run(example)
    assert (result.attempted, result.failed) == (15, 0)


def test_what_a_registered_contraction_sums_over_is_consumed(own_rules):
    primitive = jax.extend.core.Primitive("weighted_sum")
    primitive.def_abstract_eval(lambda x, w: x.update(shape=x.shape[:1]))
    shapes = {"in": (3, 6), "out": (6,)}
    case = Case(lambda p, x: primitive.bind(x @ p["in"], p["out"]), shapes, (4, 3), [])
    results = (*rules.layout("n"), *rules.constant_along("k"))
    symmetry.register_rule(
        primitive,
        lambda e: rules.AxisMap((rules.layout("nk"), rules.layout("k")), (results,)),
        scale=rules.product,
    )
    roles = {leaf.name: [f.role for _, f in leaf.factors() if f.group] for leaf in discovered(case).leaves}
    assert roles == {"in": ["produces"], "out": ["consumes"]}


def test_a_sum_that_leaves_its_variable_out_has_no_scale(own_rules):
    """Σ x over units that are rescaled one by one changes, whatever the relation says of one index."""
    primitive = jax.extend.core.Primitive("weighted_sum")
    primitive.def_abstract_eval(lambda x: x.update(shape=x.shape[:1]))
    symmetry.register_rule(
        primitive,
        lambda e: rules.AxisMap((rules.layout("nk"),), (rules.layout("n"),)),
        scale=rules.equal,
        sign=rules.equal,
    )
    case = Case(lambda p, x: primitive.bind(x @ p["in"]), {"in": (3, 6)}, (4, 3), [])
    assert summary(discovered(case)) == [(6, (), 0, 0)]


WRONG_RULES = {
    "no axis_map": (lambda e: (rules.layout("nk"),), "must return an AxisMap or None; got tuple"),
    "layouts": (
        lambda e: rules.AxisMap((), (rules.layout("nk"),)),
        "must give a layout for each of 1 operands; got 0",
    ),
    "rank too high": (
        lambda e: rules.AxisMap((rules.layout("nkj"),), (rules.layout("nk"),)),
        r"every axis of operand 0, shape \(4, 6\), exactly once; got axes \[0, 1, 2\]",
    ),
    "rank too low": (
        lambda e: rules.AxisMap((rules.layout("nk"),), (rules.layout("n"),)),
        r"every axis of result 0, shape \(4, 6\), exactly once; got axes \[0\]",
    ),
    "lengths": (
        lambda e: rules.AxisMap((rules.layout("nk"),), (rules.layout("kn"),)),
        r"variable 'k' length 6; result 0 of shape \(4, 6\) has 4 on axes \(0,\)",
    ),
    "product": (
        lambda e: rules.AxisMap(
            (rules.layout("nk"),),
            ((rules.Span((0,), ("n",)), rules.Span((1,), ("a", "b"))),),
            sizes={"a": 2, "b": 4},
        ),
        r"lengths \[2, 4\] on axes \(1,\) of result 0, which has shape \(4, 6\): expected 6, got 8",
    ),
    "missing length": (
        lambda e: rules.AxisMap(
            (rules.layout("nk"),), ((rules.Span((0,), ("n",)), rules.Span((1,), ("a", "b"))),)
        ),
        r"must give the lengths of \['a', 'b'\] in `sizes`: result 0 needs them",
    ),
    "pins": (
        lambda e: rules.AxisMap((rules.layout("nk"),), (rules.layout("nk"),), {"j": "why"}),
        r"pins \['j'\], which none of its layouts has; they have \['k', 'n'\]",
    ),
}


@pytest.mark.parametrize("name", WRONG_RULES)
def test_rules_that_do_not_fit_are_refused(name, own_rules):
    primitive = jax.extend.core.Primitive("wrong_for_the_test")
    primitive.def_abstract_eval(lambda x: x)
    rule, message = WRONG_RULES[name]
    symmetry.register_rule(primitive, rule)
    with pytest.raises(ValueError, match="primitive 'wrong_for_the_test'.*" + message):
        discovered(hidden(lambda h, p: primitive.bind(h)))
