"""What the rest of the library sees of a network: pure functions, a spec, an input shape.

Modules are plain linen modules. A module whose `__call__` has a `train` parameter is told whether it trains;
any other is called with the inputs alone. Equal settings give the same `Model` object, so functions jitted
over `model.apply` compile once.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.typing import ArrayLike

from symbnn import symmetry
from symbnn.symmetry import SymmetrySpec
from symbnn.types import Key, Params


class Model(NamedTuple):
    """A network as functions.

    - `init(key)`: framework-default weights.
    - `apply(params, inputs)`: outputs (logits) of a batch in evaluation mode.
    - `spec`: the symmetries, discovered from shapes.
    - `train(params, inputs, key)`: outputs in training mode (dropout, statistics of this batch), and the
      parameters with new running statistics; the same parameters if the net keeps none. Not needed for a
      net without such a mode.
    - `input_shape`: without the batch axis; if given, inputs are checked against it.
    """

    init: Callable[[Key], Params]
    apply: Callable[[Params, ArrayLike], jax.Array]
    spec: SymmetrySpec
    train: Callable[[Params, ArrayLike, Key], tuple[jax.Array, Params]] | None = None
    input_shape: tuple[int, ...] | None = None


def in_training(model: Any, params: Params, inputs: ArrayLike, key: Key) -> tuple[jax.Array, Params]:
    """Outputs in training mode, and the parameters after it; a model without such a mode has only one."""
    return (model.apply(params, inputs), params) if model.train is None else model.train(params, inputs, key)


def from_module(module: nn.Module, input_shape: tuple[int, ...]) -> Model:
    """`Model` of any linen module; params are the bare dict unless the module keeps batch statistics."""
    return _from_module(module, tuple(input_shape))


@functools.lru_cache(maxsize=256)
def _from_module(module: nn.Module, input_shape: tuple[int, ...]) -> Model:
    mode = _mode_arguments(module)
    example = jax.ShapeDtypeStruct((1, *input_shape), jnp.float32)
    shapes = jax.eval_shape(lambda key: module.lazy_init(key, example, **mode(False)), jax.random.key(0))
    unknown = sorted(shapes.keys() - {"params", "batch_stats"})
    if unknown:
        raise ValueError(
            f"{type(module).__name__} keeps {unknown}; only 'params' and 'batch_stats' are supported"
        )
    has_statistics = "batch_stats" in shapes

    def variables(params: Params) -> Any:
        return params if has_statistics else {"params": params}

    def init(key: Key) -> Params:
        # Lazily: the forward pass is only traced. In one program many draws compile for minutes on CPU.
        created = module.lazy_init(key, example, **mode(False))
        return dict(created) if has_statistics else created["params"]

    def checked(inputs: ArrayLike) -> jax.Array:
        if jnp.shape(inputs)[1:] != input_shape:
            raise ValueError(f"inputs have shape {jnp.shape(inputs)}; expected (batch, *{input_shape})")
        return jnp.asarray(inputs)

    def apply(params: Params, inputs: ArrayLike) -> Any:
        return module.apply(variables(params), checked(inputs), **mode(False))

    def train(params: Params, inputs: ArrayLike, key: Key) -> tuple[Any, Params]:
        inputs, rngs = checked(inputs), {"dropout": key}
        if not has_statistics:
            return module.apply(variables(params), inputs, rngs=rngs, **mode(True)), params
        outputs, updated = module.apply(params, inputs, rngs=rngs, mutable=["batch_stats"], **mode(True))
        return outputs, {"params": params["params"], "batch_stats": updated["batch_stats"]}

    params_shapes = shapes if has_statistics else shapes["params"]
    spec = symmetry.discover(apply, params_shapes, jax.ShapeDtypeStruct((2, *input_shape), jnp.float32))
    return Model(init, apply, spec, train, input_shape)


def _mode_arguments(module: nn.Module) -> Callable[[bool], dict[str, Any]]:
    if "train" in inspect.signature(module.__call__).parameters:
        return lambda train: {"train": train}
    return lambda train: {}
