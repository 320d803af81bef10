"""Words (`spec.words`) whose atoms are found out while a program is read.

An `Atom` stands for positions that one permutation will relabel. Atoms live in a union-find whose classes can
also be *refined*: an atom turns out to be a product of smaller atoms, or several of them end to end.

    unify((a12,), (b3, c4))        a := b·c         S_12 shrinks to S_3 × S_4
    unify((a12,), (b3 + c9,))      a := b + c       S_12 shrinks to S_3 × S_9

Every step shrinks the group, so it may lose a symmetry and never invents one. Where two words fit in no way,
both are pinned: only the identity is left. A binding is always to strictly smaller atoms, so refinement ends.

In a resolved word factors of length 1 are gone, segments are flat, and segments come last:
(a + b)·c is written (a·c + b·c), which is the same axis.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from symbnn.symmetry.spec import Segments, Word, atoms, word_size

MAX_SEGMENTS = 256
"""A rolled axis is cut everywhere; beyond this many segments nothing worth knowing is left."""

MAX_CAUSES = 3


@dataclass(frozen=True)
class Cause:
    """Why an atom is pinned. `where` is the equation's source information, read only when reported."""

    reason: str
    primitive: str = ""
    where: tuple[Any, ...] = ()
    value: Any = None
    """The constant, or the positions counted, that differ along it, if that is why."""


@dataclass(eq=False)
class Atom:
    """Positions relabelled by one permutation; pinned once it has a cause."""

    size: int
    causes: tuple[Cause, ...] = ()
    parent: "Atom | None" = None
    binding: Word | None = None


def fresh(size: int, causes: tuple[Cause, ...] = ()) -> Word:
    """A word of one new atom; the empty word for length 1."""
    return () if size == 1 else (Atom(size, causes),)


def find(atom: Atom) -> Atom:
    """Representative of the atom's class."""
    root = atom
    while root.parent is not None:
        root = root.parent
    while atom.parent is not None:
        atom.parent, atom = root, atom.parent
    return root


def resolve(word: Word) -> Word:
    """The word as it is known now."""
    if len(word) == 1 and isinstance(word[0], Atom) and word[0].parent is None and word[0].binding is None:
        return word if word[0].size != 1 else ()
    return normalise(_expand(word))


def normalise(factors: Iterable[Any]) -> Word:
    """Drop factors of length 1, flatten segments, distribute them over what follows."""
    rest: Word = ()
    for factor in reversed(tuple(factors)):
        if not isinstance(factor, Segments):
            rest = (factor, *rest) if factor.size != 1 else rest
            continue
        words = tuple(_segments(factor))
        if len(words) == 1:
            rest = normalise((*words[0], *rest))
        elif rest:
            distributed = Segments(tuple(normalise((*word, *rest)) for word in words))
            rest = (Segments(tuple(_segments(distributed))),)
        else:
            rest = (Segments(words),)
    return rest


def pin(word: Word, *causes: Cause) -> None:
    """Allow only the identity on every atom of the word."""
    for atom in atoms(resolve(word)):
        atom.causes = _joined(atom.causes, causes)


def unify(left: Word, right: Word, cause: Cause) -> None:
    """Make two words describe one axis; what cannot be made to fit is pinned for `cause`."""
    if word_size(left) != word_size(right):
        raise ValueError(f"one axis cannot have lengths {word_size(left)} and {word_size(right)}")
    while (left := resolve(left)) != (right := resolve(right)):
        step = _step(left, right, cause)
        if step is None:
            pin(left, cause)
            pin(right, cause)
            return
        left, right = step


def cut(word: Word, position: int) -> bool:
    """Make `position` a boundary between segments; False if the word has none to give."""
    word = resolve(word)
    if position in (0, word_size(word)):
        return True
    head = word[0]
    if isinstance(head, Segments):
        for segment in head.words:
            if position <= word_size(segment):
                return cut(segment, position)
            position -= word_size(segment)
    rest = word_size(word[1:])
    if position % rest:
        return False
    first = position // rest
    _bind(head, (Segments((fresh(first), fresh(head.size - first))),))
    return True


def _step(left: Word, right: Word, cause: Cause) -> tuple[Word, Word] | None:
    """One step of `unify`: the words still to be unified, or None if they do not fit."""
    if isinstance(left[0], Segments) or isinstance(right[0], Segments):
        return _step_segments(left, right, cause)
    for end, rest in ((0, slice(1, None)), (-1, slice(None, -1))):
        if left[end].size == right[end].size:
            _match(left[end], right[end], cause)
            return left[rest], right[rest]
    for end in (0, -1):
        if _refine(left[end], right[end], end) or _refine(right[end], left[end], end):
            return left, right
    return None


def _step_segments(left: Word, right: Word, cause: Cause) -> tuple[Word, Word] | None:
    for one, other in ((left, right), (right, left)):
        if len(one) == 1 and isinstance(one[0], Atom):
            _bind(one[0], other)
            return (), ()
    boundaries = [_boundaries(word) for word in (left, right)]
    if boundaries[0] == boundaries[1]:
        for left_segment, right_segment in zip(left[0].words, right[0].words, strict=True):
            unify(left_segment, right_segment, cause)
        return (), ()
    positions = sorted({*boundaries[0], *boundaries[1]})
    if len(positions) > MAX_SEGMENTS:
        return None
    possible = all(cut(word, position) for position in positions for word in (left, right))
    return (left, right) if possible else None


def _match(left: Any, right: Any, cause: Cause) -> None:
    """Identify two factors of one size."""
    if isinstance(left, Atom) and isinstance(right, Atom):
        if left is not right:
            right.parent = left
            left.causes = _joined(left.causes, right.causes)
    elif isinstance(left, Atom):
        _bind(left, (right,))
    elif isinstance(right, Atom):
        _bind(right, (left,))
    else:
        unify((left,), (right,), cause)


def _refine(factor: Any, other: Any, end: int) -> bool:
    """Split off a part of the atom, of the other factor's size, at that end of the word."""
    if not isinstance(factor, Atom) or factor.size % other.size:
        return False
    parts = (fresh(other.size), fresh(factor.size // other.size))
    _bind(factor, sum(parts if end == 0 else parts[::-1], ()))
    return True


def _bind(atom: Atom, word: Word) -> None:
    atom.binding = word
    pin(word, *atom.causes)


def _expand(word: Word) -> Iterator[Any]:
    for factor in word:
        if isinstance(factor, Segments):
            yield Segments(tuple(resolve(inner) for inner in factor.words))
        elif isinstance(factor, Atom):
            root = find(factor)
            if root.binding is None:
                yield root
            else:
                root.binding = resolve(root.binding)
                yield from root.binding
        else:
            yield factor


def _segments(factor: Segments) -> Iterator[Word]:
    for word in factor.words:
        if word_size(word) == 0:
            continue
        if len(word) == 1 and isinstance(word[0], Segments):
            yield from _segments(word[0])
        else:
            yield word


def _boundaries(word: Word) -> list[int]:
    if not (len(word) == 1 and isinstance(word[0], Segments)):
        return []
    ends = [0]
    for segment in word[0].words:
        ends.append(ends[-1] + word_size(segment))
    return ends[1:-1]


def _joined(causes: tuple[Cause, ...], more: tuple[Cause, ...]) -> tuple[Cause, ...]:
    extra = tuple(cause for cause in more if cause not in causes)
    # What every network has, which comes without a place, is never crowded out.
    if len(causes) + len(extra) > MAX_CAUSES:
        extra = tuple(cause for cause in extra if not cause.primitive)
        causes = causes[:MAX_CAUSES]
    return causes + extra
