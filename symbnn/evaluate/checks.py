"""Boundary checks of probabilities, labels and scores: what is wrong is said before anything is computed.

    @checked(probabilities, labels)
    @jax.jit
    def accuracy(probs, labels): ...

Each check looks at one argument in a single fused pass and raises a `ValueError` with what it found. Arrays
that are being traced (under `jit` or `vmap`) have no values yet: only their shapes are checked. Within
`unchecked` nothing is.
"""

import contextlib
import contextvars
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

Probs = Float[Array, "n c"]
Labels = Int[Array, " n"]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Check = Callable[[str, Any, tuple[Any, ...]], None]
"""`(name, value, all positional arguments)`: raises or returns."""

_enabled = contextvars.ContextVar("symbnn.evaluate.checks", default=True)


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Within this context no argument is checked: for inner loops over arrays known to be good."""
    token = _enabled.set(False)
    try:
        yield
    finally:
        _enabled.reset(token)


def checked(*checks: Check) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Decorator: run one check per leading argument before the function; what is None is not checked."""

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        names = tuple(inspect.signature(function).parameters)

        @functools.wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            # JAX does not take lists for arrays; tuples of arrays have a meaning of their own.
            args = tuple(np.asarray(each) if isinstance(each, list) else each for each in args)  # type: ignore[assignment]
            if _enabled.get():
                given = dict(zip(names, args, strict=False)) | kwargs
                values = tuple(given[name] for name in names if name in given)
                for name, value, check in zip(names, values, checks, strict=False):
                    if value is not None:
                        check(name, value, values)
            return function(*args, **kwargs)

        return call

    return decorate


def probabilities(name: str, value: Any, given: tuple[Any, ...] = ()) -> None:
    """Rows on the last axis are distributions: finite, not negative, sum to one."""
    _distributions(name, value, ndim=2)


def member_probabilities(name: str, value: Any, given: tuple[Any, ...] = ()) -> None:
    """As `probabilities`, with a leading axis of members: `(members, inputs, classes)`."""
    _distributions(name, value, ndim=3)


def same_shape(name: str, value: Any, given: tuple[Any, ...]) -> None:
    """Probabilities of the same shape as the first argument."""
    probabilities(name, value)
    if np.shape(value) != np.shape(given[0]):
        expected = np.shape(given[0])
        raise ValueError(f"{name}: expected the first argument's shape {expected}, got {np.shape(value)}")


def labels(name: str, value: Any, given: tuple[Any, ...]) -> None:
    """One integer in [0, classes) per row of the first argument."""
    rows, classes = np.shape(given[0])[-2:]
    _shape(name, value, (rows,))
    if not jnp.issubdtype(_dtype(value), jnp.integer):
        raise ValueError(f"{name}: expected integers, got {_dtype(value)}")
    if _is_traced(value):
        return
    low, high = (int(bound) for bound in _bounds(value))
    if low < 0 or high >= classes:
        raise ValueError(f"{name}: expected labels in [0, {classes}), got values in [{low}, {high}]")


def scores(name: str, value: Any, given: tuple[Any, ...] = ()) -> None:
    """One real number per input, none of them NaN (infinities order well and may stay)."""
    _float_array(name, value, ndim=1)
    if not _is_traced(value) and np.isnan(float(_bounds(value)[0])):
        raise ValueError(f"{name}: expected real numbers, got NaN")


def finite(name: str, value: Any, given: tuple[Any, ...] = ()) -> None:
    """Real numbers of any shape: not empty, no NaN, no infinity."""
    _float_array(name, value, ndim=None)
    if not _is_traced(value) and not np.isfinite([float(bound) for bound in _bounds(value)]).all():
        raise ValueError(f"{name}: expected finite numbers, got NaN or infinity")


