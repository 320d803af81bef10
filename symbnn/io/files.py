"""Files that are whole or absent: written aside, flushed to the disk, then renamed into place."""

import contextlib
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PART_SUFFIX = ".part"


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
def replacing(path: Path) -> Iterator[Path]:
    """A path to write the new content of `path` to; it takes the place of `path` only if the block succeeds.

    An `OSError` (disk full, no permission) becomes an `ArtefactError`, and the old content stays.
    """
    part = path.parent / f".{path.name}.{secrets.token_hex(4)}{PART_SUFFIX}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Made here for the permissions that the user's umask gives: safetensors makes files that only their
        # owner may read.
        part.touch(exist_ok=False)
        mode = part.stat().st_mode
        yield part
        part.chmod(mode)
        _flush(part)
        os.replace(part, path)
        _flush(path.parent)
    except OSError as error:
        raise problem(
            path,
            expected="to write the file",
            found=f"{type(error).__name__} ({error.strerror or error})",
            advice="free space or choose a writable directory; the previous file, if any, is untouched",
        ) from error
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


def remove_parts(directory: Path) -> None:
    """Remove what killed processes left half-written. Only for directories with one writer."""
    for part in directory.glob(f".*{PART_SUFFIX}"):
        part.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """`fsync`: without it a rename can survive a power cut that the content does not."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
