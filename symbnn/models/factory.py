"""A network by the name of the function that makes it, `module:function`: what a command line can say.

The function is the user's. It is called as `function(input_shape, num_outputs)`, or with a third argument
`key` if it has one, and returns a `Model`, a network of any library that `wrap` takes, or two functions
`(init, apply)`. Whatever goes wrong in it, or with its name, is one `ValueError` that says where.
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
def from_factory(
    reference: str, input_shape: tuple[int, ...] | None = None, num_outputs: int | None = None
) -> Model:
    """The `Model` that the function called `reference` makes for inputs of this shape.

    Equal arguments give the same `Model`, as for our own networks: what is jitted over it compiles once.

    Args:
        reference: `module:function`; the module is importable, say from the current folder. A function
            without arguments will do, if its network fits.
        input_shape: Of one input, without the batch axis; needed unless the function knows it itself.
        num_outputs: Logits, or regression outputs; likewise.
    """
    factory = find(reference)
    given, takes_key = _arguments(reference, factory, input_shape, num_outputs)
    words = f" for input_shape {input_shape} and {num_outputs} outputs" if given else ""

    def make(key: Key) -> Any:
        try:
            return factory(*given, **({"key": key} if takes_key else {}))
        except Exception as error:  # whatever the user's code raises
            raise ValueError(f"{reference} raises {_words(error)}{words}") from error

    made = make(jax.random.key(0))
    model = made
    if not isinstance(made, Model):
        model = _wrapped(reference, made, input_shape, make if takes_key else None)
    _check_outputs(reference, model, model.input_shape or input_shape, num_outputs)
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


def _arguments(
    reference: str, factory: Callable[..., Any], input_shape: tuple[int, ...] | None, num_outputs: int | None
) -> tuple[tuple[Any, ...], bool]:
    """What the function is called with, and whether with a key; `ValueError` if it asks for anything else."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # a function that is not written in Python
        return (input_shape, num_outputs), False
    keyed = {"key": None} if "key" in signature.parameters else {}
    both = (input_shape, num_outputs)
    for given in ((), both) if None in both else (both, ()):
        try:
            signature.bind(*given, **keyed)
        except TypeError:
            continue
        if given and None in given:
            raise ValueError(
                f"{reference} takes {signature}, but the shape of an input or the number of outputs is not "
                "given"
            )
        return given, bool(keyed)
    raise ValueError(
        f"{reference} takes {signature}; it is called as function(input_shape, num_outputs), or with a third "
        "argument called key"
    )


def _wrapped(
    reference: str,
    network: Any,
    input_shape: tuple[int, ...] | None,
    make: Callable[[Key], Any] | None,
) -> Model:
    """The `Model` of a network of another library; `make` gives fresh ones where the function takes a key."""
    if input_shape is None:
        raise ValueError(f"the network of {reference} is traced on an input, whose shape is not given")
    # Descriptions draw their own weights; of a network that has weights the function makes another.
    init = None if library(network) in ("linen", "haiku") else make
    if type(network) is tuple and len(network) == 2 and all(map(callable, network)):
        init, network = network
    try:
        return wrap(network, jax.ShapeDtypeStruct((2, *input_shape), jnp.float32), init=init)
    except ValueError as error:
        raise ValueError(f"{reference} returned {described(network)}: {error}") from error


def _check_outputs(
    reference: str, model: Model, shape: tuple[int, ...] | None, num_outputs: int | None
) -> None:
    """`ValueError` unless a batch of inputs gives a row of outputs each; None is not known."""
    if shape is None:
        return
    try:
        shapes = jax.eval_shape(model.init, jax.random.key(0))
        given = jax.eval_shape(model.apply, shapes, jax.ShapeDtypeStruct((2, *shape), jnp.float32))
    except Exception as error:  # whatever the user's code raises
        raise ValueError(
            f"the network of {reference} raises {_words(error)} for inputs of shape (2, *{shape})"
        ) from error
    found = getattr(given, "shape", None)
    if num_outputs is not None and found != (2, num_outputs):
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
