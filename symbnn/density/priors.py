"""Priors: independent, zero-mean laws on every weight, with a scale per leaf.

A scale is one number, or numbers by leaf-name pattern, `{"*/bias": 1.0, "out/*": 0.1, "*": 0.5}`: the first
pattern (shell style) that fits a leaf decides. With `fan_in=True` the scale of a leaf with two or more axes
is divided by √fan-in, where fan-in is the number of inputs a unit sums over (all axes but the last), so that
the prior over functions does not change with the width (Neal 1996).
"""

import math
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn import tree
from symbnn.density.parts import total
from symbnn.names import nearest
from symbnn.types import Key, Params

Scale = float | Mapping[str, float]


class Prior(NamedTuple):
    """A law on the weights of a network, one independent factor per weight."""

    name: str
    """With its settings: two priors of one name are the same law."""
    scales: Callable[[Params], dict[str, float]]
    """Standard deviation per leaf name; `ValueError` naming the leaf if the prior does not fit the tree."""
    log_probs: Callable[[Params], Params]
    """Log-density of every single weight: samplers subtract these before they sum (see `density.parts`)."""
    sample: Callable[[Key, Params], Params]
    """(key, params or shapes) -> a draw of the same structure."""
    is_gaussian: bool = False
    """Whether every factor is Gaussian, for methods that use closed forms."""

    def log_prob(self, params: Params) -> Float[Array, ""]:
        """Log-density of all weights."""
        return total(self.log_probs(params))


def gaussian_prior(scale: Scale = 1.0, *, fan_in: bool = False) -> Prior:
    """N(0, scale²) on every weight and bias."""

    def log_prob(leaf: Array, std: float) -> Array:
        return -0.5 * jnp.square(leaf / std) - (math.log(std) + 0.5 * math.log(2.0 * math.pi))

    prior = _independent("gaussian_prior", scale, fan_in, 1.0, log_prob, jax.random.normal)
    return prior._replace(is_gaussian=True)


def laplace_prior(scale: Scale = 1.0, *, fan_in: bool = False) -> Prior:
    """Laplace with density exp(-|w| / scale) / (2 scale) on every weight and bias."""

    def log_prob(leaf: Array, std: float) -> Array:
        width = std / math.sqrt(2.0)
        return -jnp.abs(leaf) / width - math.log(2.0 * width)

    def draw(key: Key, shape: tuple[int, ...], dtype: Any) -> Array:
        return jax.random.laplace(key, shape, dtype) / math.sqrt(2.0)

    return _independent("laplace_prior", scale, fan_in, math.sqrt(2.0), log_prob, draw)


def _independent(
    name: str,
    scale: Scale,
    fan_in: bool,
    std_of_unit_scale: float,
    log_prob: Callable[[Array, float], Array],
    draw_unit: Callable[..., Array],
) -> Prior:
    """A prior from the law of one weight, given by its standard deviation."""
    patterns = dict(scale) if isinstance(scale, Mapping) else {"*": float(scale)}
    for pattern, value in patterns.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name}: scale of {pattern!r} must be positive and finite; got {value}")

    def scales(params: Params) -> dict[str, float]:
        leaves = tree.named_leaves(params)
        chosen = _first_matches(name, patterns, leaves)
        return {
            leaf_name: std_of_unit_scale
            * patterns[chosen[leaf_name]]
            / math.sqrt(math.prod(leaf.shape[:-1]) if fan_in else 1)
            for leaf_name, leaf in leaves.items()
        }

    def log_probs(params: Params) -> Params:
        stds = scales(params)
        return tree.map_named(lambda leaf_name, leaf: log_prob(leaf, stds[leaf_name]), params)

    def sample(key: Key, params: Params) -> Params:
        stds = scales(params)
        return tree.map_named(
            lambda leaf_name, leaf: stds[leaf_name] * leaf, tree.draw_like(key, params, draw_unit)
        )

    return Prior(f"{name}({patterns}, fan_in={fan_in})", scales, log_probs, sample)


def _first_matches(name: str, patterns: Iterable[str], leaves: Iterable[str]) -> dict[str, str]:
    """The pattern that decides for every leaf; `ValueError` where a leaf or a pattern has no match."""
    matches = {leaf: [pattern for pattern in patterns if fnmatchcase(leaf, pattern)] for leaf in leaves}
    for leaf_name, found in matches.items():
        if not found:
            raise ValueError(
                f"{name} has no scale for leaf {leaf_name!r}; its patterns are {sorted(patterns)} "
                "(add '*' for all other leaves)"
            )
    for pattern in patterns:
        if pattern != "*" and not any(pattern in found for found in matches.values()):
            raise ValueError(
                f"{name} has a scale for {pattern!r}, but no leaf has that name; {nearest(pattern, leaves)}"
            )
    return {leaf_name: found[0] for leaf_name, found in matches.items()}
