"""How a network reads each of its leaves: from its program, not from names.

A leaf goes through views (transposed, reshaped, ...) into one of two kinds of reading:

- a matrix product or convolution with the activations a, at one or many positions: z = Σ_i a_i W_ij. Its axes
  fall into inputs i and outputs j.
- anything else, entry by entry, as a bias does; copies made by broadcasting are positions.

`trace` runs the program for one input with a zero, the tap, added to what every reading gives (to z, or to
the entries of the leaf), so the gradient with respect to a tap is the slope g of the output there. The
gradient of the leaf is Σ a gᵀ over positions, with a = 1 where there are no inputs.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from jaxtyping import Array, Float

from symbnn import tree
from symbnn.posteriors.local import CALLS, VIEWS, bind
from symbnn.types import Params

Apply = Callable[[Params, Any], Any]
Tap = Callable[[tuple[int, ...]], Array]
"""shape -> what is added to a reading."""


LARGEST_FACTOR = 8192
"""Rows of one factor: 256 MB in float32, minutes for its eigenvectors."""


class View(NamedTuple):
    """A leaf on its way to where it is read."""

    array: Any
    leaf: str
    labels: np.ndarray
    """Which entry of the leaf, counted flat, is where."""


class Reading(NamedTuple):
    """One place at which a leaf is read, for one input."""

    leaf: str
    inputs: tuple[int, ...]
    """Axes of the leaf that are inputs, rising."""
    shape: tuple[int, ...]
    """Of the tap."""
    arrange: Callable[[Array], Array]
    """Slopes in the shape of the tap -> (positions, out), entries in the order of the leaf."""


class Trace(NamedTuple):
    """What one input meets."""

    outputs: Any
    readings: list[Reading]
    activations: list[Any]
    """Of every reading: (positions, in), entries in the order of the leaf."""


def trace(apply: Apply, params: Params, x: Any, tap: Tap) -> Trace:
    """The network at one input, with what `tap` gives added to every reading, in order."""
    closed = jax.make_jaxpr(apply)(params, x[None])
    leaves = tree.named_leaves(params)
    views = [View(leaf, name, _numbered(leaf.shape)) for name, leaf in leaves.items()]
    reader = _Reader({name: leaf.shape for name, leaf in leaves.items()}, tap, [], [])
    (outputs,) = reader.run(closed.jaxpr, closed.consts, [*views, x[None]])
    return Trace(reader.entries(outputs)[0], reader.readings, reader.activations)


def readings(apply: Apply, params: Params, x: Any) -> list[Reading]:
    """Every reading of a leaf, in order, from shapes; `ValueError` for a leaf that has no factors."""
    found: list[Reading] = []

    def run(params: Params, x: Any) -> Any:
        traced = trace(apply, params, x, jnp.zeros)
        found.extend(traced.readings)
        return traced.outputs

    jax.eval_shape(run, params, x)
    for name, leaf in tree.named_leaves(params).items():
        ways = {reading.inputs for reading in found if reading.leaf == name}
        if len(ways) != 1:
            raise ValueError(_refusal(name, "is read in several ways" if ways else "is not read"))
        num_inputs = math.prod(leaf.shape[axis] for axis in next(iter(ways)))
        if max(num_inputs, leaf.size // num_inputs) > LARGEST_FACTOR:
            raise ValueError(
                _refusal(name, f"of shape {leaf.shape} would need a factor of over {LARGEST_FACTOR} rows")
            )
    return found


def _refusal(name: str, why: str) -> str:
    return (
        f"leaf {name!r} {why}, so it has no Kronecker-factored curvature; leave it out by `leaves`, or take "
        "the structure diagonal or low_rank"
    )


def _numbered(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(math.prod(shape)).reshape(shape)


class _Reader(NamedTuple):
    """Reads a jaxpr whose arguments may be views."""

    shapes: dict[str, tuple[int, ...]]
    tap: Tap
    readings: list[Reading]
    activations: list[Any]

    def run(self, jaxpr: Jaxpr, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))

        def value(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else values[atom]

        for equation in jaxpr.eqns:
            results = self.step(equation, [value(atom) for atom in equation.invars])
            values.update(zip(equation.outvars, results, strict=True))
        return [value(atom) for atom in jaxpr.outvars]

    def step(self, equation: JaxprEqn, operands: list[Any]) -> Sequence[Any]:
        name, views = equation.primitive.name, [value for value in operands if isinstance(value, View)]
        if not views:
            return bind(equation, operands)
        if name in CALLS:
            body = equation.params[CALLS[name]]
            closed = isinstance(body, ClosedJaxpr)
            return self.run(body.jaxpr if closed else body, body.consts if closed else (), operands)
        if name in VIEWS:
            (view,) = views
            return [View(bind(equation, [view.array])[0], view.leaf, _moved(equation, view.labels))]
        product = PRODUCTS[name](equation, operands) if name in PRODUCTS and len(views) == 1 else None
        order = None if product is None else self.order(views[0].leaf, product.labels)
        if product is None or order is None:
            return bind(equation, [self.entries(value) for value in _spread(equation, operands)])
        (result,) = bind(equation, [value.array if isinstance(value, View) else value for value in operands])
        inputs, rows, columns = order
        reading = Reading(
            views[0].leaf, inputs, result.shape, lambda slopes: product.arrange(slopes)[:, columns]
        )
        return [self.tapped(reading, product.activations[:, rows], result)]

    def entries(self, value: Any) -> Any:
        """The array of a view that is read entry by entry; other values as they are."""
        if not isinstance(value, View):
            return value
        # By entry, then by copy: the k-th copies of all entries are one position.
        size = math.prod(self.shapes[value.leaf])
        order = np.argsort(value.labels.ravel(), kind="stable").reshape(size, -1).T
        reading = Reading(value.leaf, (), value.labels.shape, lambda slopes: slopes.ravel()[order])
        return self.tapped(reading, jnp.ones((len(order), 1), value.array.dtype), value.array)

    def tapped(self, reading: Reading, activations: Any, value: Any) -> Any:
        self.readings.append(reading)
        self.activations.append(activations)
        return value + self.tap(reading.shape).astype(value.dtype)

    def order(self, leaf: str, labels: np.ndarray) -> tuple[tuple[int, ...], np.ndarray, np.ndarray] | None:
        """Axes of the leaf that are inputs, and inputs and outputs in its order; None if they are no axes."""
        shape = self.shapes[leaf]
        rows, columns = np.argsort(labels[:, 0]), np.argsort(labels[0])
        varying = np.ptp(np.unravel_index(labels[:, 0], shape), axis=1)
        inputs = tuple(axis for axis in range(len(shape)) if varying[axis])
        axes = (*inputs, *(axis for axis in range(len(shape)) if axis not in inputs))
        expected = _numbered(shape).transpose(axes).reshape(len(rows), -1)
        is_same = labels.size == expected.size and np.array_equal(labels[rows][:, columns], expected)
        return (inputs, rows, columns) if is_same else None


class _Product(NamedTuple):
    """A product as positions, inputs and outputs."""

    labels: np.ndarray
    """Which entry of the leaf joins an input to an output, (in, out)."""
    activations: Float[Array, "positions in"]
    arrange: Callable[[Array], Array]
    """Result -> (positions, out)."""


def _matrix_product(equation: JaxprEqn, operands: list[Any]) -> _Product | None:
    contracted, batched = equation.params["dimension_numbers"]
    if any(batched):
        return None
    which = 0 if isinstance(operands[0], View) else 1
    view, other = operands[which], operands[1 - which]
    outputs = [axis for axis in range(view.labels.ndim) if axis not in contracted[which]]
    positions = [axis for axis in range(jnp.ndim(other)) if axis not in contracted[1 - which]]
    num_inputs = math.prod(view.labels.shape[axis] for axis in contracted[which])
    activations = jnp.transpose(other, (*positions, *contracted[1 - which])).reshape(-1, num_inputs)
    labels = view.labels.transpose((*contracted[which], *outputs)).reshape(num_inputs, -1)
    num_outputs = labels.shape[1]

    def arrange(result: Array) -> Array:
        # The axes of the first operand come first.
        return result.reshape(-1, num_outputs) if which else result.reshape(num_outputs, -1).T

    return _Product(labels, activations, arrange)


def _convolution(equation: JaxprEqn, operands: list[Any]) -> _Product | None:
    params = equation.params
    numbers = params["dimension_numbers"]
    groups = params["feature_group_count"], params["batch_group_count"]
    if groups != (1, 1) or not isinstance(operands[1], View):
        return None
    output_axis, input_axis, *window = numbers.rhs_spec
    labels = operands[1].labels
    patches = lax.conv_general_dilated_patches(
        operands[0],
        filter_shape=[labels.shape[axis] for axis in window],
        window_strides=params["window_strides"],
        padding=params["padding"],
        lhs_dilation=params["lhs_dilation"],
        rhs_dilation=params["rhs_dilation"],
        dimension_numbers=numbers,
        precision=lax.Precision.HIGHEST,
    )
    num_outputs = labels.shape[output_axis]

    def features_last(array: Array) -> Array:
        feature = numbers.out_spec[1]
        return jnp.moveaxis(array, feature, -1).reshape(-1, array.shape[feature])

    # Patches have their features by channel, then by place in the window.
    return _Product(
        labels.transpose((input_axis, *window, output_axis)).reshape(-1, num_outputs),
        features_last(patches),
        features_last,
    )


ENTRY_BY_ENTRY = frozenset({"add", "sub", "mul", "div", "max", "min"})
PRODUCTS = {"dot_general": _matrix_product, "conv_general_dilated": _convolution}


def _spread(equation: JaxprEqn, operands: list[Any]) -> list[Any]:
    """Operands of one entry along an axis that the operation spreads, as a bias, copied along it."""
    if equation.primitive.name not in ENTRY_BY_ENTRY:
        return operands
    shape = equation.outvars[0].aval.shape  # type: ignore[attr-defined]

    def spread(value: Any) -> Any:
        if not isinstance(value, View):
            return value
        return View(jnp.broadcast_to(value.array, shape), value.leaf, np.broadcast_to(value.labels, shape))

    return [spread(value) for value in operands]


def _moved(equation: JaxprEqn, labels: np.ndarray) -> np.ndarray:
    """The labels after a view."""
    if equation.primitive.name == "convert_element_type":
        return labels
    with jax.ensure_compile_time_eval():
        return np.asarray(bind(equation, [labels])[0])
