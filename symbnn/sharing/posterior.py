"""A network whose weights share a few Gaussians: the posterior of stochastic weight sharing.

Every component k holds a Gaussian over (mean, standard deviation) of a weight, with mean (m, s) and
Cholesky factor ((l₁, 0), (l₂, l₃)). One draw of a network makes one draw of each component and hands it to
all its weights:

    m̃ = m + l₁ z₁,   s̃ = s + l₂ z₁ + l₃ z₂,   w = m̃ + |s̃| ε        (`hierarchical`)
    w = m̃                                                           (`first_coord`: the released code)

| `noise`     | ε                                                    | random numbers       |
|-------------|------------------------------------------------------|----------------------|
| `component` | one per component                                    | 3 K                  |
| `sign`      | one per component, times a fixed sign per weight     | 3 K                  |
| `layer`     | one per component and leaf                           | 2 K + K · leaves     |
| `weight`    | one per weight                                       | 2 K + weights        |

Ellipse weights blend several components: their drawn values (`samples`), their centres (`centers`, no
noise), or one of them at random (`mixture`). Outliers have a mean and a standard deviation of their own."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbnn.names import lookup
from symbnn.posteriors.base import check_num, register
from symbnn.sharing.layout import Layout, insert
from symbnn.types import Key, Params, Samples

SAMPLINGS = {"hierarchical": True, "first_coord": False}


class Drawn(NamedTuple):
    """One draw of all components."""

    centres: Array
    spreads: Array
    noise: Array


@register(static=("layout", "sampling", "noise", "blending"))
@dataclasses.dataclass(frozen=True)
class SharedWeights:
    """Shared Gaussians, labels, outliers, ellipse weights and the deterministic rest of a network."""

    means: Any
    """(k, 2): (mean, standard deviation)."""
    factors: Any
    """(k, 3): Cholesky factor l₁, l₂, l₃."""
    labels: Any
    """(n,), unsigned: the component of every weight; of outliers and ellipse weights it is not read."""
    outlier_indices: Any
    outlier_means: Any
    outlier_stds: Any
    ellipse_indices: Any
    ellipse_components: Any
    """(e, kept)."""
    ellipse_weights: Any
    """(e, kept), rows sum to one."""
    fixed: Params
    """The network with empty arrays in the place of shared leaves."""
    layout: Layout
    sampling: str = "hierarchical"
    noise: str = "component"
    blending: str = "samples"

    def __post_init__(self) -> None:
        lookup(SAMPLINGS, self.sampling, "sampling")
        lookup(NOISES, self.noise, "noise")
        lookup(BLENDINGS, self.blending, "blending")
        shapes = {
            "means": (self.num_components, 2),
            "factors": (self.num_components, 3),
            "labels": (self.layout.num_weights,),
            "outlier_means": (self.num_outliers,),
            "outlier_stds": (self.num_outliers,),
            "ellipse_components": (self.num_ellipses, *jnp.shape(self.ellipse_components)[1:]),
            "ellipse_weights": jnp.shape(self.ellipse_components),
        }
        for name, expected in shapes.items():
            if jnp.shape(getattr(self, name)) != expected:
                raise ValueError(f"{name} has shape {jnp.shape(getattr(self, name))}; expected {expected}")

    @property
    def num_components(self) -> int:
        """Shared Gaussians."""
        return int(jnp.shape(self.means)[0])

    @property
    def num_outliers(self) -> int:
        """Weights with a law of their own."""
        return int(jnp.shape(self.outlier_indices)[0])

    @property
    def num_ellipses(self) -> int:
        """Weights that blend several Gaussians."""
        return int(jnp.shape(self.ellipse_indices)[0])

    def sample(self, key: Key, num: int) -> Samples:
        """`num` networks."""
        check_num(num)
        draw = lambda draw_key: insert(self.layout, self.fixed, self.draw(draw_key))  # noqa: E731
        return jax.vmap(draw)(jax.random.split(key, num))

    def log_prob(self, params: Params) -> Float[Array, ""]:
        """Not defined: always a `ValueError`."""
        raise ValueError(
            f"shared weights have no density: {self.layout.num_weights} weights move with the draws of "
            f"{self.num_components} components and {self.num_outliers} outliers, and nothing else varies"
        )

    def mean(self) -> Params:
        """The network of the centres."""
        centres = self.means[:, 0]
        flat = centres[self.labels]
        blended = jnp.sum(self.ellipse_weights * centres[self.ellipse_components], axis=1)
        flat = flat.at[self.ellipse_indices].set(blended)
        return insert(self.layout, self.fixed, flat.at[self.outlier_indices].set(self.outlier_means))

    def variances(self) -> Float[Array, " k"]:
        """Variance of a weight of each component: l₁², and in `hierarchical` also that of |s̃| ε."""
        spread = self.factors[:, 0] ** 2
        if not SAMPLINGS[self.sampling]:
            return spread
        return spread + self.factors[:, 1] ** 2 + self.factors[:, 2] ** 2 + self.means[:, 1] ** 2

    def draw(self, key: Key) -> Float[Array, " n"]:
        """The shared weights of one network, flat; differentiable in all real fields."""
        value, count = NOISES[self.noise] if SAMPLINGS[self.sampling] else NOISES["component"]
        num = self.num_components
        # One generator, then cut: compiling several takes longer than anything else here.
        sizes = np.cumsum([num, num, self.num_outliers, count(self)])
        normals = jax.random.normal(key, (int(sizes[-1]),), self.means.dtype)
        first, second, own, noise = jnp.split(normals, sizes[:-1])
        centres = self.means[:, 0] + self.factors[:, 0] * first
        spreads = jnp.abs(self.means[:, 1] + self.factors[:, 1] * first + self.factors[:, 2] * second)
        if not SAMPLINGS[self.sampling]:
            spreads = jnp.zeros_like(spreads)
        drawn = Drawn(centres, spreads, noise)
        flat = value(self, drawn, self.labels, jnp.arange(self.layout.num_weights, dtype=jnp.uint32))
        if self.num_ellipses:
            flat = flat.at[self.ellipse_indices].set(BLENDINGS[self.blending](self, drawn, value, key))
        outliers = self.outlier_means + self.outlier_stds * own
        return flat.at[self.outlier_indices].set(outliers) if self.num_outliers else flat


Value = Callable[[SharedWeights, Drawn, Array, Array], Array]


def fixed_signs(indices: Array) -> Array:
    """±1 for every weight, from a hash of its index: nothing to store."""
    mixed = indices.astype(jnp.uint32) * jnp.uint32(0x9E3779B1)
    mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(0x85EBCA77)
    return 1.0 - 2.0 * ((mixed ^ (mixed >> 13)) & 1).astype(jnp.float32)


def _per_component(shared: SharedWeights, drawn: Drawn, components: Array, indices: Array) -> Array:
    # First K products, then the gather: its gradient is one sum over members.
    return (drawn.centres + drawn.spreads * drawn.noise)[components]


def _per_sign(shared: SharedWeights, drawn: Drawn, components: Array, indices: Array) -> Array:
    signed = (drawn.spreads * drawn.noise)[components]
    return drawn.centres[components] + fixed_signs(indices).astype(signed.dtype) * signed


def _per_layer(shared: SharedWeights, drawn: Drawn, components: Array, indices: Array) -> Array:
    ends = jnp.asarray(np.cumsum(shared.layout.sizes), jnp.uint32)
    leaf = jnp.searchsorted(ends, indices, side="right")
    values = drawn.centres + drawn.spreads * drawn.noise.reshape(-1, shared.num_components)
    return values[leaf, components]


def _per_weight(shared: SharedWeights, drawn: Drawn, components: Array, indices: Array) -> Array:
    return drawn.centres[components] + drawn.spreads[components] * drawn.noise[indices]


NOISES: dict[str, tuple[Value, Callable[[SharedWeights], int]]] = {
    "component": (_per_component, lambda shared: shared.num_components),
    "sign": (_per_sign, lambda shared: shared.num_components),
    "layer": (_per_layer, lambda shared: shared.num_components * len(shared.layout.names)),
    "weight": (_per_weight, lambda shared: shared.layout.num_weights),
}


def _blend_samples(shared: SharedWeights, drawn: Drawn, value: Value, key: Key) -> Array:
    indices = shared.ellipse_indices[:, None]
    return jnp.sum(shared.ellipse_weights * value(shared, drawn, shared.ellipse_components, indices), axis=1)


def _blend_centers(shared: SharedWeights, drawn: Drawn, value: Value, key: Key) -> Array:
    return jnp.sum(shared.ellipse_weights * shared.means[:, 0][shared.ellipse_components], axis=1)


def _pick(shared: SharedWeights, drawn: Drawn, value: Value, key: Key) -> Array:
    level = jax.random.uniform(jax.random.fold_in(key, 1), (shared.num_ellipses, 1))
    choice = jnp.sum(level > jnp.cumsum(shared.ellipse_weights, axis=1)[:, :-1], axis=1, keepdims=True)
    picked = jnp.take_along_axis(shared.ellipse_components, choice, axis=1)
    return value(shared, drawn, picked, shared.ellipse_indices[:, None])[:, 0]


BLENDINGS: dict[str, Callable[[SharedWeights, Drawn, Value, Key], Array]] = {
    "samples": _blend_samples,
    "centers": _blend_centers,
    "mixture": _pick,
}
