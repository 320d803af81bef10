"""Several trained networks made one: aligned, averaged, corrected.

    merged = compact.merge(model, [a, b, c], inputs=images)

Gains of norms are folded away where that lets the network's stream rotate; units are brought to one scale and
relabelled, flipped and mixed to fit one of the networks (`symmetry.align`); the networks are averaged, by
their weights or layer by layer (`compact.regression`); and what averaging spoils is measured anew: running
statistics of norms, and the moments of pre-activations (REPAIR). Where these lie is found in the program of
`model.apply`, whatever library it is written with.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from symbnn import chains, evaluate, symmetry, tree
from symbnn.compact.regression import regressed
from symbnn.evaluate.corrections.lockstep import Traced, trace, walk
from symbnn.evaluate.corrections.moments import check_visible, with_moments, with_statistics
from symbnn.frameworks import described, library
from symbnn.models import Model
from symbnn.names import lookup
from symbnn.posteriors import Empirical
from symbnn.symmetry import Element, SymmetrySpec
from symbnn.symmetry.gauges import Folding, find_folding, fold, mixed_groups, no_minimum, refusal
from symbnn.symmetry.numerics import check_finite
from symbnn.symmetry.spec import check_params, split
from symbnn.types import Params, Samples

Weights = Sequence[float | jax.Array]
Correction = Callable[[Traced, Params, Sequence[Params], Weights], Params]
"""`(program on the inputs, mean network, networks, their weights) -> merged network`."""


class Merged(NamedTuple):
    """One network made of several."""

    params: Params
    """The merged network."""
    aligned: Samples
    """The networks that were given, stacked: the same functions in one labelling and on one scale."""
    elements: Element
    """Stacked: how the networks were relabelled, flipped and mixed, after they were brought to one scale."""
    correction: str
    """How the mean of the weights was corrected: "regression", "repair", "statistics" or "none"."""
    barrier: evaluate.Barrier | None = None
    """On the lines between all pairs of networks, stacked in the order of `itertools.combinations`."""
    spec: SymmetrySpec | None = None
    """What the elements are of: the model's symmetries, or those that it has once its gains are one."""


def merge(
    model: Model,
    networks: Sequence[Params] | Samples | Empirical,
    *,
    inputs: Any = None,
    method: str | None = "auto",
    correct: str | None = "auto",
    reference: Params | int | str | None = None,
    barrier: tuple[Any, Any] | None = None,
) -> Merged:
    """One network that does what several trained networks do, without training.

    Args:
        model: The network function and its symmetries.
        networks: A list of networks, stacked samples, or what keeps some (an `Empirical`, a `Fit`).
        inputs: Some hundreds of inputs without labels, from the training data; a tuple for a network of
            several. Without them only weights can be compared, and nothing is corrected.
        method: How units are matched, as in `symmetry.align`: "weights", "activations" or "frank_wolfe"; by
            default "activations" if there are inputs. None takes the networks as they are.
        correct: What is done to the mean of the aligned weights: "statistics" measures the running statistics
            of norms anew; "repair" also gives every pre-activation the mean size that it has in the
            networks; "regression", the default if there are inputs, fits every layer by least squares to the
            mean of what it computes in the networks. None leaves the mean as it is.
        reference: What the networks are matched to, as in `symmetry.align`; by default the first of them.
        barrier: `(inputs, targets)` of a classification to judge the lines between the networks on.
    """
    samples = _stacked(networks)
    _check(model, samples)
    count = tree.num_samples(samples)
    if count == 1:
        unmoved = jax.tree.map(lambda leaf: leaf[None], symmetry.identity(model.spec))
        return Merged(tree.take(samples, 0), samples, unmoved, "none", spec=model.spec)
    name = _chosen(model, inputs, correct)
    traced = None if name == "none" else _traced(model, tree.take(samples, 0), inputs)
    gains = (
        frozenset(site.gain for site in traced.sites if site.norm and site.gain) if traced else frozenset()
    )
    aligned, elements, spec = _aligned(model, samples, gains, inputs, method, reference)
    members = [tree.take(aligned, index) for index in range(count)]

    def corrected(mean: Params, some: Sequence[Params], weights: Weights) -> Params:
        return mean if traced is None else CORRECTIONS[name](traced, mean, some, weights)

    params = corrected(_mean(members), members, [1.0 / count] * count)
    judged = None if barrier is None else _barriers(model, members, corrected, barrier)
    return Merged(params, aligned, elements, name, judged, spec)


def _stacked(networks: Sequence[Params] | Samples | Empirical) -> Samples:
    held = chains.networks(networks)
    if held is not networks:
        return held
    if not isinstance(networks, list | tuple):
        return jax.tree.map(jnp.asarray, networks)
    if not networks:
        raise ValueError("networks: expected at least one, got an empty list")
    for index, network in enumerate(networks):
        if library(network) is not None:
            raise ValueError(
                f"network {index} is {described(network)}; give its weights, model.params(network)"
            )
        if isinstance(network, str | os.PathLike):
            raise ValueError(f"network {index} is a path; read it first, as by io.from_torch(model, path)")
        tree.check_same_shapes(f"network {index}", network, networks[0])
    return tree.stack(networks)


def _check(model: Model, samples: Samples) -> None:
    check_params(model.spec, samples, num_leading=1)
    count = tree.num_samples(samples)
    if count == 0:
        raise ValueError("networks: expected at least one, got none: the first axis of every leaf is empty")
    for index in range(count):
        check_finite(tree.take(samples, index), "it cannot be merged", whose=f" of network {index}")


