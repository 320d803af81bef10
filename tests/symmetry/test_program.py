"""The traced program as plain equations."""

import jax
import jax.numpy as jnp
from jax import lax

from symbnn.symmetry.program import flatten


def program(function, *shapes):
    return flatten(jax.make_jaxpr(function)(*(jnp.zeros(shape) for shape in shapes)))


def names(found):
    return [equation.primitive for equation in found.equations]


def test_calls_are_inlined_as_often_as_they_are_made():
    layer = jax.jit(jnp.tanh)
    assert names(program(lambda x: layer(layer(x)), (3,))) == ["tanh", "tanh"]


def test_what_no_output_depends_on_is_gone():
    def function(x):
        jnp.sin(x)
        return jnp.cos(x)

    assert names(program(function, (3,))) == ["cos"]


def test_an_equation_that_reads_a_value_twice_is_one_reader():
    found = program(lambda x: x * x + jnp.sin(x), (3,))
    assert [equation.primitive for equation in found.readers()[found.inputs[0]]] == ["mul", "sin"]


def test_a_loop_is_walked_once_and_linked():
    found = program(lambda x, xs: lax.scan(lambda c, x: (c + x, c), x, xs), (2,), (5, 2))
    assert names(found) == ["link_init", "scan_x", "add", "link", "scan_y"]
    assert [value.shape for value in found.outputs] == [(2,), (5, 2)]


def loop_of(function):
    (loop,) = {
        equation.params["loop"]
        for equation in program(function, (5, 2)).equations
        if equation.primitive == "scan_x"
    }
    return loop


def test_iterations_are_ordered_if_they_carry_anything():
    assert loop_of(lambda xs: lax.scan(lambda c, x: (c + x, c), jnp.zeros(2), xs)[1]).is_ordered
    assert not loop_of(lambda xs: lax.map(jnp.tanh, xs)).is_ordered
