"""What an axis is made of: of which digits of a leaf, or of which positions of an activation.

Words are products of factors, slowest first, as in `symmetry.spec.words`. `Digit`s say where in a leaf a
number comes from and survive transposing, merging and splitting of axes. `Places` say what an axis of an
activation means in PyTorch, as far as it matters: PyTorch keeps images as (channels, height, width), and most
JAX code as (height, width, channels), so a flattened image has another order there.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

Meaning = Literal["plain", "channel", "position", "token", "input", "unsure", "mixed"]
"""`plain`: units of a layer. `channel`, `position`: of an image whose channels come last. `token`: positions
that PyTorch may have before the channels too. `input`: of the data as given. `unsure`: fine alone, but its
place among others is not known. `mixed`: not even its own order is known."""


@dataclass(frozen=True)
class Digit:
    """The part (index // stride) % size of an index into one axis of a leaf."""

    size: int
    axis: int
    stride: int = 1

    def cut(self, slow: int) -> tuple["Digit", "Digit"]:
        """As a product of a slower factor of that size and a faster one."""
        fast = self.size // slow
        return Digit(slow, self.axis, self.stride * fast), Digit(fast, self.axis, self.stride)


@dataclass(frozen=True)
class Places:
    """An axis of an activation, or a factor of it.

    `number` tells height from width, and one unsure axis from another, of which more may be learnt later.
    Units have none; plain axes that have one are those of an image whose channels come first.
    """

    size: int
    meaning: Meaning
    number: int = 0

    def cut(self, slow: int) -> tuple["Places", "Places"]:
        """As a product. Blocks of pixels have no common order in PyTorch; blocks of channels have."""
        meaning: Meaning = "unsure" if self.meaning in ("position", "token", "input") else self.meaning
        return Places(slow, meaning), Places(self.size // slow, meaning)

    def resized(self, size: int) -> "Places":
        """The same axis after slicing, padding or pooling."""
        return Places(size, self.meaning, self.number)


Factor = TypeVar("Factor", Digit, Places)


def size_of(word: Sequence[Digit | Places]) -> int:
    """Length of the axis."""
    return math.prod(factor.size for factor in word)


def split(word: Sequence[Factor], sizes: Sequence[int]) -> list[tuple[Factor, ...]] | None:
    """The word as consecutive words of these sizes; None where they cut it at no common place."""
    left, found = list(word), []
    for size in sizes:
        part: list[Factor] = []
        while size > 1:
            if not left:
                return None
            factor = left.pop(0)
            if factor.size > size and factor.size % size == 0:
                factor, rest = factor.cut(size)
                left.insert(0, rest)
            if size % factor.size:
                return None
            part.append(factor)
            size //= factor.size
        found.append(tuple(part))
    return found if all(factor.size == 1 for factor in left) else None


def common(first: Sequence[Factor], second: Sequence[Places]) -> tuple[Factor, ...] | None:
    """The first word, cut further where the second one has a boundary; None if they do not fit."""
    parts = split(first, [factor.size for factor in second])
    return None if parts is None else tuple(factor for part in parts for factor in part)


def torch_order(word: Sequence[Places]) -> tuple[int, ...] | None:
    """The factors of the word in PyTorch's order; None where the program does not tell.

    PyTorch is taken to run the same program, except that its images have their channels first.
    """
    same = tuple(range(len(word)))
    wide = [place for place in word if place.size > 1]
    meanings = {place.meaning for place in wide}
    if "mixed" in meanings:
        return None
    if len(wide) <= 1 or meanings in ({"plain"}, {"channel"}) or meanings <= {"position", "token"}:
        return same
    if meanings == {"channel", "position"}:
        return tuple(sorted(same, key=lambda index: word[index].meaning == "position"))
    # Two axes of data are a grey image or a sequence; three may be an image, with its channels first or last.
    num_given = sum(place.meaning == "input" for place in wide)
    is_sequence = (meanings == {"input"} and num_given == 2) or (
        meanings == {"input", "plain"} and num_given == 1
    )
    return same if is_sequence else None


def is_settled(word: Sequence[Places]) -> bool:
    """Whether the axis has the same order in PyTorch."""
    return torch_order(word) == tuple(range(len(word)))


def pairs(first: Sequence[Places], second: Sequence[Places]) -> list[tuple[Places, Places]] | None:
    """The factors of two words for the same axis, cut until they correspond; None if they never do."""
    left = common(first, second)
    right = None if left is None else common(second, left)
    if left is None or right is None or [one.size for one in left] != [other.size for other in right]:
        return None
    return list(zip(left, right, strict=True))


def meet(first: Sequence[Places], second: Sequence[Places]) -> tuple[Places, ...]:
    """What is known of an axis on which two activations are combined: the more telling meaning wins."""
    corresponding = pairs(first, second)
    if corresponding is None:
        settled = is_settled(first) and is_settled(second)
        return (Places(size_of(first), "unsure" if settled else "mixed"),)
    return tuple(_met(one, other) for one, other in corresponding)


def end_to_end(words: Sequence[Sequence[Places]], size: int) -> tuple[Places, ...]:
    """An axis along which activations are concatenated."""
    wide = [word for word in words if size_of(word) > 1]
    if not all(map(is_settled, wide)):
        return (Places(size, "mixed"),)
    known = {(word[0].meaning, word[0].number) for word in wide if len(word) == 1}
    if len(known) == 1 and all(len(word) == 1 for word in wide):
        return (wide[0][0].resized(size),)
    return (Places(size, "unsure"),)


def part(word: Sequence[Places], size: int) -> tuple[Places, ...]:
    """Some positions of an axis, in order, or more than it had."""
    if size == 1 or not word:
        return (Places(size, "unsure"),) if size > 1 else ()
    if len(word) == 1:
        return (word[0].resized(size),)
    return (Places(size, "unsure" if is_settled(word) else "mixed"),)


def as_tokens(words: Sequence[tuple[Places, ...]]) -> tuple[tuple[Places, ...], ...]:
    """The axes of an activation, with positions that PyTorch may have before the channels or behind them."""
    return tuple(
        tuple(
            Places(place.size, "token", place.number) if place.meaning == "position" else place
            for place in word
        )
        for word in words
    )


def digits_of(shape: Sequence[int]) -> tuple[tuple[Digit, ...], ...]:
    """One word for every axis of a leaf."""
    return tuple((Digit(size, axis),) if size > 1 else () for axis, size in enumerate(shape))


def in_leaf_order(word: Sequence[Digit]) -> Iterator[int]:
    """The places in the word of the digits as the leaf has them: by axis, slowest first."""
    yield from sorted(range(len(word)), key=lambda index: (word[index].axis, -word[index].stride))


def _met(one: Places, other: Places) -> Places:
    if (one.meaning, one.number) == (other.meaning, other.number):
        return one
    meanings = {one.meaning: one, other.meaning: other}
    is_contradictory = "channel" in meanings and not meanings.keys().isdisjoint(("position", "token"))
    is_other_axis = meanings.keys() <= {"position", "token"} and one.number != other.number
    if "mixed" in meanings or is_contradictory or is_other_axis:
        return Places(one.size, "mixed")
    for telling in ("channel", "token", "position", "unsure", "input"):
        if telling in meanings:
            return meanings[telling]
    return one
