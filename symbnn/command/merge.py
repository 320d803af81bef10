"""`symbnn merge`: several trained networks made one."""

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import compact
from symbnn.command.networks import kind_of_output, layers_of, model_of, read_weights, write_weights
from symbnn.data.base import bad_file
from symbnn.data.npz import read_arrays
from symbnn.models import Model
from symbnn.types import Params


def run(arguments: argparse.Namespace) -> None:
    """Read, merge, write, and say what was done."""
    model, layers = model_of(arguments), layers_of(arguments)
    found = [read_weights(path, model, layers) for path in arguments.weights]
    networks = [network for each in found for network in each.networks]
    if len(networks) < 2:
        raise ValueError(f"{arguments.weights[0]} holds one network; give two or more to merge")
    kind = kind_of_output(arguments.out, arguments.weights, arguments.to, found[0].kind)
    inputs, labels = (None, None) if arguments.inputs is None else _inputs(arguments.inputs)
    merged = compact.merge(model, networks, inputs=inputs, method=arguments.method)
    for path, each in zip(arguments.weights, found, strict=True):
        print(f"{path}: {each.words}")
    print(f"merged {len(networks)} networks; correction: {merged.correction}")
    if inputs is not None and labels is not None:
        _judge(model, [*networks, merged.params], inputs, labels)
    is_torch = kind == found[0].kind == "torch"
    like = arguments.like or (arguments.weights[0] if is_torch else None)
    print(write_weights(arguments.out, model, merged.params, kind, layers=layers, like=like))


def _inputs(path: str) -> tuple[jax.Array, np.ndarray | None]:
    """The array `inputs` of a file, and integer `targets` if there are any."""
    arrays = read_arrays(Path(path))
    if "inputs" not in arrays:
        advice = "save it with np.savez(path, inputs=...)"
        raise bad_file(Path(path), expected="an array 'inputs'", found=", ".join(arrays), advice=advice)
    targets: Any = arrays.get("targets")
    is_labels = targets is not None and targets.ndim == 1 and targets.dtype.kind in "iu"
    return jnp.asarray(arrays["inputs"], jnp.float32), targets if is_labels else None


def _judge(model: Model, networks: list[Params], inputs: jax.Array, labels: np.ndarray) -> None:
    right = [
        float(np.mean(np.asarray(jax.jit(model.apply)(params, inputs).argmax(-1)) == labels))
        for params in networks
    ]
    words = ", ".join(f"{share:.4f}" for share in right[:-1])
    print(
        f"accuracy on the {len(labels)} inputs that were given, which flatter the merged network: {words}; "
        f"merged {right[-1]:.4f}"
    )
