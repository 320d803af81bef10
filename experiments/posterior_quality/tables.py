"""Tables of the study of posterior quality."""

from typing import Any

import numpy as np

from experiments.harness.tables import Cell, Row, Table
from experiments.posterior_quality.results import HEADS, NAMES, NETWORKS, Results
from experiments.posterior_quality.scores import INSIDE, OUTSIDE, VERSIONS


def all_tables(results: Results) -> list[Table]:
    """The paper's table first; nothing on weights where these were not compared."""
    return [
        _quality_table(results),
        _outside_table(results),
        _gain_table(results),
        *(_discrepancy_table(results, reference) for reference in results.discrepancies),
        *(_layer_table(results, reference) for reference in results.discrepancies),
    ]


def _quality_table(results: Results) -> Table:
    def cells(entry: str) -> list[Cell]:
        known = entry in results.discrepancies.get(NETWORKS, {})
        gaps = [results.discrepancy(NETWORKS, entry, each).cell if known else Cell(None) for each in compared]
        return [*gaps, *(results.score(entry, name).cell for name in INSIDE)]

    compared = VERSIONS if results.discrepancies else ()
    weights = "MMD² to the reference networks in 10⁻², and " if compared else ""
    return Table(
        f"Posterior quality: {weights}predictions on test images; ± half the width of the 95 % bootstrap "
        "interval",
        [*(f"MMD², {version}" for version in compared), *(HEADS[name] for name in INSIDE)],
        [Row(results.label(entry), cells(entry), 2) for entry in results.entries()],
    )


def _outside_table(results: Results) -> Table:
    names = {f"{source}_{name}": f"{source}: {HEADS[name]}" for source in results.outside for name in OUTSIDE}
    return Table(
        "Out of distribution, by the largest probability; ± half the width of the 95 % bootstrap interval",
        list(names.values()),
        [
            Row(results.label(entry), [results.score(entry, name).cell for name in names], 1)
            for entry in results.entries()
        ],
    )


def _gain_table(results: Results) -> Table:
    names = ("accuracy", "brier", "nll", "ece")
    rows = [
        Row.of(results.name(method), (end for name in names for end in results.gain(method, name)), 2)
        for method in results.methods()
    ]
    heads = [f"{HEADS[name]}{end}" for name in names for end in ("", ", low", ", high")]
    return Table("Many modes minus one mode, with 95 % intervals over resampled test images", heads, rows)


def _discrepancy_table(results: Results, reference: str) -> Table:
    def numbers(entry: str, version: str) -> list[float]:
        place = reference, entry, version
        return [*results.discrepancy(*place), results.p_value(*place)]

    rows = [
        Row.of(results.label(entry), (number for each in VERSIONS for number in numbers(entry, each)), 3)
        for entry in results.compared(reference)
    ]
    heads = [
        f"{version}{end}" for version in VERSIONS for end in ("", ", low", ", high", ", p of equal laws")
    ]
    return Table(f"MMD² to the {NAMES[reference]}, 10⁻², with 95 % bootstrap intervals", heads, rows)


def _layer_table(results: Results, reference: str) -> Table:
    def cells(found: Any) -> list[Cell]:
        values = np.asarray(found["layers"], float).mean(axis=0)
        widths = np.ptp(np.asarray(found["layer_intervals"], float).mean(axis=0), axis=-1)
        return [Cell(float(v), float(0.5 * w)) for v, w in zip(values, widths, strict=True)]

    entries = results.discrepancies[reference]
    rows = [
        Row(results.label(entry), [cell for each in VERSIONS for cell in cells(entries[entry][each])], 2)
        for entry in results.compared(reference)
    ]
    heads = [f"{layer}, {version}" for version in VERSIONS for layer in results.layers]
    return Table(f"MMD² to the {NAMES[reference]} by layer, 10⁻²", heads, rows)