def positive(name: str, value: Any, given: tuple[Any, ...] = ()) -> None:
    """Finite numbers above zero, of any shape."""
    finite(name, value)
    if not _is_traced(value) and (low := float(_bounds(value)[0])) <= 0.0:
        raise ValueError(f"{name}: expected positive numbers, got {low:.6g}")


def finite_like(name: str, value: Any, given: tuple[Any, ...]) -> None:
    """Finite numbers in the shape of the first argument: another one would be broadcast without a word."""
    finite(name, value)
    _shape(name, value, np.shape(given[0]))


def positive_like(name: str, value: Any, given: tuple[Any, ...]) -> None:
    """Positive numbers in the shape of the first argument."""
    positive(name, value)
    _shape(name, value, np.shape(given[0]))


def finite_targets(name: str, value: Any, given: tuple[Any, ...]) -> None:
    """Finite numbers in the shape of the first argument without its leading axis of members."""
    finite(name, value)
    _shape(name, value, np.shape(given[0])[1:])


def input_weights(name: str, value: Any, given: tuple[Any, ...]) -> None:
    """One finite number of at least zero per row of the first argument."""
    _shape(name, value, np.shape(given[0])[:1])
    finite(name, value)
    if not _is_traced(value) and float(_bounds(value)[0]) < 0:
        raise ValueError(f"{name}: expected numbers of at least zero, got {float(_bounds(value)[0]):g}")


def _shape(name: str, value: Any, expected: tuple[int, ...]) -> None:
    if np.shape(value) != expected:
        raise ValueError(f"{name}: expected shape {expected}, got {np.shape(value)}")


def _distributions(name: str, value: Any, *, ndim: int) -> None:
    _float_array(name, value, ndim=ndim)
    if _is_traced(value):
        return
    tolerance = max(1e-4, 16 * float(jnp.finfo(_dtype(value)).eps))
    low, off = (float(number) for number in _distance_from_distribution(value))
    if low >= -1e-7 and off <= tolerance:
        return
    low, high, worst = (float(number) for number in _row_statistics(value))
    if np.isnan(low):
        raise ValueError(f"{name}: expected probabilities, got NaN")
    hint = "; these look like logits: apply softmax first" if low < 0.0 or high > 1.0 + tolerance else ""
    raise ValueError(
        f"{name}: expected rows of probabilities that sum to 1, got values in [{low:.6g}, {high:.6g}] "
        f"and a row that sums to {worst:.6g}{hint}"
    )


def _float_array(name: str, value: Any, *, ndim: int | None) -> None:
    shape = np.shape(value)
    if ndim is not None and len(shape) != ndim:
        axes = {1: "(inputs,)", 2: "(inputs, classes)", 3: "(members, inputs, classes)"}[ndim]
        raise ValueError(f"{name}: expected shape {axes}, got {shape}")
    if 0 in shape:
        raise ValueError(f"{name}: expected at least one number, got shape {shape}")
    if not jnp.issubdtype(_dtype(value), jnp.floating):
        raise ValueError(f"{name}: expected floating-point numbers, got {_dtype(value)}")


@jax.jit
def _distance_from_distribution(values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Smallest value, and the largest distance of a row's sum from one: all that good input pays for."""
    values = values.astype(jnp.promote_types(values.dtype, jnp.float32))
    return jnp.min(values), jnp.max(jnp.abs(jnp.sum(values, axis=-1) - 1.0))


@jax.jit
def _row_statistics(values: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Smallest and largest value, and the sum of the row whose sum is farthest from one."""
    values = values.astype(jnp.promote_types(values.dtype, jnp.float32))
    sums = jnp.sum(values, axis=-1).reshape(-1)
    return jnp.min(values), jnp.max(values), sums[jnp.argmax(jnp.abs(sums - 1.0))]


@jax.jit
def _bounds(values: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jnp.min(values), jnp.max(values)


def _dtype(value: Any) -> Any:
    return value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype


def _is_traced(value: Any) -> bool:
    return isinstance(value, jax.core.Tracer)
