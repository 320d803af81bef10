"""`symbnn inspect`: the symmetries of a network, and whether they hold on its weights."""

import argparse
import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import symmetry, tree
from symbnn.command.networks import layers_of, model_of, read_weights
from symbnn.models import Model
from symbnn.models.base import split_statistics
from symbnn.symmetry import Group, SymmetrySpec
from symbnn.symmetry.spec.explain import group_title
from symbnn.types import Params

NUM_INPUTS = 4


def run(arguments: argparse.Namespace) -> None:
    """Print what is found."""
    model = model_of(arguments)
    weights = read_weights(arguments.weights, model, layers_of(arguments))
    params = weights.networks[0]
    print(f"{arguments.weights}: {weights.words}")
    for line in (*_weight_lines(params), *_group_lines(model.spec), "", model.spec.explain()):
        print(line)
    for line in _checks(model, params, arguments):
        print(line)


def _weight_lines(params: Params) -> Iterator[str]:
    leaves = tree.named_leaves(params)
    dtypes = sorted({str(leaf.dtype) for leaf in leaves.values()})
    weights, statistics = split_statistics(params)
    kept = f" and {tree.num_weights(statistics):,} running statistics" if statistics else ""
    yield f"{tree.num_weights(weights):,} weights{kept} in {len(leaves)} leaves of {', '.join(dtypes)}"
    bad = [name for name, leaf in leaves.items() if not np.isfinite(np.asarray(leaf, np.float64)).all()]
    if bad:
        yield f"numbers that are not finite in {', '.join(bad[:5])}{', ...' * (len(bad) > 5)}"


def _group_lines(spec: SymmetrySpec) -> Iterator[str]:
    """One line for every group, and what all of them make together."""
    for group in spec.groups:
        yield f"  {group_title(spec, group)}"
    copies = {group.name: math.prod(spec.shape(group)[:-1]) for group in spec.groups}
    dimensions = sum(copies[group.name] * _dimension(group) for group in spec.groups)
    orders = sum(copies[group.name] * _log10_order(group) for group in spec.groups)
    groups = "1 group" if len(spec.groups) == 1 else f"{len(spec.groups)} groups"
    yield (
        f"{groups}; {dimensions:,} continuous dimensions; 10^{orders:.0f} copies of every network by labels "
        "and signs"
    )
    if spec.translations:
        count = sum(math.prod(translation.shape) for translation in spec.translations)
        yield f"{count:,} numbers free to move while others make up for it (symmetry.settle takes them out)"


def _dimension(group: Group) -> int:
    """Of the continuous part: n² numbers of an invertible matrix, n (n - 1) / 2 of a rotation, or scales."""
    if group.kind == "invertible":
        return group.size**2
    if group.kind == "orthogonal":
        size = group.size - group.centred
        return size * (size - 1) // 2
    return group.num_scales * group.size


def _log10_order(group: Group) -> float:
    """Of permutations and signs; matrices, which are continuous, contain them."""
    if group.is_linear:
        return 0.0
    return math.lgamma(group.size + 1) / math.log(10) + group.num_signs * group.size * math.log10(2)


def _checks(model: Model, params: Params, arguments: argparse.Namespace) -> Iterator[str]:
    """Whether the symmetries hold and, if that is asked for, whether there are others."""
    shape = model.input_shape or arguments.input_shape
    if shape is None:
        raise ValueError("the model does not know the shape of its inputs: give --input-shape")
    key_inputs, key_elements = jax.random.split(jax.random.key(0))
    inputs = jax.random.normal(key_inputs, (NUM_INPUTS, *shape), jnp.float32)
    yield f"verified: {symmetry.verify(model.spec, model.apply, params, inputs, key_elements)}"
    if arguments.complete:
        yield f"complete: {symmetry.completeness(model.spec, model.apply, params, inputs)}"
