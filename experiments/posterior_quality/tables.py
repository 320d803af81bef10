"""Tables of the study of posterior quality."""

import numpy as np

from experiments.harness.tables import Cell, Row, Table
from experiments.posterior_quality.results import HEADS, NAMES, NETWORKS, Results
from experiments.posterior_quality.scores import INSIDE, OUTSIDE, VERSIONS


def all_tables(results: Results) -> list[Table]:
    """The paper's table first."""
    return [
        _quality_table(results),
        _outside_table(results),
        _gain_table(results),
        *(_discrepancy_table(results, reference) for reference in results.discrepancies),
        *(_layer_table(results, reference) for reference in results.discrepancies),
    ]


def _quality_table(results: Results) -> Table:
    rows = []
    for entry in results.entries():
        known = entry in results.discrepancies[NETWORKS]
        gaps = [
            results.discrepancy(NETWORKS, entry, version).cell if known else Cell(None)
            for version in VERSIONS
        ]
        rows.append(
            Row(results.label(entry), (*gaps, *(results.score(entry, name).cell for name in INSIDE)), 2)
        )
    return Table(
        "Posterior quality: MMD² to the reference networks in 10⁻², and predictions on test images; ± half "
        "the width of the 95 % bootstrap interval",
        (*(f"MMD², {version}" for version in VERSIONS), *(HEADS[name] for name in INSIDE)),
        tuple(rows),
    )


def _outside_table(results: Results) -> Table:
    pairs = [(source, name) for source in results.outside for name in OUTSIDE]
    rows = tuple(
        Row(
            results.label(entry),
            tuple(results.score(entry, f"{source}_{name}").cell for source, name in pairs),
            1,
        )
        for entry in results.entries()
    )
    return Table(
        "Out of distribution, by the largest probability; ± half the width of the 95 % bootstrap interval",
        tuple(f"{source}: {HEADS[name]}" for source, name in pairs),
        rows,
    )


def _gain_table(results: Results) -> Table:
    names = ("accuracy", "brier", "nll", "ece")
    rows = tuple(
        Row.of(NAMES[method], (end for name in names for end in results.gain(method, name)), 2)
        for method in results.methods()
    )
    heads = tuple(f"{HEADS[name]}{end}" for name in names for end in ("", ", low", ", high"))
    return Table("Many modes minus one mode, with 95 % intervals over resampled test images", heads, rows)


def _discrepancy_table(results: Results, reference: str) -> Table:
    rows = []
    for entry in results.compared(reference):
        numbers = [
            number
            for version in VERSIONS
            for number in (
                *results.discrepancy(reference, entry, version),
                results.p_value(reference, entry, version),
            )
        ]
        rows.append(Row.of(results.label(entry), numbers, 3))
    heads = tuple(
        f"{version}{end}" for version in VERSIONS for end in ("", ", low", ", high", ", p of equal laws")
    )
    return Table(f"MMD² to the {NAMES[reference]}, 10⁻², with 95 % bootstrap intervals", heads, tuple(rows))


def _layer_table(results: Results, reference: str) -> Table:
    rows = []
    for entry in results.compared(reference):
        found = results.discrepancies[reference][entry]
        cells = []
        for version in VERSIONS:
            values = np.asarray(found[version]["layers"], float).mean(axis=0)
            widths = np.ptp(np.asarray(found[version]["layer_intervals"], float).mean(axis=0), axis=-1)
            cells += [Cell(float(v), float(0.5 * w)) for v, w in zip(values, widths, strict=True)]
        rows.append(Row(results.label(entry), tuple(cells), 2))
    heads = tuple(f"{layer}, {version}" for version in VERSIONS for layer in results.layers)
    return Table(f"MMD² to the {NAMES[reference]} by layer, 10⁻²", heads, tuple(rows))
