"""Why axes are pinned, in words: collected while the passes are still in memory."""

from pathlib import PurePath
from typing import Any

from symbnn.symmetry.discovery.axis_words import Atom, Cause
from symbnn.symmetry.discovery.permutations import INPUT, ITERATIONS, OUTPUT, Permutations
from symbnn.symmetry.discovery.rules.contract import WINDOW
from symbnn.symmetry.discovery.rules.index import ROWS
from symbnn.symmetry.discovery.rules.reduce import POOLING
from symbnn.symmetry.program import Value
from symbnn.symmetry.spec import Pin, Segments, Word, atoms

EXPECTED = {INPUT.reason, OUTPUT.reason, ITERATIONS.reason, WINDOW, POOLING, ROWS}
"""Causes that every network has; anything else may be a symmetry lost, and is worth a look."""

LIBRARIES = ("site-packages", "dist-packages", "/jax/", "/flax/", "<")


def collect(
    leaves: dict[str, Value],
    permutations: Permutations,
    used: set[Value],
    held: dict[Value, float],
    labels: dict[Atom, str],
) -> tuple[list[Pin], list[str]]:
    """Pinned leaf axes with their reason, and remarks on unused leaves and refined axes."""
    pins: list[Pin] = []
    notes: list[str] = []
    for name, value in leaves.items():
        if value in held:
            notes.append(f"leaf {name!r} is held at {held[value]:g}")
            continue
        if value not in used:
            notes.append(f"leaf {name!r} is not used: the outputs do not depend on it")
            continue
        for axis, word in enumerate(permutations.words[value]):
            found = list(atoms(word))
            pins.extend(_pin(name, axis, atom) for atom in found if atom.causes)
            if len(found) > 1 and not all(atom.causes for atom in found):
                notes.append(f"leaf {name!r} axis {axis} (size {value.shape[axis]}) is {_text(word, labels)}")
    return pins, notes


def source_line(where: Any) -> str:
    """`model.py:31`, the innermost line outside the libraries; empty if unknown."""
    frames = getattr(getattr(where, "traceback", None), "frames", ())
    for frame in frames:
        if not any(part in frame.file_name for part in LIBRARIES):
            return f"{PurePath(frame.file_name).name}:{frame.line_num}"
    return ""


def _pin(name: str, axis: int, atom: Atom) -> Pin:
    # A loss explains more than the expected pin that may have met it later.
    cause = next((c for c in atom.causes if c.reason not in EXPECTED), atom.causes[0])
    return Pin(name, axis, atom.size, _reason(cause), cause.reason in EXPECTED)


def _reason(cause: Cause) -> str:
    if cause.reason in EXPECTED:
        return cause.reason
    line = source_line(cause.where)
    inside = f" in `{cause.primitive}`" if cause.primitive and cause.primitive not in cause.reason else ""
    return f"{cause.reason}{inside}" + (f" at {line}" if line else "")


def _text(word: Word, labels: dict[Atom, str]) -> str:
    return "·".join(_factor_text(factor, labels) for factor in word)


def _factor_text(factor: Any, labels: dict[Atom, str]) -> str:
    if isinstance(factor, Segments):
        return "(" + " + ".join(_text(word, labels) if word else "1" for word in factor.words) + ")"
    return f"{factor.size} [{labels[factor]}]" if factor in labels else str(factor.size)
