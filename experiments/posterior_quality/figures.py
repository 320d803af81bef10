"""Figures of posterior quality: discrepancies with intervals, predictions against discrepancy."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.posterior_quality.results import (
    CHAINS,
    ENSEMBLE,
    HEADS,
    MANY,
    NAMES,
    NETWORKS,
    ONE,
    SINGLE,
    Results,
)
from experiments.posterior_quality.scores import ALIGNED, RAW, SORTED, VERSIONS
from symbnn.plot.style import BLUE, GREY, PALETTE, RED, new_figure

COLOURS = {RAW: GREY, SORTED: BLUE, ALIGNED: RED}


def discrepancy_panels(results: Results) -> Figure:
    """MMD² of every method before and after symmetries are removed, one panel for each reference."""
    references = list(results.discrepancies)
    entries = [entry for entry in results.entries() if entry != NETWORKS]
    figure, panels = new_figure(len(references), width=6.0, height=1.4 + 0.33 * len(entries))
    for panel, reference in zip(panels, references, strict=True):
        _draw_discrepancies(panel, results, reference, entries)
    panels[0].legend(frameon=False, loc="lower right")
    return figure


def _draw_discrepancies(panel: Axes, results: Results, reference: str, entries: list[str]) -> None:
    for shift, version in zip((-0.22, 0.0, 0.22), VERSIONS, strict=True):
        known = [
            (place, results.discrepancy(reference, entry, version))
            for place, entry in enumerate(entries)
            if entry in results.discrepancies[reference]
        ]
        values = np.array([found.value for _, found in known])
        ends = np.array([[found.low, found.high] for _, found in known]).T
        # A percentile interval need not hold the estimate.
        errors = np.maximum([values - ends[0], ends[1] - values], 0.0)
        panel.errorbar(
            values,
            np.array([place for place, _ in known]) + shift,
            xerr=errors,
            fmt="o",
            markersize=4,
            color=COLOURS[version],
            label=version,
            linewidth=1.2,
        )
    panel.axvline(0.0, color=GREY, linewidth=0.8, linestyle=":")
    panel.set_yticks(range(len(entries)), [results.label(entry) for entry in entries])
    panel.set(xlabel=f"MMD² to the {NAMES[reference]}, 10⁻²", ylim=(len(entries) - 0.4, -0.6))


def version_panels(results: Results) -> Figure:
    """Scores of every method with one mode and with many, and lines for one network and the ensemble."""
    names = {name: HEADS[name] for name in ("accuracy", "nll", "ece")} | {
        f"{source}_auroc": f"AUROC ({source}), %" for source in results.outside
    }
    found = results.methods()
    figure, panels = new_figure(len(names), width=3.6, height=1.4 + 0.4 * len(found))
    for panel, (name, label) in zip(panels, names.items(), strict=True):
        for shift, version, colour in ((-0.14, ONE, BLUE), (0.14, MANY, RED)):
            scores = [results.score(f"{method}_{version}", name) for method in found]
            panel.errorbar(
                [score.value for score in scores],
                np.arange(len(found)) + shift,
                xerr=np.maximum([[s.value - s.low for s in scores], [s.high - s.value for s in scores]], 0.0),
                fmt="o",
                markersize=4,
                color=colour,
                label={ONE: "one mode", MANY: f"{results.num_modes} modes"}[version],
                linewidth=1.2,
            )
        for entry, style in ((SINGLE, ":"), (ENSEMBLE, "--")):
            level = results.score(entry, name).value
            panel.axvline(level, color=GREY, linestyle=style, linewidth=1.0, label=results.label(entry))
        panel.set_yticks(range(len(found)), [results.name(method) for method in found])
        panel.set(xlabel=label, ylim=(len(found) - 0.4, -0.6))
    figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=4)
    return figure


def prediction_panels(results: Results) -> Figure:
    """Accuracy, and AUROC for every source out of distribution, against MMD² raw and aligned."""
    names = {"accuracy": "accuracy, %"} | {
        f"{source}_auroc": f"AUROC ({source}), %" for source in results.outside
    }
    figure, panels = new_figure(len(names), 2, width=4.2, height=3.3)
    for row, version in enumerate((RAW, ALIGNED)):
        for column, (name, label) in enumerate(names.items()):
            panel = panels[row * len(names) + column]
            _draw_predictions(panel, results, version, name)
            panel.set(xlabel=f"MMD², {version}, 10⁻²", ylabel=label)
    legend = panels[0].get_legend_handles_labels()
    figure.legend(*legend, frameon=False, loc="outside right center", fontsize=8)
    return figure


def _draw_predictions(panel: Axes, results: Results, version: str, name: str) -> None:
    """Hollow for one mode, filled for many."""
    looks: dict[str, tuple[str, str, str]] = {}
    for method, colour in zip(results.methods(), PALETTE, strict=False):
        looks |= {f"{method}_{ONE}": (colour, "white", "o"), f"{method}_{MANY}": (colour, colour, "o")}
    looks |= {ENSEMBLE: ("black", "black", "*"), CHAINS: ("black", "black", "s")}
    for entry, (colour, face, marker) in looks.items():
        if entry not in results.discrepancies[NETWORKS]:
            continue
        gap, score = results.discrepancy(NETWORKS, entry, version), results.score(entry, name)
        panel.errorbar(
            [gap.value],
            [score.value],
            yerr=[[max(score.value - score.low, 0.0)], [max(score.high - score.value, 0.0)]],
            fmt=marker,
            color=colour,
            markerfacecolor=face,
            markersize=8 if marker == "*" else 6,
            linewidth=0.8,
            label=results.label(entry),
        )
