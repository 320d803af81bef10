"""What is checked of a network before it becomes a `Model`, by tracing it: every error is one line."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import tree
from symbnn.frameworks import described
from symbnn.models.base import join_statistics, split_statistics
from symbnn.models.wrapping.parts import Call, Parts, over_examples
from symbnn.symmetry.program import flatten
from symbnn.types import Key, Params


def example_shape(example: Any) -> jax.ShapeDtypeStruct:
    """Shape and type of a batch of inputs."""
    if isinstance(example, tuple | list | dict):
        raise ValueError(
            f"example must be one array, a batch of inputs; got a {type(example).__name__}: join several "
            "inputs to one array, and take it apart inside the network"
        )
    if not hasattr(example, "shape") or not hasattr(example, "dtype"):
        example = np.asarray(example)
    if not len(example.shape) or not example.shape[0]:
        raise ValueError(f"example must be a batch of inputs, (batch, ...); got shape {example.shape}")
    return jax.ShapeDtypeStruct(example.shape, jax.dtypes.canonicalize_dtype(example.dtype))


@contextlib.contextmanager
def explaining(name: str, deed: str, advice: str = "") -> Iterator[None]:
    """An error of the network's own code in one line that says what was tried."""
    try:
        yield
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        raise ValueError(
            f"{name} cannot {deed} ({type(error).__name__}: {lines[0][:200]}){advice}"
        ) from error


def concrete(leaf: Any) -> jax.Array:
    """A leaf with numbers; `ValueError` where there is only a shape."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        raise ValueError(
            "network has shapes but no weights; give init, a function init(key) of such a network"
        )
    return jnp.asarray(leaf)


def refuse_uncallable(module: Any) -> None:
    """`ValueError` for a module that cannot be called as a function of its inputs."""
    if not callable(module):
        raise ValueError(
            f"network is {described(module)} without a method __call__(inputs); write one, or wrap a function"
        )


def refuse_empty(parts: Parts, weights: Params) -> None:
    """`ValueError` for a network without weights."""
    if not jax.tree.leaves(weights):
        raise ValueError(f"{parts.name} has no weights")


def refuse_other_weights(parts: Parts, shapes: Params) -> None:
    """`ValueError` for a network without weights, and for an `init` of another architecture."""
    refuse_empty(parts, split_statistics(shapes)[0])
    if parts.given is not None:
        tree.check_same_shapes("init(key)", shapes, join_statistics(*parts.read(parts.given)))


def find_call(
    parts: Parts,
    is_batched: bool | None,
    shapes: Params,
    example: jax.ShapeDtypeStruct,
    draw: Callable[[Key], Params],
) -> tuple[Call, bool]:
    """The call on a batch, and whether it needs a key in evaluation; where it is open whether the network
    takes a batch or one example, what can be traced decides."""
    calls = {False: over_examples(parts.call, parts.axis_name), True: parts.call}
    if is_batched is not None:
        return calls[is_batched], try_call(parts, calls[is_batched], shapes, example)
    works: list[tuple[Call, bool]] = []
    errors = []
    for call in calls.values():
        try:
            works.append((call, try_call(parts, call, shapes, example)))
        except ValueError as error:
            errors.append(error)
    if not works:
        # An error of the network's own code says less than one about what it gives.
        raise next((error for error in errors if error.__cause__ is None), errors[0])
    if len(works) == 2 and not _agree([call for call, _ in works], draw, example):
        raise ValueError(
            f"{parts.name} takes a batch as well as one example, with different results; say which is meant "
            "by batched=True or batched=False"
        )
    return works[0]


def try_call(parts: Parts, call: Call, shapes: Params, example: jax.ShapeDtypeStruct) -> bool:
    """Trace the call in both modes; whether it needs a key in evaluation, where it must not be random."""
    weights, statistics = split_statistics(shapes)
    key = jax.eval_shape(jax.random.key, 0)

    def traced(key: Any, inputs: Any, training: bool) -> tuple[Any, Params]:
        return jax.eval_shape(functools.partial(call, training=training), weights, statistics, inputs, key)

    needs_key = parts.has_streams or not _succeeds(traced, None, example, False)
    for size in (example.shape[0], example.shape[0] + 1):
        inputs = jax.ShapeDtypeStruct((size, *example.shape[1:]), example.dtype)
        deed = f"be applied to a batch of shape {inputs.shape}"
        with explaining(parts.name, deed, "; example must be a batch of inputs, (batch, ...)"):
            outputs, _ = traced(key if needs_key else None, inputs, False)
        _check_outputs(parts.name, outputs, inputs.shape)
    if needs_key and _depends_on_key(call, weights, statistics, example, key):
        raise ValueError(
            f"{parts.name} draws random numbers in evaluation, so its outputs are not a function of the "
            "weights; give it an argument is_training, train, deterministic or inference that turns them off"
        )
    with explaining(parts.name, f"be trained on a batch of shape {example.shape}"):
        tree.check_same_shapes("statistics after a call", traced(key, example, True)[1], statistics)
    return needs_key


def _succeeds(function: Callable[..., Any], *arguments: Any) -> bool:
    try:
        function(*arguments)
    except Exception:
        return False
    return True


def _check_outputs(name: str, outputs: Any, shape: tuple[int, ...]) -> None:
    """`ValueError` unless the network gives one array with a row for every row of the batch."""
    if not isinstance(outputs, jax.ShapeDtypeStruct):
        raise ValueError(
            f"{name} gives a {type(outputs).__name__}; it must give one array, (batch, outputs): write a "
            "network that returns only that"
        )
    if len(outputs.shape) < 2 or outputs.shape[0] != shape[0]:
        raise ValueError(
            f"{name} gives outputs of shape {outputs.shape} for an example of shape {shape}; both must begin "
            "with the batch, (batch, ...) and (batch, outputs): for a single input give example[None]"
        )


def _depends_on_key(call: Call, weights: Params, statistics: Params, inputs: Any, key: Any) -> bool:
    """Whether the outputs in evaluation read the key, in the program that computes them."""

    def outputs(key: Key, weights: Params, statistics: Params, inputs: Any) -> Any:
        return call(weights, statistics, inputs, key, False)[0]

    program = flatten(jax.make_jaxpr(outputs)(key, weights, statistics, inputs))
    return program.inputs[0] in program.outputs or program.inputs[0] in program.readers()


def _agree(calls: list[Call], draw: Callable[[Key], Params], example: jax.ShapeDtypeStruct) -> bool:
    """Whether two calls compute the same for random weights and inputs."""
    key_weights, key_inputs = jax.random.split(jax.random.key(0))
    shape = (3, *example.shape[1:])
    # Whole numbers between 0 and 2, which are also classes or tokens.
    inputs = jnp.round(2.0 * jax.random.uniform(key_inputs, shape)).astype(example.dtype)
    if jnp.issubdtype(example.dtype, jnp.inexact):
        inputs = jax.random.normal(key_inputs, shape, example.dtype)
    weights, statistics = split_statistics(draw(key_weights))
    one, other = (call(weights, statistics, inputs, key_inputs, False)[0] for call in calls)
    return bool(jnp.allclose(one, other, rtol=1e-4, atol=1e-5 * float(jnp.abs(one).max())))
