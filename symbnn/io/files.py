"""Files that are whole or absent: written aside, flushed to the disk, then renamed into place."""

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

PART_SUFFIX = ".part"
# What readers raise on bytes that are not what they expect.
MALFORMED = (
    *(OSError, EOFError, ArithmeticError, LookupError, ValueError, TypeError, AttributeError),
    *(RecursionError, SafetensorError),
)
NO_SPACE = "free space or choose a writable directory"


class ArtefactError(ValueError):
    """A stored artefact is missing, damaged, foreign, or could not be written."""


class ForeignFileError(ArtefactError):
    """A whole file, but of another program."""


def problem(
    path: Path, *, expected: str, found: str, advice: str, kind: type[ArtefactError] = ArtefactError
) -> ArtefactError:
    """The error for `path`: which file, what was expected, what was found, what to do."""
    return kind(f"{path}: expected {expected}; found {found}; {advice}")


@contextlib.contextmanager
def explaining(path: Path, expected: str, advice: str, *, errors: Any = MALFORMED) -> Iterator[None]:
    """`errors` in the block become the `ArtefactError` for `path`; one of those passes as it is."""
    try:
        yield
    except ArtefactError:
        raise
    except errors as error:
        # The path is named already; an operating system's message repeats it.
        message = str(getattr(error, "strerror", None) or error)[:300]
        found = f"{type(error).__name__}: {message}"
        raise problem(path, expected=expected, found=found, advice=advice) from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write the new content of `path` to; it takes the place of `path` only if the block succeeds.

    An `OSError` (disk full, no permission) becomes an `ArtefactError`, and the old content stays.
    """
    part = path.parent / f".{path.name}.{secrets.token_hex(4)}{PART_SUFFIX}"
    advice = f"{NO_SPACE}; the previous file, if any, is untouched"
    try:
        # safetensors wraps the operating system's errors.
        with explaining(path, "to write the file", advice, errors=(OSError, SafetensorError)):
            path.parent.mkdir(parents=True, exist_ok=True)
            # Made here for the permissions that the user's umask gives: safetensors makes files that only
            # their owner may read.
            part.touch(exist_ok=False)
            mode = part.stat().st_mode
            yield part
            part.chmod(mode)
            _flush(part)
            os.replace(part, path)
            _flush(path.parent)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def parse_json(text: str | bytes) -> Any:
    """JSON, or a `ValueError`: also for text that is nested deeper than Python follows."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def differing(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Names, sorted, that two tables do not give the same value, or that only one of them has."""
    return sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))


def refuse_other_run(directory: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """`ArtefactError` naming the first entry in which the run of `directory` and this one differ."""
    for name in differing(found, wanted):
        if isinstance(found.get(name), dict) and isinstance(wanted.get(name), dict):
            return refuse_other_run(directory, found[name], wanted[name])
        raise ArtefactError(
            f"{directory} belongs to another run: its {name} is {found.get(name)!r}, but this run has "
            f"{wanted.get(name)!r}; use another directory, or delete this one to start afresh"
        )


def bind(
    manifest: Path,
    content: Mapping[str, Any],
    wanted: Mapping[str, Any],
    found: Mapping[str, Any] | None,
    kind: str,
) -> None:
    """Make a directory that of one run, and remove what killed processes left there half-written.

    `manifest` with `content` is written if there is none (`found` is None), else its entries `found` must be
    those `wanted`. Files `KIND-*.safetensors` without a manifest are refused.
    """
    if found is not None:
        refuse_other_run(manifest.parent, found, wanted)
        for part in manifest.parent.glob(f".*{PART_SUFFIX}"):
            part.unlink(missing_ok=True)
    elif any(manifest.parent.glob(f"{kind}-*.safetensors")):
        expected = f"the manifest of the {kind}s beside it"
        raise problem(
            manifest, expected=expected, found="nothing", advice="delete the directory and run again"
        )
    else:
        write_text(manifest, json.dumps(content, indent=1) + "\n")


def _flush(path: Path) -> None:
    """`fsync`: without it a rename can survive a power cut that the content does not."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
