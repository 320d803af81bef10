"""Gains folded into the weights behind them: the gauge in which a normalised stream may be rotated.

RMSNorm's x / |x| allows every rotation of x, and LayerNorm's every rotation that keeps the mean. A gain γ
multiplies unit by unit, which does not. But γ and the weights W that read what it multiplies share a scale,
γ → s γ and W → W / s, so the network with γ = 1 and γ W is the same function, and its stream rotates.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import tree
from symbnn.symmetry.discovery import discover, find_gains
from symbnn.symmetry.group import Element, act
from symbnn.symmetry.spec import Factor, Group, SymmetrySpec
from symbnn.types import Params


class Folded(NamedTuple):
    """A network whose gains are one."""

    params: Params
    """The same function."""
    spec: SymmetrySpec
    """The symmetries of all networks with such gains; it holds the gains where they are."""
    gains: tuple[str, ...]
    """Leaves that were folded."""


def fold_gains(apply: Callable[..., Any], params: Params, *inputs: Any) -> Folded:
    """The network with the gains of its normalisation layers folded into the weights that read them.

    Only gains without which units may be mixed by matrices are folded; where there are none the network
    comes back as it is. `jax.vmap(lambda p: fold_gains(apply, p, x).params)(samples)` folds many networks.

    Args:
        apply: The network: any function that JAX can trace, of the weights and of data.
        params: The weights. A gain that is zero somewhere cannot be folded.
        inputs: The data; shapes are enough.
    """
    folding = find_folding(apply, params, *inputs)
    why = refusal(folding, params)
    if why is not None:
        raise ValueError(why)
    return Folded(fold(folding, params), folding.folded, tuple(folding.numbers))


class Folding(NamedTuple):
    """What can be folded in a network, whatever its weights."""

    spec: SymmetrySpec
    folded: SymmetrySpec
    """Of networks whose gains are one."""
    numbers: dict[str, float]
    """By gain, the number it becomes."""


def find_folding(apply: Callable[..., Any], params: Params, *inputs: Any) -> Folding:
    """The gains without which units may be mixed by matrices."""
    spec = discover(apply, params, *inputs)
    numbers = _freeing(apply, params, inputs, spec)
    return Folding(spec, discover(apply, params, *inputs, held=numbers) if numbers else spec, numbers)


def fold(folding: Folding, params: Params) -> Params:
    """The network with its gains folded; traceable."""
    for group, gains in _by_group(folding):
        params = act(folding.spec, _folding(folding.spec, group, gains, params), params)
    # Rounding leaves 1 ± 1e-7; the spec asks for one.
    numbers = folding.numbers
    return tree.map_named(
        lambda name, leaf: jnp.full_like(leaf, numbers[name]) if name in numbers else leaf, params
    )


def refusal(folding: Folding, params: Params) -> str | None:
    """Why the gains of a network, or of several that are stacked, cannot be folded; traced ones pass."""
    for group, gains in _by_group(folding):
        values = {name: _values(folding.spec, name, params) for name in gains}
        if any(isinstance(array, jax.core.Tracer) for array in values.values()):
            continue
        for name, array in values.items():
            if not bool((array != 0).all()):
                return f"leaf {name!r} is zero somewhere, so it cannot be folded into other weights"
        is_negative = any(bool((array < 0).any()) for array in values.values())
        if is_negative and _parities(folding.spec, group, gains) is None:
            return (
                f"the gains {gains} are negative somewhere and group {group.name!r} has no signs to fold them"
            )
    return None


def _by_group(folding: Folding) -> Iterator[tuple[Group, list[str]]]:
    """Groups that have gains to fold, and those."""
    for group in folding.spec.groups:
        own = [name for name in folding.numbers if group.name in _group_names(folding.spec, name)]
        if own:
            yield group, own


def _values(spec: SymmetrySpec, name: str, params: Params) -> jax.Array:
    """What a gain multiplies by."""
    leaf = next(leaf for leaf in spec.leaves if leaf.name == name)
    return jnp.asarray(tree.named_leaves(params)[name]) + leaf.shift


def _freeing(
    apply: Callable[..., Any], params: Params, inputs: tuple, spec: SymmetrySpec
) -> dict[str, float]:
    """Gains that can be folded, of groups that may be mixed by matrices once they are."""
    numbers = {
        name: number
        for name, number in find_gains(apply, params, *inputs).items()
        if _group_names(spec, name) and not _leaf_group(spec, name).is_linear
    }
    while numbers:
        foldable = {
            name: number
            for name, number in numbers.items()
            if _exponents(spec, _leaf_group(spec, name), _siblings(spec, name, numbers)) is not None
        }
        held = discover(apply, params, *inputs, held=foldable)
        useful = {name: number for name, number in foldable.items() if _is_freed(spec, held, name)}
        if useful == numbers:
            break
        numbers = useful
    return numbers


def _is_freed(spec: SymmetrySpec, held: SymmetrySpec, gain: str) -> bool:
    """Whether every other place of the gain's group now belongs to groups that matrices mix."""
    name = _leaf_group(spec, gain).name
    linear = {group.name for group in held.groups if group.is_linear}
    places = [
        after
        for leaf, same in zip(spec.leaves, held.leaves, strict=True)
        if leaf.name not in held.held
        for (_, before), (_, after) in zip(leaf.factors(), same.factors(), strict=False)
        if before.group == name
    ]
    return bool(places) and all(factor.group in linear for factor in places)


