"""How widely every weight varies, before and after alignment: what symmetry does to a posterior."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from symbnn import compact, tree
from symbnn.plot.draws import samples_of
from symbnn.plot.style import BLUE, RED, new_figure
from symbnn.posteriors import DiagonalGaussian
from symbnn.symmetry.numerics import check_finite
from symbnn.types import Params

BINS = 59


def spread(before: Any, after: Any, *, title: str | None = None, figure: Any = None) -> Figure:
    """Histograms of the standard deviations of all weights, raw and aligned, in the same bins.

    Args:
        before: Networks as they were drawn: a `Fit`, an `Empirical`, or a tree with a leading axis; or their
            Gaussian, as `compact.gaussian` gives it.
        after: The same networks aligned; an `Aligned` will do.
        title: Above the panel.
        figure: An empty figure or subfigure to draw into, instead of a new one.
    """
    stds = {"raw": _stds("before", before), "aligned": _stds("after", after)}
    tree.check_same_shapes("after", stds["aligned"], stds["raw"])
    values = {words: np.asarray(tree.flat(std), np.float64) for words, std in stds.items()}
    figure, (panel,) = new_figure(figure=figure)
    both = np.concatenate(list(values.values()))
    bins = np.linspace(both.min(), max(both.max(), both.min() + np.finfo(np.float32).tiny), BINS + 1).tolist()
    for (words, each), colour in zip(values.items(), (RED, BLUE), strict=True):
        median = float(np.median(each))
        label = f"{words}, median {median:.2f}" if median > 0.1 else f"{words}, median {median:.2g}"
        panel.hist(each, bins, color=colour, alpha=0.6, label=label)
    panel.set(title=title or "", xlabel="standard deviation of a weight", ylabel="weights")
    panel.legend(frameon=False)
    return figure.get_figure(root=True)


def _stds(name: str, networks: Any) -> Params:
    """The standard deviation of every weight."""
    law = getattr(networks, "posterior", networks)
    if isinstance(law, DiagonalGaussian):
        check_finite(law.std, "a spread is a finite number", whose=f" of the spread of {name}")
        return law.std
    leaves, _ = samples_of(name, networks)
    if (count := tree.num_samples(leaves)) < 2:
        raise ValueError(f"{name}: a spread needs at least two networks, got {count}")
    return compact.gaussian(leaves).std
