"""Check a spec numerically: random elements of the group must leave a network's outputs alone.

Permutations, positive scales, signs and matrices are tried one kind at a time and all together; translations,
which are no part of an element, one after the other. When a kind
breaks the outputs, `blame` finds the group and the first leaf whose description is wrong.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import keys, tree
from symbnn.frameworks import check_apply
from symbnn.symmetry.group import blame
from symbnn.symmetry.group.act import Element, act
from symbnn.symmetry.group.elements import identity, random_element
from symbnn.symmetry.group.translate import random_translation
from symbnn.symmetry.numerics import check_finite, quick_options
from symbnn.symmetry.program import flatten
from symbnn.symmetry.spec import SymmetrySpec, check_params
from symbnn.types import Key, Params

KINDS = ("permutation", "scale", "sign", "matrix", "all")

# Rounding of a deep network in the given precision, far below what a wrong leaf does (0.01 to 1).
TOLERANCE = {False: 1e-5, True: 1e-10}
# Of the coarsest precision that a program computes in, where that is more than the above: in half precision
# they are as large as the effect of a small leaf, and a finding says less there.
ROUNDINGS = 8


@dataclass(frozen=True)
class Report:
    """Worst relative error per kind of element; if one is too large, what is to blame."""

    errors: dict[str, float]
    tolerance: float
    culprit: blame.Culprit | None = None

    @property
    def ok(self) -> bool:
        """Whether all errors are within the tolerance."""
        return all(error <= self.tolerance for error in self.errors.values())

    def __bool__(self) -> bool:
        """So that `assert verify(...)` says what it seems to say."""
        return self.ok

    @property
    def bad_leaf(self) -> str | None:
        """Name of the first leaf whose description is wrong."""
        return self.culprit.leaf if self.culprit else None

    def raise_if_broken(self) -> "Report":
        """`ValueError` with the report's text unless `ok`; else the report itself."""
        if not self.ok:
            raise ValueError(str(self))
        return self

    def __str__(self) -> str:
        errors = ", ".join(f"{kind} {error:.1e}" for kind, error in self.errors.items())
        if self.ok:
            return f"outputs unchanged: worst relative errors {errors}"
        blamed = f"; {self.culprit}" if self.culprit else ""
        return f"outputs changed: worst relative errors {errors} (tolerance {self.tolerance:g}){blamed}"


def verify(
    spec: SymmetrySpec,
    apply: Callable[..., Any],
    params: Params,
    *inputs: Any,
    key: Key | None = None,
    num_elements: int = 5,
    tolerance: float | None = None,
    float64: bool = False,
) -> Report:
    """Report on `apply(act(spec, g, params), *inputs)` for random g: `verify(spec, apply, params, x, key)`.

    Leaves that are constant along an axis, as freshly initialised biases are, get some noise first, unless
    the spec holds them there: a leaf of zeros looks right however it is described.

    Args:
        spec: The symmetries to check.
        apply: The network function.
        params: Its weights; they must be finite, and so must the outputs.
        inputs: The data; behind it the key, unless that is given by name.
        key: For the random elements.
        num_elements: Elements that are tried of each kind.
        tolerance: Largest difference of an output, relative to the largest output. Default: 1e-5, with
            `float64` 1e-10, and no less than eight roundings of the coarsest type that the network computes
            in: float32 weights may be multiplied in bfloat16.
        float64: Compute in double precision, where a right spec is exact to 1e-10.
    """
    check_apply(apply)
    if key is None:
        inputs, key = inputs[:-1], (inputs or (None,))[-1]
    if not (hasattr(key, "dtype") and (_is_key(key) or (key.dtype == jnp.uint32 and key.shape == (2,)))):
        raise ValueError(
            "the last positional argument of verify, or key=, must be a key of jax.random.key; got "
            f"{type(key).__name__}"
        )
    key = key if _is_key(key) else jax.random.wrap_key_data(key)
    if num_elements < 1:
        raise ValueError(f"num_elements must be at least 1; got {num_elements}")
    check_params(spec, params)
    with jax.enable_x64(True) if float64 else contextlib.nullcontext():
        params = jax.tree.map(doubled if float64 else jnp.asarray, params)
        inputs = jax.tree.map(doubled, inputs) if float64 else inputs
        if tolerance is None:
            tolerance = max(TOLERANCE[float64], ROUNDINGS * _coarsest(apply, params, inputs))
        return _verify(spec, apply, params, inputs, key, num_elements, tolerance)


