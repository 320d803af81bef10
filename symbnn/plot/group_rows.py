"""The rows of a group diagram: weight arrays in the order in which data flows through them.

A spec does not know the program, and flax sorts leaves by name. So the order is found as a run would: a layer
may come when all groups that it reads were written, which for a network without skip connections is the order
of its layers. Among layers that may come, those beside the last one come first, then by name; layers that
write no group are outputs and come last.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from symbnn.symmetry import SymmetrySpec
from symbnn.symmetry.spec.explain import named_slices
from symbnn.symmetry.spec.layer_order import STATISTICS, produces
from symbnn.symmetry.spec.spec import Factor, Leaf
from symbnn.symmetry.spec.words import Segments, Word, word_size


class Cell(NamedTuple):
    """One factor of one axis."""

    factor: Factor
    role: str
    """Whether the leaf `writes` or `reads` the units on it; it `stays` where no group acts."""
    joint: str
    """Between it and the cell before: `×` for another axis, `·` for a product, `+` for a concatenation."""


class Row(NamedTuple):
    """A leaf, or a slice of one."""

    name: str
    layer: str
    shape: tuple[int, ...]
    cells: tuple[Cell, ...]

    def groups(self, role: str) -> set[str]:
        """Groups that it writes, or those that it reads."""
        return {cell.factor.group for cell in self.cells if cell.factor.group and cell.role == role}


def rows_of(spec: SymmetrySpec) -> list[Row]:
    """From input to output; arrays before vectors within a layer."""
    known = {group.name for group in spec.groups}
    layers: dict[str, list[Row]] = {}
    for leaf in spec.leaves:
        for name, words in named_slices(leaf):
            row = Row(name, _layer(leaf), tuple(map(word_size, words)), tuple(_cells(words, known)))
            layers.setdefault(row.layer, []).append(row)
    ordered = _in_order(layers)
    return [row for layer in ordered for row in sorted(layers[layer], key=lambda row: -len(row.shape))]


def _in_order(layers: dict[str, list[Row]]) -> list[str]:
    reads, writes = (
        {name: set().union(*(row.groups(role) for row in rows)) for name, rows in layers.items()}
        for role in ("reads", "writes")
    )
    # A bias or a norm computes nothing by itself: it waits until its group is written.
    waits = {
        name: reads[name] - writes[name] if any(len(row.cells) > 1 for row in rows) else writes[name]
        for name, rows in layers.items()
    }
    order: list[str] = []
    written: set[str] = set()
    rest = sorted(layers, key=_natural)

    def turn(name: str) -> tuple[bool, int, bool]:
        is_beside = bool(order) and _parent(name) == _parent(order[-1])
        return not writes[name], len(waits[name] - written), not is_beside

    while rest:
        # In a loop, where none is ready, the one that lacks the least; the least name among equals.
        name = min(rest, key=turn)
        rest.remove(name)
        order.append(name)
        written |= writes[name]
    return order


def _layer(leaf: Leaf) -> str:
    """The path without flax's collection, so that running statistics stand beside their norm."""
    collection, _, path = leaf.name.partition("/")
    name = path if collection in ("params", STATISTICS) and path else leaf.name
    return _parent(name) or name


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts `layer2` before `layer10`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _cells(words: tuple[Word, ...], known: set[str]) -> Iterator[Cell]:
    for axis, word in enumerate(words):
        for factor, joint in _joined(word, "×"):
            role = "writes" if produces(factor, is_last=axis == len(words) - 1) else "reads"
            yield Cell(factor, role if factor.group in known else "stays", joint)


def _joined(word: Word, joint: str) -> Iterator[tuple[Factor, str]]:
    """The atoms of a word with what joins each to the one before."""
    for factor in word:
        if isinstance(factor, Segments):
            for part in factor.words:
                yield from _joined(part, joint)
                joint = "+"
        else:
            yield factor, joint
        joint = "·"