def _siblings(spec: SymmetrySpec, gain: str, numbers: dict[str, float]) -> list[str]:
    group = _leaf_group(spec, gain).name
    return [name for name in numbers if _leaf_group(spec, name).name == group]


def _folding(spec: SymmetrySpec, group: Group, gains: list[str], params: Params) -> Element:
    """The element that makes the gains of a group one."""
    stacked = jnp.stack([_values(spec, name, params).reshape(-1) for name in gains])
    exponents = _exponents(spec, group, gains)
    assert exponents is not None
    scales = jnp.exp(-jnp.asarray(exponents, stacked.dtype) @ jnp.log(jnp.abs(stacked)))
    parities = _parities(spec, group, gains)
    if parities is None:
        return Element({}, {group.name: scales}, {})
    odd = (jnp.asarray(parities) @ (stacked < 0).astype(int)) % 2
    return Element({}, {group.name: scales}, {group.name: jnp.where(odd > 0, -1.0, 1.0)})


def _exponents(spec: SymmetrySpec, group: Group, gains: list[str]) -> np.ndarray | None:
    """Per generator and gain, the power of 1/gain that scales with it; None if gains are not independent."""
    rows = np.array([[float(e) for e in _factor(spec, name).scales] for name in gains])
    if not rows.size or np.linalg.matrix_rank(rows) < len(gains):
        return None
    return np.linalg.pinv(rows)


def _parities(spec: SymmetrySpec, group: Group, gains: list[str]) -> np.ndarray | None:
    """Per sign generator and gain, whether it flips with that gain's sign; None if they cannot be told apart.

    A right inverse over GF(2), by elimination on the gains' parities beside the identity.
    """
    rows = np.array([_factor(spec, name).signs for name in gains], int).reshape(len(gains), -1) % 2
    both = np.concatenate([rows, np.eye(len(gains), dtype=int)], axis=1)
    count, pivots = rows.shape[1], []
    for row in range(len(gains)):
        pivot = next((c for c in range(count) if both[row, c] and c not in pivots), None)
        if pivot is None:
            return None
        pivots.append(pivot)
        for other in range(len(gains)):
            if other != row and both[other, pivot]:
                both[other] = (both[other] + both[row]) % 2
    inverse = np.zeros((count, len(gains)), int)
    inverse[pivots] = both[:, count:]
    return inverse


def _factor(spec: SymmetrySpec, leaf: str) -> Factor:
    """The one wide factor of a gain."""
    described = next(one for one in spec.leaves if one.name == leaf)
    return next(factor for _, factor in described.factors() if factor.group is not None)


def _group_names(spec: SymmetrySpec, leaf: str) -> set[str]:
    """The group of a gain that is whole; none where its axis falls into parts."""
    described = next(one for one in spec.leaves if one.name == leaf)
    wide = [factor for _, factor in described.factors() if factor.size > 1]
    names = {group.name for group in spec.groups}
    return {wide[0].group} & names if len(wide) == 1 and wide[0].group else set()


def _leaf_group(spec: SymmetrySpec, leaf: str) -> Group:
    return spec.group(_factor(spec, leaf).group)  # type: ignore[arg-type]
