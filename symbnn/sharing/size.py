"""How large shared weights are: by the paper's count of parameters, and in bytes.

The paper counts outliers + ellipse weights + 2 per Gaussian. That leaves out the labels, which are most of
the file, the outliers' standard deviations, the covariances and the deterministic parameters; so bytes
stand beside it."""

from typing import NamedTuple

import jax
import numpy as np

from symbnn import tree
from symbnn.sharing.files import label_type, mark_type
from symbnn.sharing.posterior import SharedWeights

FLOAT = 4


class Size(NamedTuple):
    """Counts, and bytes of what must be kept (a file adds a header of names and checksums)."""

    num_weights: int
    num_outliers: int
    num_ellipses: int
    num_components: int
    paper_count: int
    """Outliers + ellipse weights + 2 Gaussians (Tables 1 to 3)."""
    paper_count_blended: int
    """Outliers + 2 ellipse weights + 2 Gaussians (Table 8)."""
    bytes: int
    """With a label in whole bytes for every weight; the file codes labels shorter."""
    entropy_coded_bytes: int
    """With labels at their entropy: what an ideal entropy coder would reach."""
    pair_bytes: int
    """Mean and standard deviation of every shared weight and the rest, in float32: mean field."""
    weight_bytes: int
    """The deterministic network in float32."""


def size_of(shared: SharedWeights) -> Size:
    """Counts and bytes of a posterior."""
    num, outliers = shared.layout.num_weights, shared.num_outliers
    ellipses, components = shared.num_ellipses, shared.num_components
    fixed = FLOAT * sum(tree.num_weights(leaf) for leaf in jax.tree.leaves(shared.fixed))
    label, mark = (np.dtype(kind(components)).itemsize for kind in (label_type, mark_type))
    kept = shared.ellipse_components.shape[1]
    tables = FLOAT * (2 * outliers + 5 * components) + fixed
    tables += ellipses * (kept * label + FLOAT * (kept - 1))
    return Size(
        num_weights=num,
        num_outliers=outliers,
        num_ellipses=ellipses,
        num_components=components,
        paper_count=outliers + ellipses + 2 * components,
        paper_count_blended=outliers + 2 * ellipses + 2 * components,
        bytes=tables + mark * num,
        entropy_coded_bytes=tables + int(np.ceil(num * label_entropy(shared) / 8)),
        pair_bytes=2 * FLOAT * num + fixed,
        weight_bytes=FLOAT * num + fixed,
    )


def label_entropy(shared: SharedWeights) -> float:
    """Bits per weight, with outliers and ellipse weights as two more labels."""
    labels = np.asarray(shared.labels).astype(np.int64)
    labels[np.asarray(shared.outlier_indices)] = shared.num_components
    labels[np.asarray(shared.ellipse_indices)] = shared.num_components + 1
    shares = np.bincount(labels) / len(labels)
    shares = shares[shares > 0]
    return float(-np.sum(shares * np.log2(shares)))
