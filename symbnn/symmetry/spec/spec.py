"""What is known about the symmetries of a network: a frozen, hashable, jit-static description.

Every axis of a weight array has a word (`words`), whose atoms say which group relabels them and with what
exponents they are rescaled and flipped. A group's permutation may vary *over* other groups (one per expert,
head, scanned layer, convolution group): its array is then indexed by them first.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np

from symbnn import tree
from symbnn.names import lookup
from symbnn.symmetry.spec.translations import Translation
from symbnn.symmetry.spec.words import Word, atoms, map_atoms, pieces, slices, slices_of, word_size
from symbnn.types import Params

Role = Literal["produces", "consumes", "both"]
Kind = Literal["permutation", "orthogonal", "invertible"]


@dataclass(frozen=True)
class Group:
    """Units that may be relabelled, and the generators by which each unit may be rescaled or flipped.

    Where a network only ever uses units linearly they may also be mixed: by any invertible matrix, or by any
    orthogonal one. An axis with scale exponent +1 is then a vector, x → M x, one with −1 its dual,
    x → M^-T x; for orthogonal matrices that is the same.
    """

    name: str
    size: int
    over: tuple[str, ...] = ()
    num_scales: int = 0
    num_signs: int = 0
    kind: Kind = "permutation"
    centred: bool = False
    """Its orthogonal matrices leave the vector of ones alone, as LayerNorm asks."""

    @property
    def is_linear(self) -> bool:
        """Whether matrices act on it."""
        return self.kind != "permutation"


@dataclass(frozen=True)
class Index:
    """An axis that is fixed itself, but over which some group's permutation varies (scanned layers)."""

    name: str
    size: int


@dataclass(frozen=True)
class Factor:
    """An atom of an axis. `scales` and `signs` hold one exponent per generator of the group."""

    size: int
    group: str | None = None
    scales: tuple[Fraction, ...] = ()
    signs: tuple[int, ...] = ()
    role: Role | None = None


@dataclass(frozen=True)
class Leaf:
    """One weight array. `shift` ε: the scalings act on `leaf + ε` (a BatchNorm variance, a gain 1 + g)."""

    name: str
    shape: tuple[int, ...]
    axes: tuple[Word, ...]
    shift: float = 0.0
    is_statistic: bool = False
    """A running variance: it moves along with the weights but is not trained."""

    def pieces(self) -> Iterator[tuple[Factor, ...]]:
        """Its atoms, once for every choice of slice and segments."""
        return pieces(self.axes)

    def factors(self) -> Iterator[tuple[int, Factor]]:
        """Every atom with the axis it lies on."""
        for words in slices(self.axes):
            for axis, word in enumerate(words):
                for factor in atoms(word):
                    yield axis, factor


@dataclass(frozen=True)
class Pin:
    """Why an axis of a leaf is not free: for `explain`, never for computation."""

    leaf: str
    axis: int
    size: int
    reason: str
    expected: bool = False


@dataclass(frozen=True)
class Missing:
    """Why a group has no scale, or no sign: for `explain`, as `Pin` is."""

    group: str
    kind: str
    reason: str


