"""A small posterior of shared weights, with outliers and ellipse weights."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import models
from symbnn.sharing import SharedWeights, layout_of
from symbnn.sharing.layout import remainder

MODEL = models.mlp((4,), 3, hidden=(5,))
# Weights 0 to 29 have components 0, 1, 2 in turn; two are outliers, two ellipse weights.
OUTLIERS, ELLIPSES = [3, 17], [8, 25]


def make(**changes) -> SharedWeights:
    params = MODEL.init(jax.random.key(0))
    layout = layout_of(params)
    num = layout.num_weights
    shared = SharedWeights(
        means=jnp.array([[-0.2, 0.03], [0.0, 0.05], [0.3, 0.04]]),
        factors=jnp.array([[0.02, 0.005, 0.01], [0.03, 0.0, 0.02], [0.01, -0.01, 0.01]]),
        labels=jnp.asarray(np.arange(num) % 3, jnp.uint8),
        outlier_indices=jnp.array(OUTLIERS, jnp.uint32),
        outlier_means=jnp.array([0.9, -0.8]),
        outlier_stds=jnp.array([0.1, 0.2]),
        ellipse_indices=jnp.array(ELLIPSES, jnp.uint32),
        ellipse_components=jnp.array([[2, 1], [1, 0]], jnp.uint8),
        ellipse_weights=jnp.array([[0.75, 0.25], [0.5, 0.5]]),
        fixed=remainder(layout, params),
        layout=layout,
    )
    return dataclasses.replace(shared, **changes)


def plain_members(shared: SharedWeights, component: int) -> list[int]:
    special = {*OUTLIERS, *ELLIPSES}
    labels = np.asarray(shared.labels)
    return [i for i in np.flatnonzero(labels == component) if i not in special]
