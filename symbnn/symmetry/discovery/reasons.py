"""Why axes are pinned, in words: collected while the passes are still in memory."""

from pathlib import PurePath
from typing import Any

from symbnn.symmetry.discovery.axis_words import Atom, Cause
from symbnn.symmetry.discovery.permutations import INPUT, ITERATIONS, NOISE, OUTPUT, Permutations
from symbnn.symmetry.discovery.rules.contract import WINDOW
from symbnn.symmetry.discovery.rules.index import ROWS
from symbnn.symmetry.discovery.rules.reduce import POOLING
from symbnn.symmetry.program import Equation, Value
from symbnn.symmetry.spec import Pin, Segments, Word, atoms

EXPECTED = {INPUT.reason, OUTPUT.reason, ITERATIONS.reason, WINDOW, POOLING, ROWS, NOISE}
"""Causes that every network has; anything else may be a symmetry lost, and is worth a look."""

POSITION_CODE = "a code of positions is mixed into it"

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
            pins.extend(_pin(name, axis, atom, permutations) for atom in found if atom.causes)
            if len(found) > 1 and not all(atom.causes for atom in found):
                notes.append(f"leaf {name!r} axis {axis} (size {value.shape[axis]}) is {_text(word, labels)}")
    return pins, notes


def source_line(where: tuple[Any, ...]) -> str:
    """`model.py:31`, the innermost line outside the libraries; empty if unknown."""
    for info in where:
        for frame in getattr(getattr(info, "traceback", None), "frames", ()):
            if not any(part in frame.file_name for part in LIBRARIES):
                return f"{PurePath(frame.file_name).name}:{frame.line_num}"
    return ""


def missing(kind: str, is_bent: bool, equation: Equation | None) -> str:
    """Why a class has no scales or no signs: the equation that allows none, if there is one."""
    if not is_bent:
        return "that of the units that vary over it says the same"
    if equation is None:
        return "it holds integers, or an axis is read in two ways that do not fit"
    line = source_line(equation.where)
    known = "does not pass a factor on" if kind == "scale" else "is not odd"
    return f"`{equation.primitive}` {known}" + (f", at {line}" if line else "")


def _pin(name: str, axis: int, atom: Atom, permutations: Permutations) -> Pin:
    # What has the order of inputs or outputs could not be relabelled by any rule. Of other causes a loss
    # explains more than the expected pin that may have met it later.
    fixed = next((c for c in atom.causes if c in (INPUT, OUTPUT)), None)
    cause = fixed or next((c for c in atom.causes if c.reason not in EXPECTED), atom.causes[0])
    if _is_position_code(cause, permutations):
        return Pin(name, axis, atom.size, POSITION_CODE, expected=True)
    return Pin(name, axis, atom.size, _reason(cause), cause.reason in EXPECTED)


def _is_position_code(cause: Cause, permutations: Permutations) -> bool:
    """Whether a table of constants with a row for every position of the inputs, as of sines, is behind it."""
    if cause.value is None:
        return False
    reached = {cause.value}
    fixed: set[Value] = set()
    words = permutations.words
    for equation, *_ in permutations.records:
        # A value without words is known to hold one number.
        rest = [value for value in equation.operands if value in words and value not in fixed]
        if all(value.constant is not None for value in rest):
            fixed.update(equation.results)
            if not reached.isdisjoint((*equation.operands, *equation.results)):
                reached.update(equation.results)
    found = (atom for value in reached for word in words.get(value, ()) for atom in atoms(word))
    return any(INPUT in atom.causes for atom in found)


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
