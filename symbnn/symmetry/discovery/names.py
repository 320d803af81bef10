"""Names for groups: after the layer that first produces the units."""

import re
from collections.abc import Mapping

from symbnn.symmetry.discovery.axis_words import Atom

COLLECTION = "params/"
"""Flax's top level, which says nothing about a layer."""

SLICE = re.compile(r"\[[\d:, ()]+\]$")


def name_classes(places: Mapping[Atom, list[str]], over: Mapping[Atom, list[Atom]]) -> dict[Atom, str]:
    """One name per class from the names of its leaves, first producer first.

    Where one layer names several classes, those that others vary over (heads, experts, groups of channels)
    are its `.blocks`, those that vary over them its `.units`; any further ones are numbered.
    """
    bases = {atom: _base(names[0]) for atom, names in places.items()}
    varied = {d: None for dependent in over.values() for d in dependent}
    labels: dict[Atom, str] = {}
    for atom, base in bases.items():
        has_namesake = sum(other == base for other in bases.values()) > 1
        if has_namesake and atom in varied:
            base += ".blocks"
        elif has_namesake and over.get(atom):
            base += ".units"
        labels[atom] = _numbered(base, labels)
    return labels


def _base(leaf: str) -> str:
    """`layers` for `params/layers/kernel`, `layers[2]` for the slice `params/layers/kernel[2]`."""
    path, _, last = leaf.removeprefix(COLLECTION).rpartition("/")
    index = SLICE.search(last)
    return path + (index[0] if index else "") if path else last


def _numbered(name: str, labels: Mapping[Atom, str]) -> str:
    taken, number, candidate = {*labels.values()}, 0, name
    while candidate in taken:
        number += 1
        candidate = f"{name}[{number}]"
    return candidate
