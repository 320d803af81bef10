"""Frozen settings of the studies: `configs/<study>.py` holds a dataclass and `CONFIGS`, its named instances.

A module or folder here that has `CONFIGS` is a study; nothing else has to name it.
"""

import importlib
import pkgutil
from typing import Any, NamedTuple

from configs.fields import check, walk


class Study(NamedTuple):
    """One line about a study, its configs, and options of other studies that it refuses, with the reason."""

    summary: str
    configs: dict[str, tuple[str, Any]]
    """name -> (one line, config)"""
    refuses: dict[str, str]


def _find() -> dict[str, Study]:
    names = sorted(entry.name for entry in pkgutil.iter_modules(__path__))
    modules = {name: importlib.import_module(f"configs.{name}") for name in names}
    return {
        name: Study(
            (module.__doc__ or "").splitlines()[0], dict(module.CONFIGS), getattr(module, "REFUSES", {})
        )
        for name, module in modules.items()
        if hasattr(module, "CONFIGS")
    }


STUDIES = _find()

__all__ = ["STUDIES", "Study", "check", "walk"]
