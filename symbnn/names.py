"""Look-ups by name that answer a typo with the nearest known name."""

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

Value = TypeVar("Value")


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence that helps whoever typed `name`: the nearest known names, or all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(repr(candidate) for candidate in close) + "?"
    return "known: " + ", ".join(known)


def lookup(table: Mapping[str, Value], name: str, what: str) -> Value:
    """`table[name]`, or a `ValueError` that names the nearest `what`."""
    if name not in table:
        raise ValueError(f"unknown {what} {name!r}; {nearest(name, table)}")
    return table[name]
