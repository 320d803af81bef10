"""What the user brings to a run, a file of arrays or the code of a network, known by its content.

A config has only their names. So a run keeps their digests as well, and what was computed from other content
is refused instead of reused.
"""

import ast
import hashlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import configs
from symbnn.data.base import reading
from symbnn.io.files import file_digest
from symbnn.models import factory

# Their commit is known.
OURS = ("symbnn", "experiments", "configs")


def digests(config: Any) -> dict[str, str]:
    """SHA-256 of everything that the config names and that is not part of it: `data.npz_sha256`, ..."""
    kinds = {"file": _of_file, "code": _of_code}
    return {
        f"{name}_sha256": kinds[field.metadata["brought"]](value)
        for name, field, value in configs.walk(config)
        if "brought" in field.metadata and value is not None
    }


def names(config: Any) -> list[str]:
    """Settings of the config that name what is brought."""
    return [name for name, field, _ in configs.walk(config) if "brought" in field.metadata]


def _of_file(name: str) -> str:
    with reading(Path(name), "a file of arrays", OSError, "check the path"):
        return file_digest(Path(name))


def _of_code(reference: str) -> str:
    """Of the module of the function, and of all own modules that it imports, wherever it does."""
    factory.find(reference)
    sources: dict[str, bytes] = {}
    waiting = [reference.partition(":")[0]]
    while waiting:
        name = waiting.pop()
        path = None if name in sources else _own_source(name)
        if path is not None:
            sources[name] = path.read_bytes()
            is_package = path.name == "__init__.py"
            waiting += _imports(sources[name], name if is_package else name.rpartition(".")[0])
    digest = hashlib.sha256()
    for name in sorted(sources):
        digest.update(f"{name} {len(sources[name])}\n".encode() + sources[name])
    return digest.hexdigest()


def _own_source(name: str) -> Path | None:
    """The file of a module of the user's; looked for without importing anything that is installed."""
    found = None
    parts = name.split(".")
    if parts[0] in OURS:
        return None
    for end in range(1, len(parts) + 1):
        try:
            found = importlib.util.find_spec(".".join(parts[:end]))
        except (ImportError, ValueError):
            return None
        if found is None or found.origin is None or not factory.is_own(found.origin):
            return None
    return Path(found.origin) if found is not None and found.origin is not None else None


def _imports(source: bytes, package: str) -> Iterator[str]:
    """Names of all modules that a source may import, in its functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            start = importlib.util.resolve_name(base, package) if node.level else base
            names = [start, *(f"{start}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))
