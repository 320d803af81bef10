"""A rule for an operation that discovery does not know: the sum of the columns of x, weighted by w."""

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive

from symbnn import symmetry
from symbnn.symmetry import rules

weighted_sum = Primitive("weighted_sum_of_columns")
weighted_sum.def_impl(lambda x, w: x @ w)
weighted_sum.def_abstract_eval(lambda x, w: x.update(shape=x.shape[:1]))


def apply(params, x):
    return weighted_sum.bind(jax.nn.relu(x @ params["in"]), params["out"])


params = {"in": jnp.ones((3, 5)), "out": jnp.ones(5)}
x = jnp.ones((7, 3))
assert symmetry.discover(apply, params, x).groups == ()  # without a rule, every axis is pinned


def rule(equation):
    """Rows n are kept; units k are summed over, so the result is constant along k."""
    kept, summed = rules.layout("n"), rules.constant_along("k")
    return rules.AxisMap((rules.layout("nk"), rules.layout("k")), ((*kept, *summed),))


symmetry.register_rule(weighted_sum, rule, scale=rules.product, sign=rules.product)
(group,) = symmetry.discover(apply, params, x).groups
assert (group.size, group.num_scales) == (5, 1)