def _is_key(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _coarsest(apply: Callable[..., Any], params: Params, inputs: Any) -> float:
    """The largest rounding of anything that is computed from the weights."""
    program = flatten(jax.make_jaxpr(apply)(params, *inputs))
    depends = dict.fromkeys(program.inputs[: len(jax.tree.leaves(params))])
    count = -1
    while count != len(depends):  # Once more where a loop's carry turns out to depend on them.
        count = len(depends)
        for equation in program.equations:
            if any(value in depends for value in equation.operands):
                depends.update(dict.fromkeys(equation.results))
    return max((float(jnp.finfo(value.dtype).eps) for value in depends if value.is_float), default=0.0)


def _verify(
    spec: SymmetrySpec,
    apply: Callable[..., Any],
    params: Params,
    inputs: Any,
    key: Any,
    count: int,
    tolerance: float,
) -> Report:
    check_finite(params, "nothing can be verified")
    params = _without_constants(spec, params, key)
    compiled_apply = jax.jit(apply, compiler_options=quick_options())
    compiled_act = jax.jit(functools.partial(act, spec), compiler_options=quick_options())
    outputs = compiled_apply(params, *inputs)
    check_finite(outputs, "nothing can be verified", what="output")

    def error(moved: Params) -> float:
        return relative_error(compiled_apply(moved, *inputs), outputs)

    tried = [random_element(spec, each) for each in jax.random.split(key, count)]
    errors = {
        kind: max(error(compiled_act(only(spec, element, kind), params)) for element in tried)
        for kind in KINDS
        if _has(spec, kind)
    }
    if spec.translations:
        moving = jax.jit(functools.partial(random_translation, spec), compiler_options=quick_options())
        errors["translation"] = max(error(moving(each, params)) for each in jax.random.split(key, count))
    broken = next((kind for kind in errors if not errors[kind] <= tolerance), None)
    if broken is None:
        return Report(errors, tolerance)
    if broken == "translation":
        return Report(errors, tolerance, _broken_translation(spec, error, params, key, tolerance))
    elements = [only(spec, element, broken) for element in tried]
    return Report(errors, tolerance, blame.find_culprit(spec, error, params, elements, broken, tolerance))


def _broken_translation(
    spec: SymmetrySpec, error: Callable[[Params], float], params: Params, key: Key, tolerance: float
) -> blame.Culprit | None:
    """The first translation that changes outputs by itself."""
    for translation in spec.translations:
        alone = dataclasses.replace(spec, translations=(translation,))
        if not error(random_translation(alone, key, params)) <= tolerance:
            return blame.Culprit(translation.leaves[0], str(translation), "translation", False)
    return None


def _has(spec: SymmetrySpec, kind: str) -> bool:
    if kind == "matrix":
        return any(group.is_linear for group in spec.groups)
    return kind in ("permutation", "all") or any(getattr(g, f"num_{kind}s") for g in spec.groups)


def only(spec: SymmetrySpec, element: Element, kind: str) -> Element:
    """The element with everything but one kind of action undone; `all` keeps everything."""
    parts = zip(KINDS, element, identity(spec), strict=False)
    return Element(*(mine if kind in (own, "all") else none for own, mine, none in parts))


def relative_error(outputs: Any, expected: Any) -> float:
    """Largest difference over largest output, worst over the outputs; NaN counts as infinite."""
    worst = 0.0
    for after, before in zip(jax.tree.leaves(outputs), jax.tree.leaves(expected), strict=True):
        wide = np.complex128 if np.iscomplexobj(before) else np.float64
        after, before = np.asarray(after, wide), np.asarray(before, wide)
        scale = max(np.abs(before).max(initial=0.0), np.finfo(np.float32).tiny)
        error = np.abs(after - before).max(initial=0.0) / scale
        worst = max(worst, float(error) if np.isfinite(error) else np.inf)
    return worst


def _without_constants(spec: SymmetrySpec, params: Params, key: Any) -> Params:
    def spread(name: str, leaf: jax.Array) -> jax.Array:
        # Counts and random keys (nnx keeps those of Dropout among the weights) are nothing to add noise to.
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return leaf
        array = np.asarray(leaf)
        constant = any(
            size > 1 and (array == array.take([0], axis)).all() for axis, size in enumerate(array.shape)
        )
        if not constant or name in spec.held:
            return leaf
        noise = jax.random.normal(keys.named(key, name), leaf.shape, leaf.dtype)
        return leaf + 0.1 * max(1.0, float(np.abs(array).max(initial=0.0))) * noise

    return tree.map_named(spread, params)


def doubled(leaf: Any) -> jax.Array:
    """The leaf in double precision, if it holds real or complex numbers."""
    leaf = jnp.asarray(leaf)
    wide = jnp.complex128 if jnp.iscomplexobj(leaf) else jnp.float64
    return leaf.astype(wide) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf
