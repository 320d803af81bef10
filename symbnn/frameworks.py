"""Which library a network was written in, told from its class: nothing is imported for it."""

import functools
from typing import Any

CLASSES = {
    ("flax.linen", "Module"): "linen",
    ("flax.nnx", "Module"): "nnx",
    ("equinox", "Module"): "equinox",
    ("haiku", "Transformed"): "haiku",
    ("haiku", "TransformedWithState"): "haiku",
}
"""(package, class) -> the library of that class and of all that inherit from it."""

NAMES = {
    "linen": "a linen module",
    "nnx": "an nnx module",
    "equinox": "an Equinox module",
    "haiku": "a Haiku transform",
}
SPLITS = {
    "linen": "lambda params, x: module.apply({'params': params}, x)",
    "nnx": "a function of a state, with nnx.split and nnx.merge",
    "equinox": "a function of arrays, with eqx.partition and eqx.combine",
    "haiku": "its pure function, hk.without_apply_rng(transformed).apply",
}


def library(network: Any) -> str | None:
    """`"linen"`, `"nnx"`, `"equinox"` or `"haiku"` for a network of that library, or its class; else None."""
    cls: Any = network if isinstance(network, type) else type(network)
    return _library(cls)


def described(network: Any) -> str:
    """What a message calls it: `an Equinox module (MLP)`; anything else by its type."""
    name = (network if isinstance(network, type) else type(network)).__name__
    kind = library(network)
    return f"a {name}" if kind is None else f"{NAMES[kind]} ({name})"


def is_variable(node: Any) -> bool:
    """Whether it is a variable of nnx (`nnx.Param`, ...): a box around one array."""
    cls: Any = type(node)
    return _is_variable(cls)


def check_apply(apply: Any) -> None:
    """`ValueError` unless `apply` can be a pure function of weights and inputs: a module is none."""
    kind = library(apply)
    if kind is not None or not callable(apply):
        other = "" if kind is None else f", or {SPLITS[kind]}"
        raise ValueError(
            f"apply must be a function of weights and inputs; got {described(apply)}: give model.apply, for "
            f"the network of another library that of models.wrap(network, example){other}"
        )


def check_model(model: Any) -> None:
    """`ValueError` unless `model` can be a `Model`; a linen module has an `init` and `apply` too."""
    if library(model) is not None or not (hasattr(model, "init") and hasattr(model, "apply")):
        raise ValueError(
            f"model must be a models.Model; got {described(model)}: wrap a network of any JAX library by "
            "models.wrap(network, example)"
        )


@functools.cache
def _library(cls: Any) -> str | None:
    for (package, name), kind in CLASSES.items():
        if _inherits(cls, package, name):
            return kind
    return None


@functools.cache
def _is_variable(cls: Any) -> bool:
    return _inherits(cls, "flax.nnx", "Variable")


def _inherits(cls: type, package: str, name: str) -> bool:
    return any(
        base.__name__ == name and f"{base.__module__}.".startswith(f"{package}.") for base in cls.__mro__
    )
