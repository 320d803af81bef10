"""Are the units of a layer exchangeable over samples?

With layer-wise identical initialisation or prior every unit of a hidden layer has the same marginal posterior
(Laurent, Aldea, Franchi 2024, corollary to the mixture proposition). So the index of the unit that holds the
layer's largest weight is uniform over units. Independent networks pass; a chain that never swaps units fails.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from symbnn import chains, names, tree
from symbnn.symmetry import SymmetrySpec
from symbnn.symmetry.spec import Factor, Segments, check_params, word_size, words_by_axis

# Cochran's rule: with fewer samples per unit the statistic does not follow the chi-square law.
LEAST_PER_UNIT = 5
# Some p-values are simulated: to within 0.0015 near 0.05, and none is below 1 in this many.
NUM_SIMULATED = 20_000
# Counts that are held at a time.
_BLOCK = 100


class Exchangeability(NamedTuple):
    """Counts of the unit holding the largest weight, and the chi-square test against uniform."""

    leaf: str
    counts: np.ndarray
    statistic: float
    p_value: float


class UnitAxis(NamedTuple):
    """Where a leaf has the units of a group: a whole axis or a segment of one."""

    leaf: str
    axis: int
    units: slice


def exchangeability(spec: SymmetrySpec, samples: Any, *, group: str) -> Exchangeability:
    """Chi-square test on the first leaf (of at least two axes) that has the group as a whole axis.

    Where no leaf does, the first in which the group is a segment of an axis. With fewer than five samples per
    unit the p-value is that of 20,000 simulated sets of counts.

    Args:
        spec: The symmetries of the networks.
        samples: Networks, one draw each, stacked or kept by an `Empirical`.
        group: Name of the layer's group in `spec`.
    """
    names.lookup({known.name: known for known in spec.groups}, group, "group")
    samples, _ = chains.unpack(samples, check=partial(check_params, spec, num_leading=1))
    place = unit_axis(spec, group)
    if place is None:
        raise ValueError(
            f"group {group!r} is neither a whole axis nor a segment of one in any leaf with two or more axes"
        )
    array = jnp.moveaxis(tree.named_leaves(samples)[place.leaf], place.axis + 1, 1)[:, place.units]
    per_unit = array.reshape(*array.shape[:2], -1).max(-1)
    counts = np.bincount(np.asarray(jax.jit(lambda a: a.argmax(-1))(per_unit)), minlength=per_unit.shape[1])
    statistic, p_value = stats.chisquare(counts)
    if counts.sum() < LEAST_PER_UNIT * len(counts):
        p_value = _simulated(counts)
    return Exchangeability(place.leaf, counts, float(statistic), float(p_value))


def unit_axis(spec: SymmetrySpec, group: str) -> UnitAxis | None:
    """Where the test looks for the units of a group; None if no leaf has them along one axis."""
    places = list(_places(spec, group))
    return next((place for place in places if place.units == slice(None)), places[0] if places else None)


def _places(spec: SymmetrySpec, group: str) -> Any:
    """Every axis that is the group, or has it as a segment."""
    for leaf in spec.leaves:
        for axis, word in enumerate(words_by_axis(leaf.axes) if len(leaf.shape) > 1 else ()):
            if _is_group(word, group):
                yield UnitAxis(leaf.name, axis, slice(None))
            elif len(word) == 1 and isinstance(word[0], Segments):
                start = 0
                for part in word[0].words:
                    if _is_group(part, group):
                        yield UnitAxis(leaf.name, axis, slice(start, start + word_size(part)))
                    start += word_size(part)


def _is_group(word: Any, group: str) -> bool:
    return len(word) == 1 and isinstance(word[0], Factor) and word[0].group == group


def _simulated(counts: np.ndarray) -> float:
    """Share of uniform counts that are as far from even; the given ones are among them, so it is not zero."""
    generator, units = np.random.default_rng(0), len(counts)
    # Chi-square rises with the sum of squares, which is an integer: ties are exact.
    observed, as_far = np.sum(counts**2), 1
    for _ in range(NUM_SIMULATED // _BLOCK):
        drawn = generator.multinomial(counts.sum(), np.full(units, 1 / units), size=_BLOCK)
        as_far += int(np.count_nonzero(np.sum(drawn**2, axis=1) >= observed))
    return as_far / (NUM_SIMULATED + 1)
