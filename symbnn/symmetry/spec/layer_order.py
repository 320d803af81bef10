"""Which axes write a unit and which read it: the order of layers, and what counts as a bias.

Discovered specs say so themselves (`Factor.role`). For specs written by hand the sign of the scale exponent
decides, and without one the layout: a weight array writes the units of its last axis.
"""

from symbnn.symmetry.spec.spec import Factor, Leaf, SymmetrySpec
from symbnn.symmetry.spec.words import pieces

STATISTICS = "batch_stats"
"""Flax's collection of running statistics."""

BIAS_NAMES = frozenset({"bias", "b", "beta", "offset"})


def is_bias(leaf: Leaf) -> bool:
    """Whether the leaf is an added vector: so named in Flax, Haiku, Equinox or PyTorch, and reading nothing.

    The name alone would take a matrix `b` for a bias.
    """
    wide = [factor for _, factor in leaf.factors() if factor.size > 1]
    writes_only = all(
        # The bias of the last layer has one axis, which no group relabels.
        (factor.group is not None or len(wide) == 1)
        and factor.role != "consumes"
        and all(e >= 0 for e in factor.scales)
        for factor in wide
    )
    return writes_only and leaf.name.rsplit("/", 1)[-1] in BIAS_NAMES


def is_weight(leaf: Leaf) -> bool:
    """Whether the leaf is trained: running statistics are not, though they move along."""
    return not leaf.is_statistic and leaf.name.split("/", 1)[0] != STATISTICS


def producing_axes(factors: tuple[Factor, ...]) -> tuple[bool, ...]:
    """For every axis of a piece, whether the piece writes the units on it."""
    return tuple(
        factor.group is not None and produces(factor, is_last=axis == len(factors) - 1)
        for axis, factor in enumerate(factors)
    )


def depth_order(spec: SymmetrySpec) -> tuple[str, ...]:
    """Group names from input to output: a group comes after those that it is computed from.

    Loops (recurrent nets, residual streams) are cut at the group with the fewest open predecessors, first
    come first served, so that the order is the same on every run.
    """
    groups = {group.name for group in spec.groups}
    before: dict[str, set[str]] = {group.name: set() for group in spec.groups}
    for leaf in spec.leaves:
        for factors in pieces(leaf.axes):
            writes = producing_axes(factors)
            moved = [(f.group, is_written) for f, is_written in zip(factors, writes, strict=True) if f.group]
            read = {name for name, is_written in moved if not is_written} & groups
            for name, is_written in moved:
                if is_written and name in groups:
                    before[name] |= read - {name}
    order: list[str] = []
    while before:
        name = min(before, key=lambda name: len(before[name]))
        del before[name]
        order.append(name)
        for predecessors in before.values():
            predecessors.discard(name)
    return tuple(order)


def produces(factor: Factor, *, is_last: bool) -> bool:
    """Whether the units on an axis are written; `is_last`: the axis is the last one of its array."""
    if factor.role is not None:
        return factor.role != "consumes"
    exponent = next((value for value in factor.scales if value), None)
    return is_last if exponent is None else exponent > 0
