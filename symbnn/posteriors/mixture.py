"""Mixture of Gaussians over weights: one component per mode."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn import tree
from symbnn.posteriors.base import Gaussian, check_num, register
from symbnn.types import Key, Params, Samples


@register()
@dataclasses.dataclass(frozen=True)
class GaussianMixture:
    """Σ_k weights_k · component_k. `components` is one Gaussian whose leaves are stacked over k."""

    weights: Array
    components: Gaussian

    def __post_init__(self) -> None:
        num = tree.num_samples(self.components)
        if jnp.shape(self.weights) != (num,):
            raise ValueError(f"weights have shape {jnp.shape(self.weights)}; there are {num} components")

    @property
    def num_components(self) -> int:
        """Number of modes."""
        return self.weights.shape[0]

    def sample(self, key: Key, num: int) -> Samples:
        """`num` draws: a component by its weight, then a network from it."""
        check_num(num)
        key_component, key_draw = jax.random.split(key)
        chosen = jax.random.categorical(key_component, jnp.log(self.weights), shape=(num,))

        def draw(draw_key: Key, index: Array) -> Params:
            return tree.take(tree.take(self.components, index).sample(draw_key, 1), 0)

        # One after the other: side by side, every draw would hold its component's factors.
        return jax.lax.map(lambda pair: draw(*pair), (jax.random.split(key_draw, num), chosen))

    def log_prob(self, params: Params) -> Float[Array, ""]:
        """log Σ_k weights_k exp(log_prob_k)."""
        each = jax.vmap(lambda component: component.log_prob(params))(self.components)
        return jax.nn.logsumexp(each + jnp.log(self.weights))


def mixture(components: Sequence[Any], weights: Any = None) -> GaussianMixture:
    """Mixture of Gaussians of one kind; equal weights unless given, which are scaled to sum to one."""
    kinds = sorted({type(component).__name__ for component in components})
    if len(kinds) != 1:
        raise ValueError(f"components must be Gaussians of one kind; got {kinds}")
    values = jnp.ones(len(components)) if weights is None else jnp.asarray(weights, jnp.float32)
    if values.shape != (len(components),) or bool(jnp.any(values < 0)) or not bool(jnp.sum(values) > 0):
        raise ValueError(f"weights must be {len(components)} numbers >= 0 with a positive sum; got {weights}")
    return GaussianMixture(values / jnp.sum(values), tree.stack(components))
