"""Bayesian neural networks with weight-space symmetry removed.

`import symbnn` gives every package as an attribute, `symbnn.symmetry`, `symbnn.inference`, ...; each is
imported when it is first used, so that asking for the version or for help does not start JAX. What is public
is what these packages export.
"""

import importlib
import logging
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symbnn import command as command
    from symbnn import compact as compact
    from symbnn import data as data
    from symbnn import density as density
    from symbnn import diagnostics as diagnostics
    from symbnn import evaluate as evaluate
    from symbnn import inference as inference
    from symbnn import interop as interop
    from symbnn import io as io
    from symbnn import models as models
    from symbnn import plot as plot
    from symbnn import posteriors as posteriors
    from symbnn import sharing as sharing
    from symbnn import symmetry as symmetry

__version__ = version("symbnn")
# Quiet unless the user asks for it, as `logging.basicConfig(level="INFO")` does.
logging.getLogger("symbnn").addHandler(logging.NullHandler())

__all__ = [
    "command",
    "compact",
    "data",
    "density",
    "diagnostics",
    "evaluate",
    "inference",
    "interop",
    "io",
    "models",
    "plot",
    "posteriors",
    "sharing",
    "symmetry",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'symbnn' has no attribute {name!r}")
    return importlib.import_module(f"symbnn.{name}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
