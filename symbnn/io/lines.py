"""Metrics as JSON lines: every line is appended in one write, and a line torn by a crash is passed over."""

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from symbnn.io.files import parse_json, problem


def append_line(path: str | Path, record: Mapping[str, Any]) -> None:
    """Append one record; arrays become lists. A torn last line of an earlier crash is cut off first."""
    path = Path(path)
    line = (json.dumps(dict(record), default=_plain) + "\n").encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            end = _end_of_whole_lines(file)
            file.truncate(end)
            try:
                _write_all(file.fileno(), line)
            except OSError:
                file.truncate(end)
                raise
    except OSError as error:
        raise problem(
            path,
            expected="to append a line",
            found=f"{type(error).__name__} ({error.strerror or error})",
            advice="free space or choose a writable directory; earlier lines are untouched",
        ) from error


def read_lines(path: str | Path) -> list[dict[str, Any]]:
    """All whole records; a torn last line is passed over, damage elsewhere is an `ArtefactError`."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise problem(
            path, expected="a file of JSON lines", found=str(error), advice="run the stage that makes it"
        ) from error
    records = []
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            records.append(parse_json(line))
        except ValueError as error:
            raise problem(
                path,
                expected=f"JSON in line {number}",
                found=f"{line[:40]!r}",
                advice="remove that line, or the file, and run again",
            ) from error
    return records


def _end_of_whole_lines(file: Any) -> int:
    """Offset behind the last newline, found from the end so that appending does not read the whole file."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - 4096)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
    os.fsync(descriptor)


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return np.asarray(value).tolist()
