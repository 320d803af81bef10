"""Pytrees of weights: leaf names, stacking, indexing, checking."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbnn.frameworks import described, is_variable
from symbnn.types import Key, Params, Samples

FROM_CHAINS = "if these are chains and draws, use posteriors.Empirical.from_chains(samples)"
"""What to do with samples that have one leading axis too many."""


def path_name(path: tuple[Any, ...]) -> str:
    """`hidden/kernel` for the key path of a leaf, whatever the container."""
    return "/".join(_part(key) for key in path)


def leaf_names(tree: Params) -> list[str]:
    """Path name of every leaf, in tree order; what a variable of nnx holds is called as the variable."""
    names = []
    for path, node in jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_variable):
        inside = jax.tree_util.tree_leaves_with_path(node) if is_variable(node) else [((), node)]
        names += [path_name((*path, *rest[1:])) for rest, _ in inside]
    return names


def named_leaves(tree: Params) -> dict[str, Any]:
    """Leaves by path name, in tree order."""
    return dict(zip(leaf_names(tree), jax.tree.leaves(tree), strict=True))


def nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `named_leaves`, with dicts as containers; `ValueError` if a leaf would be one too."""
    result: dict[str, Any] = {}
    for name, leaf in leaves.items():
        *path, last = name.split("/")
        node: Any = result
        for part in path:
            node = node.setdefault(part, {}) if isinstance(node, dict) else None
        if not isinstance(node, dict) or last in node:
            raise ValueError(
                f"{name!r} cannot be nested: one name is the start of another; rename one of them"
            )
        node[last] = leaf
    return result


def map_named(function: Callable[..., Any], tree: Params, *rest: Params) -> Params:
    """`jax.tree.map` whose function takes the leaf's name first."""
    names = iter(leaf_names(tree))
    return jax.tree.map(lambda *leaves: function(next(names), *leaves), tree, *rest)


def stack(trees: Sequence[Params]) -> Samples:
    """Many networks as one tree with a leading sample axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def take(samples: Samples, index: Any) -> Samples:
    """Samples (or the one network) at `index` of the leading axis."""
    return jax.tree.map(lambda leaf: leaf[index], samples)


def concatenate(trees: Sequence[Samples]) -> Samples:
    """Sample sets joined along the leading axis."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *trees)


def num_samples(samples: Samples) -> int:
    """Length of the leading axis; a `ValueError` names the first leaf that disagrees."""
    lengths = {leaf.shape[0] if getattr(leaf, "ndim", 0) else None for leaf in jax.tree.leaves(samples)}
    if len(lengths) == 1 and (length := lengths.pop()) is not None:
        return length
    raise ValueError(_disagreement(samples))


def _disagreement(samples: Samples) -> str:
    """What is wrong with samples that have no common length."""
    leaves = named_leaves(samples)
    if not leaves:
        return "samples: expected a tree of arrays, got one without leaves"
    if other := next((name for name, leaf in leaves.items() if not hasattr(leaf, "ndim")), None):
        return (
            f"samples: expected a tree of arrays; leaf {other!r} is {described(leaves[other])} (of an "
            "Equinox module keep the arrays only, by eqx.filter(module, eqx.is_inexact_array))"
        )
    shapes = {name: np.shape(leaf) for name, leaf in leaves.items()}
    if bare := next((name for name, shape in shapes.items() if not shape), None):
        return f"leaf {bare!r} has shape (); expected an axis of samples"
    first, expected = next((name, shape[0]) for name, shape in shapes.items())
    name, shape = next((name, shape) for name, shape in shapes.items() if shape[0] != expected)
    return f"leaf {name!r} has shape {shape}; leaf {first!r} has {expected} samples on axis 0"


def by_chain(samples: Samples, num_chains: int) -> Samples:
    """Samples in chain-major order with two leading axes, `(chains, draws, ...)`."""
    check_chains(samples, num_chains)
    return jax.tree.map(lambda leaf: leaf.reshape(num_chains, -1, *leaf.shape[1:]), samples)


def check_chains(samples: Samples, num_chains: int) -> None:
    """`ValueError` unless the samples are as many from each of `num_chains` chains."""
    count = num_samples(samples)
    if num_chains < 1 or count % num_chains:
        raise ValueError(f"{count} samples do not divide into {num_chains} chains of equal length")


def check_same_shapes(what: str, value: Params, like: Params, *, num_leading: int = 0) -> None:
    """`ValueError` naming the first leaf of `value` that is not shaped like that of `like`.

    The first `num_leading` axes of `value` may have any length.
    """
    leaves, expected = named_leaves(value), named_leaves(like)
    if leaves.keys() != expected.keys():
        missing, unknown = sorted(expected.keys() - leaves.keys()), sorted(leaves.keys() - expected.keys())
        raise ValueError(f"{what}: missing leaves {missing}, unknown leaves {unknown}")
    for name, leaf in leaves.items():
        shape = jnp.shape(leaf)
        if len(shape) < num_leading or shape[num_leading:] != jnp.shape(expected[name]):
            raise ValueError(
                f"{what}: leaf {name!r} has shape {shape}; expected {jnp.shape(expected[name])}"
                + (f" after {num_leading} leading axes" if num_leading else "")
                + chains_hint(shape, jnp.shape(expected[name]), num_leading)
            )


def chains_hint(shape: tuple[int, ...], expected: tuple[int, ...], num_leading: int) -> str:
    """The end of a message about a leaf of samples: what to do if it is right but for an axis of chains."""
    has_both = num_leading == 1 and len(shape) >= 2 and shape[2:] == expected
    return f"; {FROM_CHAINS}" if has_both else ""


def matrix(samples: Samples) -> Float[Array, "samples weights"]:
    """All numbers of every network side by side, in tree order."""
    count = num_samples(samples)
    return jnp.concatenate([leaf.reshape(count, -1) for leaf in jax.tree.leaves(samples)], axis=1)


def flat(params: Params) -> np.ndarray:
    """All numbers of one network as one vector, in tree order."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])


def cut(flat: Float[Array, " weights"], shapes: Sequence[Sequence[int]]) -> list[Array]:
    """A vector as arrays of these `shapes`, one after the other."""
    ends = list(itertools.accumulate(map(math.prod, shapes)))
    return [part.reshape(shape) for part, shape in zip(jnp.split(flat, ends[:-1]), shapes, strict=True)]


def draw_like(key: Key, params: Params, draw: Callable[..., Array] = jax.random.normal) -> Params:
    """Independent unit draws in the shape of `params`.

    One draw for all leaves, then cut: a generator per leaf would be compiled once per leaf, seconds each.
    """
    leaves, structure = jax.tree.flatten(params)
    flat = draw(key, (num_weights(params),), jnp.result_type(*(leaf.dtype for leaf in leaves)))
    return jax.tree.unflatten(structure, cut(flat, [leaf.shape for leaf in leaves]))


def is_finite(values: Any) -> Array:
    """Whether no number of a tree is infinite or missing; may be traced."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(values)]))


def num_weights(params: Params) -> int:
    """Number of scalars in one network."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def _part(key: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
