"""Which code computed a result: the commit of the checkout and the versions of the packages."""

import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import configs

PACKAGES = ("symbnn", "jax", "jaxlib", "flax", "optax", "blackjax", "numpyro", "numpy", "scipy")
CHANGED = "+changes"
LETTERS = 7
STAGE_HEADS = ("stage", "seconds", "commit", "other versions")


class Code(NamedTuple):
    """The commit, marked if files differed from it (None outside a checkout), and versions by package."""

    commit: str | None
    versions: dict[str, str]


def this_code() -> Code:
    """The code that runs now."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return Code(_commit(), {"python": platform.python_version(), **versions})


def short(commit: str | None) -> str:
    """`1234abc`, `1234abc+changes`, or words for the lack of a commit."""
    if commit is None:
        return "an unknown commit"
    parts = [part.partition("+") for part in commit.split(", then ")]
    return ", then ".join(head[:LETTERS] + plus + mark for head, plus, mark in parts)


def difference(there: Code, here: Code) -> str:
    """`computed at 1234abc (this is 5678def)`, with versions that differ; empty if the code is the same.

    What a changed checkout held is not known, so it is told even where both commits read alike.
    """
    names = sorted(there.versions.keys() | here.versions.keys())
    others = [name for name in names if there.versions.get(name) != here.versions.get(name)]
    if there.commit == here.commit and CHANGED not in (there.commit or CHANGED) and not others:
        return ""
    return f"computed at {_words(there, others)} (this is {_words(here, others)})"


def stage_rows(description: dict[str, Any]) -> list[tuple[str, ...]]:
    """A row under `STAGE_HEADS` for every stage of run.json; versions only where they are not the run's."""
    rows: list[tuple[str, ...]] = []
    for name, record in description["stages"].items():
        others = set(record["versions"].items()) - set(description["versions"].items())
        words = ", ".join(f"{package} {version}" for package, version in sorted(others))
        rows.append((name, f"{record['seconds']:.1f}", short(record["commit"]), words))
    return rows


def _words(code: Code, packages: list[str]) -> str:
    versions = ", ".join(f"{name} {code.versions.get(name, 'absent')}" for name in packages)
    return short(code.commit) + (f" with {versions}" if versions else "")


def _commit() -> str | None:
    root = Path(configs.__file__).parent.parent

    def git(*words: str) -> str:
        command: list[Any] = ["git", "-C", root, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + (CHANGED if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
