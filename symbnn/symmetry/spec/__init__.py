"""The description of a symmetry group: axes by name go in, a hashable `SymmetrySpec` comes out."""

from symbnn.symmetry.spec.blocks import Piece, join, split, words_by_axis
from symbnn.symmetry.spec.from_axes import from_axes
from symbnn.symmetry.spec.spec import (
    Factor,
    Group,
    Index,
    Kind,
    Leaf,
    Missing,
    Pin,
    Role,
    SymmetrySpec,
    check_params,
)
from symbnn.symmetry.spec.words import Segments, Slices, Word, atoms, map_atoms, pieces, slices, word_size

__all__ = [
    "Factor",
    "Group",
    "Index",
    "Kind",
    "Leaf",
    "Missing",
    "Piece",
    "Pin",
    "Role",
    "Segments",
    "Slices",
    "SymmetrySpec",
    "Word",
    "atoms",
    "check_params",
    "from_axes",
    "join",
    "map_atoms",
    "pieces",
    "slices",
    "split",
    "word_size",
    "words_by_axis",
]
