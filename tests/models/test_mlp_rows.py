"""A perceptron with its examples along the last axis is the same network, start and symmetries included."""

import jax
import numpy as np
import pytest

from symbnn import models, tree


@pytest.mark.parametrize("hidden", [(), (5,), (16, 3)])
def test_both_orders_are_one_network(hidden):
    first, last = (models.mlp((2, 3), 4, hidden=hidden, rows=rows) for rows in ("first", "last"))
    params = first.init(jax.random.key(1))
    assert tree.named_leaves(params).keys() == tree.named_leaves(last.init(jax.random.key(1))).keys()
    for here, there in zip(
        jax.tree.leaves(params), jax.tree.leaves(last.init(jax.random.key(1))), strict=True
    ):
        np.testing.assert_array_equal(here, there)
    inputs = np.random.default_rng(0).normal(size=(7, 2, 3)).astype(np.float32)
    np.testing.assert_allclose(first.apply(params, inputs), last.apply(params, inputs), rtol=1e-5, atol=1e-6)
    assert first.spec == last.spec


def test_an_unknown_order_is_named():
    with pytest.raises(ValueError, match="rows must be 'auto', 'first' or 'last'; got 'middle'"):
        models.mlp((3,), 2, rows="middle")


@pytest.mark.parametrize(
    ("num", "inputs", "width", "backend", "is_last"),
    [
        (256, 300, 256, "cpu", True),
        (256, 256, 300, "cpu", True),
        (255, 3, 256, "cpu", False),
        (256, 257, 257, "cpu", False),
        # Of widths that no other case has traced.
        (256, 3, 11, "gpu", False),
        (256, 3, 13, "tpu", False),
    ],
)
def test_examples_go_last_where_many_meet_narrow_kernels_on_a_cpu(
    monkeypatch, num, inputs, width, backend, is_last
):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    automatic, first, last = (
        models.mlp((inputs,), 2, hidden=(width,), rows=rows) for rows in ("auto", "first", "last")
    )
    params = jax.eval_shape(automatic.init, jax.random.key(0))
    inputs = jax.ShapeDtypeStruct((num, inputs), "float32")
    program, of_first, of_last = (
        str(jax.make_jaxpr(model.apply)(params, inputs)) for model in (automatic, first, last)
    )
    assert of_first != of_last
    assert program == (of_last if is_last else of_first)