def _chosen(model: Model, inputs: Any, correct: str | None) -> str:
    """The name of the correction; `ValueError` if it lacks inputs."""
    name = "none" if correct is None else correct
    if name == "auto":
        name = "none" if inputs is None else "regression"
        statistics = [leaf.name for leaf in model.spec.leaves if leaf.is_statistic]
        if inputs is None and statistics:
            raise ValueError(
                f"a mean of networks needs running statistics of its own ({statistics[0]!r}, ...): pass "
                "inputs= to measure them on, or correct=None to keep the mean of the old ones"
            )
    lookup({"auto": None, **CORRECTIONS, "none": None}, name, "correction")
    if name != "none" and inputs is None:
        raise ValueError(f"correct={name!r} measures what the network computes: pass inputs=")
    return name


def _traced(model: Model, params: Params, inputs: Any) -> Traced:
    """The network's program on the inputs; `ValueError` if statistics cannot be measured in it."""
    traced = trace(model.apply, params, inputs)
    check_visible(traced)
    found = {site.norm.variance for site in traced.sites if site.norm is not None}
    for leaf in model.spec.leaves:
        if leaf.is_statistic and leaf.name not in found:
            raise ValueError(
                f"the running variance {leaf.name!r} cannot be measured: the place of its norm was not found "
                "(it may be used twice); use correct=None"
            )
    return traced


def _aligned(
    model: Model,
    samples: Samples,
    gains: frozenset[str],
    inputs: Any,
    method: str | None,
    reference: Params | int | str | None,
) -> tuple[Samples, Element, SymmetrySpec]:
    """Networks in one scale and one labelling, how they were relabelled, and the symmetries by which."""
    spec = model.spec
    if method is None or not spec.groups:
        count = tree.num_samples(samples)
        one = symmetry.identity(spec)
        return samples, jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), one), spec
    if method == "auto":
        method = "weights" if inputs is None else "activations"
    if method == "activations" and inputs is None:
        raise ValueError("method='activations' compares what units compute: pass inputs=")
    is_network = reference is not None and not isinstance(reference, int | str)
    several = [samples, *([tree.stack([reference])] if is_network else [])]
    folding = _folding(model, several, inputs)
    if folding is not None:
        several, spec = [jax.vmap(partial(fold, folding))(some) for some in several], folding.folded
    samples, *others = (_in_one_gauge(spec, gains, some) for some in several)
    found = symmetry.align(
        spec,
        samples,
        reference=tree.take(others[0], 0) if others else reference,
        method=method,
        **({"apply": model.apply, "inputs": inputs} if method == "activations" else {}),
    )
    return found.samples, found.elements, spec


def _folding(model: Model, several: Sequence[Samples], inputs: Any) -> Folding | None:
    """How gains are folded away, where that lets matrices mix units; None if not, or if one is zero."""
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    if inputs is None:
        if model.input_shape is None:
            return None
        given = (jax.ShapeDtypeStruct((2, *model.input_shape), jnp.float32),)
    found = find_folding(model.apply, tree.take(several[0], 0), *given)
    is_foldable = found.numbers and found.spec == model.spec
    return found if is_foldable and not any(refusal(found, some) for some in several) else None


@partial(jax.jit, static_argnames=("spec", "gains"))
def _in_one_gauge(spec: SymmetrySpec, gains: frozenset[str], samples: Samples) -> Samples:
    """Networks on one scale, and with positive gains behind norms.

    The scale is that of incoming weights of unit length. Where matrices mix units their lengths mean nothing:
    there it is that of least mass, if there is one. What units compute does not show the sign of the weights
    in front of a norm, which its gain can undo.
    """

    def scaled(one: Params) -> Params:
        if mixed_groups(spec) and no_minimum(spec) is None:
            return symmetry.balance(spec, one).params
        return symmetry.normalise(spec, one)

    return jax.lax.map(lambda one: _upright(spec, gains, scaled(one)), samples)


def _upright(spec: SymmetrySpec, gains: frozenset[str], params: Params) -> Params:
    leaves = tree.named_leaves(params)
    signs = dict(symmetry.identity(spec).signs)
    for leaf in (leaf for leaf in spec.leaves if leaf.name in gains):
        for piece in split(leaf.axes, leaves[leaf.name]):
            for factor in piece.factors:
                flips = [number for number, parity in enumerate(factor.signs) if parity % 2]
                if factor.group is not None and len(flips) == 1 and piece.array.size == factor.size:
                    sign = jnp.where(piece.array.reshape(-1) < 0, -1, 1)
                    signs[factor.group] = signs[factor.group].at[flips[0]].set(sign)
    return symmetry.act(spec, Element({}, {}, signs), params)


def _mean(members: Sequence[Params]) -> Params:
    """Mean of the weights; what is no real number (a counter) is that of the first network."""

    def mean(*leaves: jax.Array) -> jax.Array:
        is_real = jnp.issubdtype(leaves[0].dtype, jnp.inexact)
        return jnp.mean(jnp.stack(leaves), axis=0).astype(leaves[0].dtype) if is_real else leaves[0]

    return jax.tree.map(mean, *members)


def _barriers(
    model: Model,
    members: Sequence[Params],
    corrected: Callable[[Params, Sequence[Params], Weights], Params],
    batch: tuple[Any, Any],
) -> evaluate.Barrier:
    def correct(a: Params, b: Params, weight: float | jax.Array, params: Params) -> Params:
        return corrected(params, (a, b), (1.0 - weight, weight))

    pairs = combinations(members, 2)
    return tree.stack([evaluate.barrier(model.apply, a, b, batch, correct=correct) for a, b in pairs])


CORRECTIONS: dict[str, Correction] = {
    "statistics": lambda traced, mean, networks, weights: with_statistics(traced, mean),
    "repair": with_moments,
    "regression": lambda traced, mean, networks, weights: walk(
        traced, [*networks, mean], lambda reading: regressed(reading, weights)
    ),
}
