"""A noise level that is learned with the weights.

`learn_noise(model, k)` adds one leaf `noise/log_std` of shape (k,) and k outputs that repeat it, so that the
`heteroscedastic` likelihood applies unchanged: homoscedastic noise is the case in which the log-stds do not
depend on the input. A prior on it is a scale by name, `{"noise/*": 1.0, "*": 0.5}`.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from symbnn.models import in_training
from symbnn.models.base import has_batch_statistics
from symbnn.symmetry.spec import Factor, Leaf
from symbnn.types import Key, Params

LEAF = "noise"


def learn_noise(model: Any, num_targets: int, *, initial: float = 0.1) -> Any:
    """`model` with `num_targets` learned standard deviations; use it with `heteroscedastic()`.

    The model's tree must be a dict; the noise is invariant under every symmetry of the network.
    """
    if not initial > 0:
        raise ValueError(f"initial must be a positive standard deviation; got {initial}")

    def split(params: Params) -> tuple[Params, Array]:
        return {name: leaf for name, leaf in params.items() if name != LEAF}, params[LEAF]["log_std"]

    def with_noise(means: Float[Array, "n k"], log_std: Float[Array, " k"]) -> Float[Array, "n two_k"]:
        return jnp.concatenate([means, jnp.broadcast_to(log_std, means.shape)], axis=-1)

    def start(network: Params) -> Params:
        dtype = jnp.result_type(*jax.tree.leaves(network))
        return {**network, LEAF: {"log_std": jnp.full((num_targets,), math.log(initial), dtype)}}

    def init(key: Key) -> Params:
        return start(model.init(key))

    def apply(params: Params, inputs: ArrayLike) -> Array:
        network, log_std = split(params)
        return with_noise(model.apply(network, inputs), log_std)

    def train(params: Params, inputs: ArrayLike, key: Key) -> tuple[Array, Params]:
        network, log_std = split(params)
        means, network = in_training(model, network, inputs, key)
        return with_noise(means, log_std), {**network, LEAF: {"log_std": log_std}}

    shapes = jax.eval_shape(model.init, jax.random.key(0))
    if has_batch_statistics(shapes):
        raise ValueError(
            f"learn_noise takes networks without BatchNorm; this one has {sorted(shapes)}. Let the network "
            "put out logarithms of standard deviations itself, with the heteroscedastic likelihood"
        )
    if not isinstance(shapes, dict):
        raise ValueError(f"learn_noise adds a leaf to a dict; the model's tree is a {type(shapes).__name__}")
    if LEAF in shapes:
        raise ValueError(f"The model already has a leaf {LEAF!r}; learn_noise was applied before")
    leaf = Leaf(f"{LEAF}/log_std", (num_targets,), ((Factor(num_targets),),))
    spec = dataclasses.replace(model.spec, leaves=(*model.spec.leaves, leaf))
    noisy = model._replace(init=init, apply=apply, train=train, spec=spec)
    if getattr(model, "network", None) is None:
        return noisy
    return noisy._replace(
        params=lambda network: start(model.params(network)),
        network=lambda params: model.network(split(params)[0]),
    )
