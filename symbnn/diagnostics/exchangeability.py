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
from symbnn.symmetry.spec import Factor, check_params, words_by_axis


class Exchangeability(NamedTuple):
    """Counts of the unit holding the largest weight, and the chi-square test against uniform."""

    leaf: str
    counts: np.ndarray
    statistic: float
    p_value: float


def exchangeability(spec: SymmetrySpec, samples: Any, *, group: str) -> Exchangeability:
    """Chi-square test on the first leaf (of at least two axes) that has the group as a whole axis.

    Args:
        spec: The symmetries of the networks.
        samples: Networks, one draw each, stacked or kept by an `Empirical`.
        group: Name of the layer's group in `spec`.
    """
    names.lookup({known.name: known for known in spec.groups}, group, "group")
    samples, _ = chains.unpack(samples, check=partial(check_params, spec, num_leading=1))
    leaf, axis = _whole_axis(spec, group)
    array = tree.named_leaves(samples)[leaf]
    count = tree.num_samples(samples)
    per_unit = jnp.moveaxis(array, axis + 1, 1).reshape(count, array.shape[axis + 1], -1).max(-1)
    counts = np.bincount(np.asarray(jax.jit(lambda a: a.argmax(-1))(per_unit)), minlength=per_unit.shape[1])
    statistic, p_value = stats.chisquare(counts)
    return Exchangeability(leaf, counts, float(statistic), float(p_value))


def _whole_axis(spec: SymmetrySpec, group: str) -> tuple[str, int]:
    for leaf in spec.leaves:
        for axis, word in enumerate(words_by_axis(leaf.axes) if len(leaf.shape) > 1 else ()):
            if len(word) == 1 and isinstance(word[0], Factor) and word[0].group == group:
                return leaf.name, axis
    raise ValueError(f"group {group!r} is not a whole axis of any leaf with two or more axes")
