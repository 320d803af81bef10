"""Elements act by a NumPy transcription of the formula, index by index: nothing of `act` is trusted."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import symmetry
from symbnn.symmetry.spec import Segments, slices, word_size
from tests.symmetry.discovery.fuzz_programs import BATCH, INPUTS, SHAPES, WEIGHTS, program


def ways(word, path=()):
    """For every place of an axis the factors on the way there, with where they stand and their index."""
    places = [()]
    for number, factor in enumerate(word):
        if isinstance(factor, Segments):
            segments = enumerate(factor.words)
            inner = [way for segment, words in segments for way in ways(words, (*path, number, segment))]
        else:
            inner = [(((*path, number), factor, index),) for index in range(factor.size)]
        places = [before + after for before in places for after in inner]
    return places


def act_by_formula(spec, permutations, factors, leaf, array):
    """new[i, j] = s[i, j]^e · old[ρ(i), π[i](j)], one element at a time, slice by slice."""
    described = slices(leaf.axes)
    if described == (leaf.axes,):
        return act_on_slice(spec, permutations, factors, leaf.shift, leaf.axes, array)
    ends = np.cumsum([word_size(words[0]) for words in described])
    pairs = zip(described, np.split(array, ends[:-1]), strict=True)
    return np.concatenate([act_on_slice(spec, permutations, factors, leaf.shift, *pair) for pair in pairs])


def act_on_slice(spec, permutations, factors, shift, words, array):
    over = {group.name: group.over for group in spec.groups}
    axes = [ways(word) for word in words]
    lookup = [
        {tuple((path, index) for path, _, index in way): n for n, way in enumerate(axis)} for axis in axes
    ]
    new = np.empty_like(array)
    for position in itertools.product(*(range(size) for size in array.shape)):
        labels = {
            factor.group: index for axis, n in enumerate(position) for _, factor, index in axes[axis][n]
        }
        old, factor_here = [], 1.0
        for axis, n in enumerate(position):
            source = []
            for path, factor, index in axes[axis][n]:
                if factor.group in permutations:
                    fibre = tuple(labels[name] for name in over[factor.group])
                    factor_here *= factors(factor, (*fibre, index))
                    index = int(permutations[factor.group][(*fibre, index)])
                source.append((path, index))
            old.append(lookup[axis][tuple(source)])
        new[position] = (array[tuple(old)] + shift) * factor_here - shift
    return new


def act(spec, params, random):
    """A random element of all kinds, applied."""
    permutations, scales, signs = {}, {}, {}
    for group in spec.groups:
        shape = spec.shape(group)
        permutations[group.name] = random.permuted(np.broadcast_to(np.arange(group.size), shape), axis=-1)
        scales[group.name] = random.uniform(0.5, 2, (group.num_scales, *shape))
        signs[group.name] = random.choice([-1.0, 1.0], (group.num_signs, *shape))

    def factors(factor, place):
        value = np.prod(
            [s[place] ** float(e) for s, e in zip(scales[factor.group], factor.scales, strict=True)]
        )
        return value * np.prod(
            [s[place] ** e for s, e in zip(signs[factor.group], factor.signs, strict=True)]
        )

    leaves = {leaf.name: leaf for leaf in spec.leaves}
    return {
        name: act_by_formula(spec, permutations, factors, leaves[name], array)
        for name, array in params.items()
    }


def find_and_try(names, random):
    """Groups found in the program of these operations, and how much a random element changes its output."""
    spec = symmetry.discover(program(jnp, names), SHAPES, jax.ShapeDtypeStruct((BATCH, INPUTS), jnp.float32))
    params = {name: random.normal(size=shape) for name, shape in WEIGHTS.items()}
    x = random.normal(size=(BATCH, INPUTS))
    with np.errstate(all="ignore"):
        before = program(np, names)(params, x)
        after = program(np, names)(act(spec, params, random), x)
    if not np.isfinite(before).all() or np.abs(before).max() > 1e12:
        return spec, 0.0
    # An output that is zero but for rounding has no relative error.
    return spec, np.abs(after - before).max() / max(np.abs(before).max(), 1e-6)
