"""One file per finished stage: what was computed, as the classes it had, and which code computed it.

A file names its classes, but does not decide which code runs: only those of `CLASSES` come back.
"""

import dataclasses
import itertools
from pathlib import Path
from typing import Any, NamedTuple

from experiments.harness.provenance import Code, short
from symbnn import diagnostics, evaluate, inference, io, sharing, symmetry
from symbnn.io import posterior
from symbnn.sharing import Ellipses
from symbnn.sharing.merge import Merged

CLASSES: tuple[type, ...] = (
    *posterior.KNOWN,
    inference.Fit,
    symmetry.Aligned,
    symmetry.Element,
    evaluate.Barrier,
    diagnostics.Summary,
    sharing.Stochastic,
    sharing.Layout,
    sharing.Clusters,
    sharing.Outliers,
    sharing.Mixture,
    sharing.Refined,
    Ellipses,
    Merged,
    sharing.SharedWeights,
)
"""What a stage may return, besides dicts, lists and tuples of arrays, numbers and words."""


class Record(NamedTuple):
    """How a stage came to be: seconds, commit and versions, and the run that lent it, if one did."""

    seconds: float
    commit: str | None
    versions: dict[str, str]
    lender: str | None = None

    @property
    def words(self) -> str:
        """What is said when the stage has been kept."""
        if self.lender is None:
            return f"done in {self.seconds:.1f} s"
        return f"borrowed from {self.lender}, computed at {short(self.commit)}"

    @property
    def code(self) -> Code:
        """The code that computed it."""
        return Code(self.commit, self.versions)


class Misplaced(ValueError):
    """A whole file, but of another stage or another run."""


def write(path: Path, name: str, run: str, record: Record, tree: Any) -> None:
    """Keep a stage; `ValueError` for a class that would not come back."""
    _check_classes(name, tree)
    io.save_tree(path, tree, {"stage": name, "run": run, **record._asdict()})


def read(path: Path, name: str, run: str | None = None) -> tuple[Any, Record]:
    """The stage `name` (of the run `run`, unless it may be any) and its record."""
    metadata = io.read_metadata(path)
    if metadata.get("stage") != name or run not in (None, metadata.get("run")):
        raise Misplaced(f"{path} belongs to another stage or run")
    if "commit" not in metadata:
        raise ValueError(
            f"{path} was written by an older version, which kept neither classes nor the commit; use --fresh "
            "to start over, or another --rundir"
        )
    tree, _ = io.load_tree(path, classes=CLASSES)
    lender = metadata.get("lender")
    return tree, Record(float(metadata["seconds"]), metadata["commit"], dict(metadata["versions"]), lender)


def set_aside(path: Path, why: str) -> Path:
    """Rename a file that cannot be used, so that it is not overwritten; returns where it is."""
    names = (path.with_name(f"{path.name}.{why}{number if number else ''}") for number in itertools.count())
    return path.rename(next(name for name in names if not name.exists()))


def _check_classes(name: str, tree: Any) -> None:
    if isinstance(tree, dict):
        children = list(tree.values())
    elif dataclasses.is_dataclass(tree):
        children = [getattr(tree, field.name) for field in dataclasses.fields(tree)]
    elif isinstance(tree, list | tuple):
        children = list(tree)
    else:
        return
    kind = type(tree)
    if kind not in (dict, list, tuple, *CLASSES):
        raise ValueError(
            f"stage {name!r} returned a {kind.__name__}, which would come back as a dict; add the class to "
            "CLASSES in experiments/harness/stages.py, or return its fields"
        )
    for child in children:
        _check_classes(name, child)
