"""A network by the name of the function that makes it, `module:function`: what a command line can say.

The function is the user's. It is called as `function(input_shape, num_outputs)`, or with a third argument
`key` if it has one, and returns a `Model`, or a network of any library that `wrap` takes. Whatever goes wrong
in it, or with its name, is one `ValueError` that says where.
"""

import functools
import importlib
import inspect
import pkgutil
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp

from symbnn import names
from symbnn.frameworks import described, library
from symbnn.models.base import Model
from symbnn.models.wrapping.wrap import wrap
from symbnn.types import Key

EXAMPLE = "my_networks:build, the function `build` in my_networks.py of the current folder"


@functools.lru_cache(maxsize=64)
def from_factory(reference: str, input_shape: tuple[int, ...], num_outputs: int) -> Model:
    """The `Model` that the function called `reference` makes for inputs of this shape.

    Args:
        reference: `module:function`; the module is importable, say from the current folder.
        input_shape: Of one input, without the batch axis.
        num_outputs: Logits, or regression outputs.
    """
    # Kept, as equal settings of our own networks give the same `Model`: what is jitted over it compiles once.
    factory, shape = find(reference), tuple(input_shape)
    takes_key = _takes_key(reference, factory)

    def make(key: Key) -> Any:
        with_key = {"key": key} if takes_key else {}
        try:
            return factory(shape, num_outputs, **with_key)
        except Exception as error:  # whatever the user's code raises
            raise ValueError(
                f"{reference} raises {_words(error)} for input_shape {shape} and {num_outputs} outputs"
            ) from error

    made = make(jax.random.key(0))
    model = made if isinstance(made, Model) else _wrapped(reference, made, shape, make if takes_key else None)
    _check_outputs(reference, model, shape, num_outputs)
    return model


def find(reference: str) -> Callable[..., Any]:
    """The function called `module:function`; `ValueError` with the nearest name if there is none."""
    module_name, _, function_name = reference.partition(":")
    if not module_name or not function_name or module_name.endswith(".py") or "/" in module_name:
        raise ValueError(f"{reference!r} is no module:function; write it as {EXAMPLE}")
    module = _import(module_name)
    found = getattr(module, function_name, None)
    if not callable(found):
        known = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        what = "no function" if found is None else f"a {type(found).__name__}, no function,"
        advice = names.nearest(function_name, known) if known else "it has no functions"
        raise ValueError(f"{_place(module)} has {what} {function_name!r}; {advice}")
    return found


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ValueError(f"{name} cannot be imported: it raises {_words(error)}") from error
        here = [module.name for module in pkgutil.iter_modules([str(Path.cwd())])]
        advice = names.nearest(name, here) if here else "there are no modules in this folder"
        raise ValueError(f"no module {name!r} in {Path.cwd()} or on Python's path; {advice}") from error
    except Exception as error:  # whatever the user's code raises
        raise ValueError(f"{name} cannot be imported: it raises {_words(error)}") from error


def _takes_key(reference: str, factory: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # a function that is not written in Python
        return False
    takes_key = "key" in signature.parameters
    try:
        signature.bind((), 0, **({"key": None} if takes_key else {}))
    except TypeError as error:
        raise ValueError(
            f"{reference} takes {signature}; it is called as function(input_shape, num_outputs), or with a "
            f"third argument called key"
        ) from error
    return takes_key


def _wrapped(
    reference: str, network: Any, shape: tuple[int, ...], make: Callable[[Key], Any] | None
) -> Model:
    # Descriptions draw their own weights; of a network that has weights the function makes another.
    init = None if library(network) in ("linen", "haiku") else make
    try:
        return wrap(network, jax.ShapeDtypeStruct((2, *shape), jnp.float32), init=init)
    except ValueError as error:
        raise ValueError(f"{reference} returned {described(network)}: {error}") from error


def _check_outputs(reference: str, model: Model, shape: tuple[int, ...], num_outputs: int) -> None:
    """`ValueError` unless a batch of inputs gives a row of outputs each."""
    try:
        shapes = jax.eval_shape(model.init, jax.random.key(0))
        given = jax.eval_shape(model.apply, shapes, jax.ShapeDtypeStruct((2, *shape), jnp.float32))
    except Exception as error:  # whatever the user's code raises
        raise ValueError(
            f"the network of {reference} raises {_words(error)} for inputs of shape (2, *{shape})"
        ) from error
    found = getattr(given, "shape", None)
    if found != (2, num_outputs):
        raise ValueError(
            f"the network of {reference} gives outputs of shape {found} for inputs of shape (2, *{shape}); "
            f"expected (2, {num_outputs}), a number for every class of every input"
        )


def _place(module: ModuleType) -> str:
    return str(getattr(module, "__file__", None) or module.__name__)


def _words(error: BaseException) -> str:
    """`TypeError: ... (my_networks.py, line 3)`: kind, message, and the last place in the user's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_own(frame.filename)]
    where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}{where}"


def is_own(file: str | Path) -> bool:
    """Whether a source file is the user's: neither Python's, nor installed, nor of this library."""
    installed = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    libraries = [folder.resolve() for folder in (*installed, Path(__file__).parents[1])]
    path = Path(file)
    return path.is_file() and not any(path.resolve().is_relative_to(folder) for folder in libraries)
