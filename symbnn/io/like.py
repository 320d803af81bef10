"""The networks of a posterior as trees of another class: that of a network `like` them, leaf by leaf name.

A posterior holds networks in several places (means and deviations, samples, components), stacked or not. So
every part of it whose leaves are called as those of `like` takes its class; axes in front of a network's own
are those of samples, ranks or components.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from symbnn import frameworks, tree
from symbnn.io.files import ArtefactError, explaining
from symbnn.io.structure import instance
from symbnn.io.trees import ADVICE, is_array, refuse_other_names
from symbnn.models.wrapping.nnx import weights_state
from symbnn.posteriors import FixedLeaves


def in_class_of(path: Path, like: Any, posterior: Any) -> Any:
    """`posterior` with every network in it as a tree like `like`; `ArtefactError` if it has none of them."""
    if callable(getattr(like, "sample", None)):
        raise ValueError(f"like must be a network, or posterior.samples; got {frameworks.described(like)}")
    template = weights_state(like) if frameworks.library(like) == "nnx" else like
    leaves = {name: leaf for name, leaf in tree.named_leaves(template).items() if is_array(leaf)}
    weights = {name for name, leaf in leaves.items() if jnp.issubdtype(leaf.dtype, jnp.inexact)}
    if not weights:
        raise ValueError(
            f"like must hold weights, as arrays or shapes; got {frameworks.described(like)} without any (for "
            "linen and Haiku, give the parameters)"
        )
    networks: list[Any] = []
    others: list[set[str]] = []

    def convert(node: Any) -> Any:
        names = set(tree.leaf_names(node))
        if weights <= names <= leaves.keys():
            networks.append(_filled(path, template, leaves, node))
            return networks[-1]
        if isinstance(node, FixedLeaves):
            # The law over the free leaves is one over a dict by their names.
            return FixedLeaves(convert(node.params), node.free)
        if isinstance(node, dict | list | tuple):
            others.append(names)
        if isinstance(node, dict):
            return {key: convert(child) for key, child in node.items()}
        if dataclasses.is_dataclass(node):
            fields = {field.name: getattr(node, field.name) for field in dataclasses.fields(node)}
            return instance(type(node), {name: convert(value) for name, value in fields.items()})
        return type(node)(*map(convert, node)) if hasattr(node, "_fields") else node

    with explaining(path, "a posterior over networks", ADVICE):
        converted = convert(posterior)
    if not networks:
        nearest = max(others, key=lambda names: len(names & weights), default=set())
        refuse_other_names(path, sorted(weights - nearest), sorted(nearest - leaves.keys()))
    return converted


def _filled(path: Path, template: Any, leaves: dict[str, Any], node: Any) -> Any:
    """`template` with the arrays of `node`, and nothing where it has none."""
    found = tree.named_leaves(node)
    num_leading = {name: jnp.ndim(leaf) - len(leaves[name].shape) for name, leaf in found.items()}
    for name, leaf in found.items():
        num, shape = num_leading[name], tuple(leaves[name].shape)
        if num < 0 or num != min(num_leading.values()) or jnp.shape(leaf)[num:] != shape:
            raise ArtefactError(
                f"{path}: leaf {name!r} has shape {jnp.shape(leaf)}; that of `like` has {shape}, which all "
                "axes but those of the samples must be"
            )
    return tree.map_named(lambda name, _: found.get(name), template)
