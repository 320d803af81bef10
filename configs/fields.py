"""Fields of a config: with bounds, whose check names the first one outside; and what the user brings."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal


def bounded(default: Any, low: float, high: float) -> Any:
    """A field whose value, or every entry if it is a tuple, lies in `[low, high]`."""
    return dataclasses.field(default=default, metadata={"low": low, "high": high})


def brought(kind: Literal["file", "code"], *instead_of: str) -> Any:
    """A field that names what the user brings, nothing by default, instead of other settings (full names).

    A run is known by the content of the file, or of the code behind `module:function`, too.
    """
    return dataclasses.field(default=None, metadata={"brought": kind, "instead_of": instead_of})


def check(config: Any) -> None:
    """`ValueError` naming the first field out of its bounds: what, expected, got."""
    for name, field, value in walk(config):
        if "low" not in field.metadata or value is None:
            continue
        low, high = field.metadata["low"], field.metadata["high"]
        values = value if isinstance(value, tuple) else (value,)
        if not values or not all(low <= entry <= high for entry in values):
            got = " ".join(map(str, values)) or "nothing"
            raise ValueError(f"--{name} must be between {low:g} and {high:g}, got {got}")


def walk(config: Any, prefix: str = "") -> Iterator[tuple[str, dataclasses.Field, Any]]:
    """Every leaf field of nested configs as `model.hidden`, with its value."""
    for field in dataclasses.fields(config):
        name, value = prefix + field.name.replace("_", "-"), getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from walk(value, name + ".")
        else:
            yield name, field, value
