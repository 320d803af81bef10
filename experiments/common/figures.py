"""Figures of predictions and posteriors: calibration, selection, detection, barriers, discrepancies."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness.style import BLUE, GREY, RED, new_figure


def reliability_diagram(
    edges: np.ndarray, counts: np.ndarray, confidence: np.ndarray, accuracy: np.ndarray, *, ece: float
) -> Figure:
    """Accuracy per bin of confidence above how many inputs fall into each; arrays of `reliability_curve`.

    The last entry is the bin of confidence exactly 1; it is drawn with the bin below it.
    """
    counts, confidence, accuracy = (_join_last(part, counts) for part in (counts, confidence, accuracy))
    figure, (above, below) = new_figure(rows=2, width=4.6, height=2.8)
    centres, width = 0.5 * (edges[1:] + edges[:-1]), edges[1] - edges[0]
    filled = counts > 0
    above.plot([0, 1], [0, 1], "--", color=GREY, label="calibrated")
    above.bar(centres[filled], accuracy[filled], 0.94 * width, color=BLUE, alpha=0.5, label="accuracy")
    above.plot(confidence[filled], accuracy[filled], "o", color=RED, markersize=4, label="at mean confidence")
    above.set(title=f"ECE {100 * ece:.2f} %", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1.02))
    above.legend(frameon=False, loc="upper left")
    below.bar(centres, counts / counts.sum(), 0.94 * width, color=BLUE)
    below.set(xlabel="confidence", ylabel="share of inputs", xlim=(0, 1))
    return figure


def risk_coverage(curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Error among the most confident inputs against the share of them, one line per predictor."""
    figure, (panel,) = new_figure()
    for name, (coverage, risk) in curves.items():
        panel.plot(100 * np.asarray(coverage), 100 * np.asarray(risk), label=name)
    panel.set(xlabel="coverage, %", ylabel="error among the covered, %", xlim=(0, 100))
    panel.set_ylim(bottom=0)
    panel.legend(frameon=False)
    return figure


def score_histograms(
    in_scores: np.ndarray, out_scores: Mapping[str, np.ndarray], *, score: str, auroc: Mapping[str, float]
) -> Figure:
    """Scores of in-distribution inputs beside those of each other data set, one panel each."""
    figure, panels = new_figure(len(out_scores))
    for panel, (name, values) in zip(panels, out_scores.items(), strict=True):
        bins = np.histogram_bin_edges(np.concatenate([in_scores, values]), 50).tolist()
        for part, colour, label in ((in_scores, BLUE, "in-"), (values, RED, "out-of-")):
            panel.hist(part, bins, density=True, color=colour, alpha=0.6, label=f"{label}distribution")
        panel.set(title=f"{name}: AUROC {100 * auroc[name]:.1f} %", xlabel=score, ylabel="density")
        panel.legend(frameon=False)
    return figure


def interpolation_curves(
    weights: np.ndarray, loss: Mapping[str, np.ndarray], error: Mapping[str, np.ndarray]
) -> Figure:
    """Loss and error along the line between networks; rows are pairs, drawn as mean and one deviation."""
    figure, (left, right) = new_figure(2)
    _bands(left, weights, loss)
    left.set(xlabel="weight of the second network", ylabel="loss, nats")
    _bands(right, weights, {name: 100 * np.asarray(values) for name, values in error.items()})
    right.set(xlabel="weight of the second network", ylabel="error, %")
    left.legend(frameon=False)
    return figure


def discrepancy_matrix(names: Sequence[str], values: np.ndarray, *, title: str = "MMD²") -> Figure:
    """Discrepancy of every pair of posteriors as a labelled matrix; NaN is left blank."""
    side = 1.6 + 0.8 * len(names)
    figure, (panel,) = new_figure(width=side + 1.0, height=side)
    image = panel.imshow(np.ma.masked_invalid(values), cmap="Blues", vmin=min(0.0, np.nanmin(values)))
    largest = np.nanmax(np.abs(values))
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = "white" if value > 0.6 * largest else "black"
            panel.text(column, row, f"{value:.3g}", ha="center", va="center", color=colour, fontsize=8)
    panel.set_xticks(range(len(names)), names, rotation=45, ha="right")
    panel.set_yticks(range(len(names)), names)
    panel.spines[:].set_visible(False)
    panel.set_title(title)
    figure.colorbar(image, ax=panel, shrink=0.8)
    return figure


def _join_last(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The last two bins as one: counts add, means are averaged by them."""
    values, counts = np.asarray(values, float), np.asarray(counts, float)
    if np.array_equal(values, counts):
        return np.append(values[:-2], values[-2:].sum())
    total = np.nansum(values[-2:] * counts[-2:]) / max(counts[-2:].sum(), 1.0)
    return np.append(values[:-2], total)


def _bands(panel: Axes, weights: np.ndarray, curves: Mapping[str, np.ndarray]) -> None:
    for name, values in curves.items():
        rows = np.atleast_2d(values)
        mean, spread = rows.mean(0), rows.std(0)
        (line,) = panel.plot(weights, mean, marker="o", markersize=3.5, label=name)
        if len(rows) > 1:
            panel.fill_between(weights, mean - spread, mean + spread, color=line.get_color(), alpha=0.2)