@dataclass(frozen=True)
class SymmetrySpec:
    """All symmetries of a network. Groups come after every group that they vary over."""

    groups: tuple[Group, ...]
    leaves: tuple[Leaf, ...]
    indices: tuple[Index, ...] = ()
    pins: tuple[Pin, ...] = field(default=(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    missing: tuple[Missing, ...] = field(default=(), compare=False)
    held: tuple[str, ...] = ()
    """Leaves that must keep the number they hold, or there are fewer symmetries: folded gains."""
    translations: tuple[Translation, ...] = ()
    """Moves by any amount that no output sees. They are no part of an `Element`: they do not commute."""

    def __post_init__(self) -> None:
        seen = {index.name: index.size for index in self.indices}
        for group in self.groups:
            missing = [name for name in group.over if name not in seen]
            if missing:
                raise ValueError(
                    f"group {group.name!r} varies over {missing}, which must be listed before it"
                )
            _check_kind(group, self.groups)
            seen[group.name] = group.size
        for leaf in self.leaves:
            described = tuple(map(word_size, leaf.axes))
            if described != leaf.shape or not _is_tiled(leaf.axes):
                raise ValueError(
                    f"leaf {leaf.name!r} has shape {leaf.shape}; its words {leaf.axes} describe {described}"
                )
            for axis, factor in leaf.factors():
                if factor.group is not None and (size := seen.get(factor.group)) != factor.size:
                    raise ValueError(
                        f"leaf {leaf.name!r} axis {axis} has {factor.size} units of group {factor.group!r}, "
                        + ("which is not listed" if size is None else f"which has {size}")
                    )

    def group(self, name: str) -> Group:
        """The group of that name."""
        return next(group for group in self.groups if group.name == name)

    def size(self, name: str) -> int:
        """Size of a group or of a fixed index."""
        items: list[Group | Index] = [*self.groups, *self.indices]
        return next(item.size for item in items if item.name == name)

    def shape(self, group: Group) -> tuple[int, ...]:
        """Shape of the group's permutation array: `(*over, size)`."""
        return (*(self.size(name) for name in group.over), group.size)

    def permutations_only(self) -> "SymmetrySpec":
        """The same without matrices: what units may do one by one, which is relabel, rescale and flip."""
        plain = tuple(replace(group, kind="permutation", centred=False) for group in self.groups)
        return replace(self, groups=plain)

    def restricted(self, names: Collection[str]) -> "SymmetrySpec":
        """The same with only those groups; the units of others are left as they are."""

        def kept(factor: Factor) -> Factor:
            return factor if factor.group in known else Factor(factor.size, role=factor.role)

        known = {*names, *(index.name for index in self.indices)}
        leaves = (
            replace(leaf, axes=tuple(map_atoms(kept, word) for word in leaf.axes)) for leaf in self.leaves
        )
        groups = tuple(group for group in self.groups if group.name in names)
        return replace(self, groups=groups, leaves=tuple(leaves))

    def explain(self) -> str:
        """Groups, leaves, and every pinned axis with its reason, as text."""
        from symbnn.symmetry.spec.explain import explain

        return explain(self)


def _is_tiled(axes: tuple[Word, ...]) -> bool:
    """Whether the slices of an array, if it has any, make up the whole."""
    sliced = slices_of(axes)
    if sliced is None:
        return True
    axis, shape = sliced.axis, tuple(map(word_size, axes))
    shapes = [tuple(map(word_size, part)) for part in sliced.parts]
    return (
        sum(part[axis] for part in shapes) == shape[axis]
        and all((*part[:axis], *part[axis + 1 :]) == (*shape[:axis], *shape[axis + 1 :]) for part in shapes)
        and all(part[axis] % sliced.outer == 0 for part in shapes)
        and all(map(_is_tiled, sliced.parts))
    )


def _check_kind(group: Group, groups: tuple[Group, ...]) -> None:
    lookup(dict.fromkeys(get_args(Kind)), group.kind, "kind of group")
    if group.kind == "invertible" and group.num_scales != 1:
        raise ValueError(
            f"group {group.name!r} is invertible, so it needs exactly one scale, which tells vectors from "
            f"duals; got {group.num_scales}"
        )
    if group.kind == "orthogonal" and group.num_scales:
        raise ValueError(f"group {group.name!r} is orthogonal, so it has no scales; got {group.num_scales}")
    if group.centred and (group.kind != "orthogonal" or group.num_signs):
        raise ValueError(
            f"group {group.name!r} is centred, so it must be orthogonal and without signs; got kind "
            f"{group.kind!r} and {group.num_signs} signs"
        )
    if group.is_linear and (inner := [other.name for other in groups if group.name in other.over]):
        raise ValueError(
            f"group {inner[0]!r} varies over {group.name!r}, which must then be of kind 'permutation'; "
            f"got {group.kind!r}"
        )


def check_params(spec: SymmetrySpec, params: Params, *, num_leading: int = 0) -> None:
    """`ValueError` naming the first leaf of `params` that does not fit the spec.

    The first `num_leading` axes of every leaf, those of samples, may have any length.
    """
    leaves: dict[str, Any] = tree.named_leaves(params)
    expected = {leaf.name: leaf.shape for leaf in spec.leaves}
    if leaves.keys() != expected.keys():
        missing = sorted(expected.keys() - leaves.keys())
        unknown = sorted(leaves.keys() - expected.keys())
        raise ValueError(f"params do not fit the spec: missing leaves {missing}, unknown leaves {unknown}")
    for name, leaf in leaves.items():
        shape = np.shape(leaf)
        if shape[num_leading:] != expected[name] or len(shape) < num_leading:
            wanted = ", ".join([*["samples"] * num_leading, *map(str, expected[name])])
            hint = tree.chains_hint(shape, expected[name], num_leading)
            raise ValueError(f"leaf {name!r} has shape {shape}; the spec expects ({wanted}){hint}")
