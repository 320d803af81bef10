"""Convolutions to few channels, computed several pixels at a time: for CPUs, a device for every core.

A CPU multiplies by a matrix of 16 columns at half the rate of one of 32, as every number that it reads serves
one vector only. So neighbours in a row of pixels become channels: the kernel is laid out once for each, with
zeros where only the others look, and goes on in steps of several pixels. From 16 to 16 channels that is a
third more operations in two thirds of the time.

The gradient of the inputs is such a convolution, too; that of the kernel is XLA's own. Only reverse mode is
defined, which is all that training takes.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn

from symbnn.programs import bind, has_convolution, run

SIDE, FULL_COLUMNS = 3, 32
CHANNELS_OF_IMAGES, COLUMNS_OF_IMAGES = 4, 64
"""Images have so few channels that more columns are faster still: 1.1 instead of 4.1 ms for 64 of 32 x 32."""
AXES = ("NHWC", "HWIO", "NHWC")
STRIDES, PADDING = (1, 1), ((1, 1), (1, 1))
PLAIN: dict[str, Any] = {
    "window_strides": STRIDES,
    "padding": PADDING,
    "lhs_dilation": (1, 1),
    "rhs_dilation": (1, 1),
    "feature_group_count": 1,
    "batch_group_count": 1,
    "precision": None,
}
CALLS = ("jit", "pjit", "closed_call")


def packed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function up to rounding; on several CPU devices, where that is faster, it convolves so.

    In its program and in what that calls by name, but not in the bodies of its loops. A device that has all
    threads to itself takes a seventh longer so. Not for draws: they must not depend on the number of devices.
    """

    @functools.wraps(function)
    def packing(*arguments: Any) -> Any:
        if jax.default_backend() != "cpu" or jax.local_device_count() == 1:
            return function(*arguments)
        program, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
        if not has_convolution(program.jaxpr):
            return function(*arguments)
        return jax.tree.unflatten(jax.tree.structure(shapes), _run(program, jax.tree.leaves(arguments)))

    return packing


def _run(program: ClosedJaxpr, inputs: Sequence[Any]) -> list[Any]:
    jaxpr = program.jaxpr
    known = zip([*jaxpr.constvars, *jaxpr.invars], [*program.consts, *inputs], strict=True)
    return run(jaxpr.eqns, dict(known), jaxpr.outvars, _bind)


def _bind(equation: JaxprEqn, inputs: Sequence[Any]) -> Sequence[Any]:
    if equation.primitive.name in CALLS and isinstance(equation.params.get("jaxpr"), ClosedJaxpr):
        return _run(equation.params["jaxpr"], inputs)
    if equation.primitive.name == "conv_general_dilated" and _is_packable(equation):
        return [_convolve(*inputs)]
    return bind(equation, inputs)


def _is_packable(equation: JaxprEqn) -> bool:
    shapes: list[Any] = [variable.aval for variable in (*equation.invars, *equation.outvars)]
    inputs, kernel, outputs = shapes
    if inputs.ndim != 4 or not inputs.dtype == kernel.dtype == outputs.dtype:
        return False
    wanted = PLAIN | {"dimension_numbers": lax.conv_dimension_numbers(inputs.shape, kernel.shape, AXES)}
    is_plain = all(equation.params[name] == value for name, value in wanted.items())
    return is_plain and kernel.shape[:2] == (SIDE, SIDE) and _num_pixels(inputs, kernel) > 1


def _num_pixels(inputs: Any, kernel: Any) -> int:
    """How many neighbours are computed together."""
    channels_in, channels_out = kernel.shape[2:]
    num = (COLUMNS_OF_IMAGES if channels_in <= CHANNELS_OF_IMAGES else FULL_COLUMNS) // channels_out
    return num if num and inputs.shape[2] % num == 0 else 1


def _plain(inputs: jax.Array, kernel: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(inputs, kernel, STRIDES, PADDING, dimension_numbers=AXES)


@jax.custom_vjp
def _convolve(inputs: jax.Array, kernel: jax.Array) -> jax.Array:
    num = _num_pixels(inputs, kernel)
    if num == 1:
        return _plain(inputs, kernel)
    shifted = [jnp.pad(kernel, ((0, 0), (pixel, num - 1 - pixel), (0, 0), (0, 0))) for pixel in range(num)]
    wide = jnp.stack(shifted, axis=3).reshape(SIDE, SIDE + num - 1, kernel.shape[2], -1)
    outputs = lax.conv_general_dilated(inputs, wide, (1, num), PADDING, dimension_numbers=AXES)
    return outputs.reshape(*inputs.shape[:3], kernel.shape[3])


def _backward(kept: tuple[jax.Array, jax.Array], slope: jax.Array) -> tuple[jax.Array, jax.Array]:
    inputs, kernel = kept
    turned = kernel[::-1, ::-1].swapaxes(2, 3)
    of_kernel = jax.vjp(lambda kernel: _plain(inputs, kernel), kernel)[1]
    return _convolve(slope, turned), of_kernel(slope)[0]


_convolve.defvjp(lambda inputs, kernel: (_convolve(inputs, kernel), (inputs, kernel)), _backward)
