"""Elements act by a NumPy transcription of the formula, index by index: nothing of `act` is trusted."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from symbnn import symmetry
from symbnn.symmetry.spec import Segments, Slices, word_size
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

    def act_on(words, part):
        return act_on_slice(spec, permutations, factors, leaf.shift, words, part)

    return slice_by_slice(act_on, leaf.axes, array)


def slice_by_slice(change, axes, array):
    """Every slice changed by itself; where there are none, the whole."""
    first = axes[0][0] if axes and axes[0] else None
    if not isinstance(first, Slices):
        return change(axes, array)
    new, start, block = np.empty_like(array), 0, array.shape[first.axis] // first.outer
    for words in first.parts:
        length = word_size(words[first.axis]) // first.outer
        places = [block * number + start + n for number in range(first.outer) for n in range(length)]
        here = (*[slice(None)] * first.axis, places)
        new[here] = slice_by_slice(change, words, array[here])
        start += length
    return new


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


def mix_by_formula(spec, matrices, leaf, array):
    """new[i, a] = Σ_b M[i][a, b] · old[i, b] on vectors, M^-T on duals, one element at a time."""
    return slice_by_slice(lambda words, part: mix_slice(spec, matrices, words, part), leaf.axes, array)


def mix_slice(spec, matrices, words, array):
    over = {group.name: group.over for group in spec.groups}
    axes = [ways(word) for word in words]
    lookup = [
        {tuple((path, index) for path, _, index in way): n for n, way in enumerate(axis)} for axis in axes
    ]
    for axis, places in enumerate(axes):
        mixed = {path for way in places for path, factor, _ in way if factor.group in matrices}
        for path in mixed:
            old, array = array, array.copy()
            for position in itertools.product(*(range(size) for size in array.shape)):
                way = {where: (factor, index) for where, factor, index in places[position[axis]]}
                if path not in way:
                    continue
                factor, row = way[path]
                labels = {f.group: i for a, n in enumerate(position) for _, f, i in axes[a][n]}
                matrix = matrices[factor.group][tuple(labels[name] for name in over[factor.group])]
                if factor.scales and factor.scales[0] < 0:
                    matrix = np.linalg.inv(matrix).T
                total = 0.0
                for column in range(factor.size):
                    source = tuple((w, column if w == path else i) for w, (_, i) in way.items())
                    there = (*position[:axis], lookup[axis][source], *position[axis + 1 :])
                    total += matrix[row, column] * old[there]
                array[position] = total
    return array


def draw_matrices(spec, group, random):
    """Orthogonal by the exponential of a skew matrix, times a positive one where any is allowed."""
    shape = (*spec.shape(group), group.size)
    drawn = np.empty(shape)
    for place in np.ndindex(*shape[:-2]):
        skew = random.normal(size=shape[-2:])
        if group.centred:
            project = np.eye(group.size) - 1 / group.size
            skew = project @ skew @ project
        matrix = scipy.linalg.expm(skew - skew.T)
        if group.kind == "invertible":
            matrix = matrix @ np.diag(random.uniform(0.5, 2, group.size)) @ np.linalg.qr(skew)[0]
        drawn[place] = matrix
    return drawn


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
    matrices = {g.name: draw_matrices(spec, g, random) for g in spec.groups if g.is_linear}
    moved = {
        name: act_by_formula(spec, permutations, factors, leaves[name], array)
        for name, array in params.items()
    }
    return {name: mix_by_formula(spec, matrices, leaves[name], array) for name, array in moved.items()}


def translate_by_formula(translation, params, random):
    """leaf[axes] += coefficient · t[amount] Π (other[axes] + offset)^exponent, index by index."""
    sizes = dict(translation.sizes)
    amount = random.normal(size=translation.shape)
    moved = {name: array.copy() for name, array in params.items()}
    for change in translation.changes:
        used = [change.axes, change.amount, *(power.axes for power in change.powers)]
        indices = list(dict.fromkeys(index for axes in used for axis in axes for index in axis))
        for choice in itertools.product(*(range(sizes[index]) for index in indices)):
            at = dict(zip(indices, choice, strict=True))

            def index_of(axes, at=at):
                found = [0] * len(axes)
                for number, axis in enumerate(axes):
                    for index in axis:
                        found[number] = found[number] * sizes[index] + at[index]
                return tuple(found)

            step = change.coefficient * amount[index_of(change.amount)]
            for power in change.powers:
                other = params[power.place.leaf]
                base = other[in_the_leaf(power.place, index_of(power.axes), other.shape)] + power.offset
                step = step * base**power.exponent
            leaf = moved[change.place.leaf]
            leaf[in_the_leaf(change.place, index_of(change.axes), leaf.shape)] += step
    return moved


def in_the_leaf(place, index, shape):
    """The index in a leaf of an index in a part of it, cut by cut from the last."""
    blocks, lengths = [], list(shape)
    for cut in place.cuts:
        blocks.append(lengths[cut.axis] // cut.outer)
        lengths[cut.axis] = cut.outer * cut.length
    found = list(index)
    for cut, block in reversed([*zip(place.cuts, blocks, strict=True)]):
        number, within = divmod(found[cut.axis], cut.length)
        found[cut.axis] = number * block + cut.start + within
    return tuple(found)


def translate(spec, params, random):
    """All translations, one after the other."""
    for translation in spec.translations:
        params = translate_by_formula(translation, params, random)
    return params


BOUND = 1e-9


def find_and_try(names, random):
    """Groups found in the program of these operations, and how much a random element changes its output."""
    spec = symmetry.discover(program(jnp, names), SHAPES, jax.ShapeDtypeStruct((BATCH, INPUTS), jnp.float32))
    params = {name: random.normal(size=shape) for name, shape in WEIGHTS.items()}
    x = random.normal(size=(BATCH, INPUTS))
    nearly = {name: array * (1 + 1e-13 * random.normal(size=array.shape)) for name, array in params.items()}
    with np.errstate(all="ignore"):
        moved = act(spec, translate(spec, params, random), random)
        before, rounded, after = (program(np, names)(weights, x) for weights in (params, nearly, moved))
    if not np.isfinite(before).all() or np.abs(before).max() > 1e12:
        return spec, 0.0
    # An output that is zero but for rounding has no relative error.
    size = max(np.abs(before).max(), 1e-4)
    error, rounding = np.abs(after - before).max() / size, np.abs(rounded - before).max() / size
    # A program that blows a rounding of 1e-13 up to more than the error says nothing about the symmetry.
    if error < rounding:
        return spec, 0.0
    return spec, error if error < BOUND else _in_extended_precision(names, params, moved, x, size)


def _in_extended_precision(names, params, moved, x, size):
    """The same error with eleven bits more: smaller if it was rounding, not if a symmetry is invented."""
    weights = [
        {name: array.astype(np.longdouble) for name, array in each.items()} for each in (params, moved)
    ]
    with np.errstate(all="ignore"):
        before, after = (program(np, names)(each, x.astype(np.longdouble)) for each in weights)
    return float(np.abs(after - before).max() / size)
