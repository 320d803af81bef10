"""`symbnn studies`: what the repository can compute, one line each."""

import argparse
import importlib
from importlib.util import find_spec
from typing import Any

ABSENT = (
    "the studies are not part of the installed package: get the repository of symbnn, and run this in its "
    "folder, or after pip install --editable '.[studies]'"
)
USAGE = "python -m experiments.STUDY CONFIG --help shows the settings; run it where the studies were found"


def run(arguments: argparse.Namespace) -> None:
    """Print the studies; `ValueError` if they are not there."""
    configs = _configs()
    width = max(map(len, configs.STUDIES))
    for name, study in configs.STUDIES.items():
        print(f"{name:{width}}  {study.summary.rstrip('.')} ({', '.join(study.configs)})")
    print(USAGE)


def _configs() -> Any:
    """The repository's configs; a folder of that name may be anybody's."""
    try:
        found = find_spec("configs") is not None and find_spec("experiments.harness") is not None
    except ImportError:
        found = False
    configs = importlib.import_module("configs") if found else None
    if not hasattr(configs, "STUDIES"):
        raise ValueError(ABSENT)
    return configs
