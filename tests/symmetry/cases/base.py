"""Networks with the groups one derives by hand: (units, units of what they vary over, scales, signs).

Every case is a plain function over a tree of weights: what is tested is discovery and not a framework.
Weights are drawn by NumPy: initialisers would take longer to compile than the networks.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

from symbnn import symmetry

BATCH = 3


class Case(NamedTuple):
    apply: Callable[..., Any]
    shapes: Any
    input_shape: tuple[int, ...]
    groups: list[tuple[int, tuple[int, ...], int, int]]


CASES: dict[str, Callable[[], Case]] = {}


def case(function):
    CASES[function.__name__] = function
    return function


def is_shape(node) -> bool:
    return isinstance(node, tuple) and all(isinstance(size, int) for size in node)


def draw(shapes, seed: int = 0):
    """Weights between 0.3 and 1, of either sign in matrices; positive in vectors, which may be variances."""
    random = np.random.default_rng(seed)

    def leaf(shape):
        values = random.uniform(0.3, 1.0, size=shape)
        is_matrix = sum(size > 1 for size in shape) > 1
        return np.float32(values * random.choice([-1, 1], size=shape) if is_matrix else values)

    return jax.tree.map(leaf, shapes, is_leaf=is_shape)


def inputs(shape: tuple[int, ...], seed: int = 1) -> np.ndarray:
    return np.float32(np.random.default_rng(seed).normal(size=shape))


def summary(spec) -> list[tuple[int, tuple[int, ...], int, int]]:
    return sorted(
        (group.size, tuple(spec.size(name) for name in group.over), group.num_scales, group.num_signs)
        for group in spec.groups
    )


def dense(size_in: int, size_out: int):
    return {"kernel": (size_in, size_out), "bias": (size_out,)}


def linear(layer, x):
    return x @ layer["kernel"] + layer["bias"]


def conv(kernel, x, *, groups: int = 1, stride: int = 1, padding: str = "SAME"):
    return lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def norm(layer, x, axis=-1):
    """LayerNorm with affine."""
    centred = x - x.mean(axis, keepdims=True)
    return centred * lax.rsqrt(centred.var(axis, keepdims=True) + 1e-5) * layer["scale"] + layer["bias"]


def batch_norm(layer, x):
    return (x - layer["mean"]) * (layer["scale"] * lax.rsqrt(layer["var"] + 1e-3)) + layer["bias"]


def bn(size: int):
    return dict.fromkeys(("mean", "var", "scale", "bias"), (size,))


def discovered(case: Case):
    return symmetry.discover(case.apply, draw(case.shapes), inputs(case.input_shape))


def check_elements(case: Case, num_elements: int, precisions=(False, True)):
    """Random elements of what is found leave the outputs alone."""
    spec, params, x = discovered(case), draw(case.shapes), inputs(case.input_shape)
    for float64 in precisions:
        report = symmetry.verify(
            spec, case.apply, params, x, jax.random.key(0), num_elements=num_elements, float64=float64
        )
        assert report.ok, report


def hidden(function) -> Case:
    """Two dense layers with a function of the hidden units and the weights in between."""

    def apply(params, x):
        return function(x @ params["in"], params) @ params["out"]

    return Case(apply, {"in": (3, 6), "out": (6, 2)}, (4, 3), [])
