"""Tables and words of the rate-distortion study."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from configs.rate_distortion import RateDistortion
from experiments.common.problem import Problem
from experiments.harness.tables import Cell, Row, Table
from experiments.rate_distortion.laws import (
    ALIGNED,
    GAUSSIAN,
    NETWORKS,
    RANDOM,
    RAW,
    REFINED,
    families,
    label,
)
from symbnn import diagnostics

BUDGETS = (10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
"""Bytes; a file may be a tenth larger, since its header is not part of the numbers."""
ROOM = 1.1
FLOOR = 200
"""Draws that stand for the limit, as in the other studies."""
STATES = {RAW: "raw", ALIGNED: "aligned", REFINED: "refined", RANDOM: "from a random start"}
MOST_RHAT, LEAST_ESS = 1.01, 400
"""Of chains that have converged, at 95 % and at the worst 5 % of the logits."""
Point = Mapping[str, Any]


def introduction(problem: Problem) -> list[str]:
    """What was done."""
    config, fits = problem.config, problem.config.fits
    bins = (
        []
        if problem.target.likelihood.has_labels
        else [f"Predictions are masses of {config.num_bins} bins of the standardised target."]
    )
    count = config.inference.num_chains * config.inference.num_samples
    some = f" {config.num_fitted:,} of" if count > config.num_fitted else ""
    spaced = ", evenly spaced" if some else ""
    return [
        f"{problem.data.name}: {problem.target.num_data} training and {len(problem.labels)} test examples; "
        f"network {problem.sizes}; HMC: {config.inference.num_chains} chains of "
        f"{config.inference.num_samples} draws. Every law was written to a file, read back and judged by the "
        "total variation (TV) between its predictions and those of all draws on the test examples; laws by "
        f"{config.num_draws} networks drawn from them, mean over {config.num_draw_seeds} sets; kept draws as "
        f"they are, mean over {config.sizes.num_subsets} choices.",
        f"Raw laws are fitted to{some} the draws as they are{spaced}, aligned ones to the draws relabelled "
        "to fit their mean; refined ones start there and are fitted to HMC's predictions on training "
        f"examples and, for each of them, {fits.mixed} points between two with noise, which count as much as "
        "the examples. The control starts from untrained networks. The recipe of every fit is the best of "
        "its candidates on training examples that no fit saw.",
        *bins,
    ]


def of_chains(found: diagnostics.Summary) -> str:
    """Whether what everything is compared with has converged."""
    is_good = found.rhat_95 <= MOST_RHAT and found.low_ess >= LEAST_ESS
    return (
        f"HMC's chains {'agree' if is_good else 'have NOT converged'} in function space: rank R-hat "
        f"{found.rhat_95:.3f} at 95 %, effective size {found.low_ess:.0f} at the worst 5 %."
    )


def law_table(config: RateDistortion, points: Sequence[Point]) -> Table:
    """A row for every law: TV of its states, and refined in smaller formats."""
    small = [form for form in config.sizes.formats if form != config.sizes.formats[0]]
    base = config.sizes.formats[0]
    columns = [f"kB, {base}", *(f"TV, {words}" for words in STATES.values())]
    columns += [f"{what}, refined, {form}" for form in small for what in ("kB", "TV")]
    rows = []
    for family, size in families(config):
        cells = [_cell(points, REFINED, family, size, base, "bytes")]
        cells += [_cell(points, state, family, size, base, "distance") for state in STATES]
        cells += [
            _cell(points, REFINED, family, size, form, what)
            for form in small
            for what in ("bytes", "distance")
        ]
        rows.append(Row(label(family, size), cells, 4))
    return Table("Laws: total variation to all HMC draws, and size on disk", columns, rows)


def network_table(config: RateDistortion, points: Sequence[Point]) -> Table:
    """A row for every number of kept draws."""
    forms = config.sizes.formats
    columns = [f"{what}, {form}" for form in forms for what in ("kB", "TV")]
    columns += [f"TV refined, {form}" for form in forms] + [f"TV {STATES[RANDOM]}, {forms[0]}"]
    rows = []
    for size in sorted({*config.sizes.networks, *config.sizes.refined_networks}):
        cells = [
            _cell(points, RAW, NETWORKS, size, form, what) for form in forms for what in ("bytes", "distance")
        ]
        cells += [_cell(points, REFINED, NETWORKS, size, form, "distance") for form in forms]
        cells.append(_cell(points, RANDOM, NETWORKS, size, forms[0], "distance"))
        rows.append(Row(f"{size} networks", cells, 4))
    return Table("Kept HMC draws, as they are and refined together", columns, rows)


def best_table(points: Sequence[Point]) -> Table:
    """At every size the least TV of each family."""
    kinds = {"HMC draws": (RAW, NETWORKS), "HMC draws, refined": (REFINED, NETWORKS)}
    kinds |= {f"{family}, refined": (REFINED, family) for family in _laws(points)}
    rows = [
        Row.of(words, (best(points, state, family, budget) for budget in BUDGETS), 4)
        for words, (state, family) in kinds.items()
    ]
    title = "The least TV at a size on disk, in the best format (a tenth more is let pass)"
    return Table(title, [f"{budget // 1000} kB" for budget in BUDGETS], rows)


def recipe_table(fits: Mapping[str, Mapping[str, Any]]) -> Table:
    """What was chosen for every fit, and how far it went from its start."""
    rows = [
        Row.of(
            f"{name}, {STATES[state]}",
            (float(fit[part]) for part in ("validation", "shrink", "rate", "std_ratio")),
            4,
        )
        for state, made in fits.items()
        for name, fit in made.items()
    ]
    columns = ("TV, held-out examples", "share of std at the start", "learning rate", "std, over the start's")
    return Table("Recipes that were chosen on held-out training examples", columns, rows)


def findings(points: Sequence[Point]) -> list[str]:
    """Who wins at which size, and what alignment and refinement are worth in draws."""
    form = points[0]["format"]
    found = [said for budget in (20_000, 100_000) for said in _winner(points, budget)]
    found += _where_draws_win(points)
    floor = _mean(points, RAW, NETWORKS, FLOOR, form)
    if floor is not None:
        near = [p for p in points if p["state"] == REFINED and np.mean(p["distance"]) <= 2 * floor]
        least = min(near, key=lambda point: point["bytes"], default=None)
        smallest = "No refined law comes within twice that."
        if least is not None:
            smallest = (
                f"Within twice that, the smallest refined file is {label(least['family'], least['size'])} in "
                f"{least['format']}: {int(least['bytes']):,} bytes, TV {np.mean(least['distance']):.4f}."
            )
        found.append(f"{FLOOR} draws have TV {floor:.4f}. {smallest}")
    for state in (ALIGNED, REFINED):
        tv = _mean(points, state, GAUSSIAN, 1, form)
        if tv is not None:
            found.append(f"The {STATES[state]} Gaussian (TV {tv:.4f}) is worth {_worth(points, tv)}.")
    controls = _controls(points)
    better = [name for name, ours, control in controls if control < ours]
    if controls:
        found.append(
            "The same fit from untrained networks is nearer to HMC than from the aligned law or the draws in "
            f"{len(better)} of {len(controls)} cases{': ' + ', '.join(better) if better else ''}."
        )
    return found


def _winner(points: Sequence[Point], budget: int) -> list[str]:
    """The nearest fit in files of that size beside kept draws; nothing where either is missing."""
    kept = best(points, RAW, NETWORKS, budget)
    fitted = {f"a refined {family}": best(points, REFINED, family, budget) for family in _laws(points)}
    fitted["refined draws"] = best(points, REFINED, NETWORKS, budget)
    known = {name: value for name, value in fitted.items() if value is not None}
    if kept is None or not known:
        return []
    name, value = min(known.items(), key=lambda item: item[1])
    verdict = "nearer to HMC than" if value < kept else "farther from HMC than"
    return [
        f"In {budget // 1000} kB {name} has TV {value:.4f}, {verdict} kept draws in as much ({kept:.4f})."
    ]


def _where_draws_win(points: Sequence[Point]) -> list[str]:
    """The size from which kept draws are nearer than every fit in as many bytes; nothing without both."""
    fits = [point for point in points if point["state"] == REFINED]
    kept = [point for point in points if point["state"] == RAW and point["family"] == NETWORKS]
    if not fits or not kept:
        return []

    def least(some: Sequence[Point], most: float) -> float:
        return min(
            (float(np.mean(each["distance"])) for each in some if each["bytes"] <= most), default=np.inf
        )

    files = sorted(int(point["bytes"]) for point in kept)
    lost = max((size for size in files if least(fits, ROOM * size) <= least(kept, size)), default=0)
    sizes = [size for size in files if size > lost]
    if not sizes:
        return ["At every size some refined law or refined draws are at least as near to HMC as kept draws."]
    return [f"From {min(sizes):,} bytes on, kept draws are nearer to HMC than everything refined in as much."]


def best(points: Sequence[Point], state: str, family: str, budget: int) -> float | None:
    """The least TV of a kind of law in files up to a size; None if there is none."""
    fitting = [
        float(np.mean(point["distance"]))
        for point in points
        if point["state"] == state and point["family"] == family and point["bytes"] <= ROOM * budget
    ]
    return min(fitting, default=None)


def _worth(points: Sequence[Point], value: float) -> str:
    """How many draws have that TV, between the sizes that were measured, on logarithmic axes."""
    measured = sorted(
        (point["size"], float(np.mean(point["distance"])))
        for point in points
        if point["state"] == RAW and point["family"] == NETWORKS and point["format"] == points[0]["format"]
    )
    sizes, distances = (np.log(np.array(each)) for each in zip(*measured, strict=True))
    if np.log(value) > distances[0]:
        return "less than one draw"
    if np.log(value) < distances[-1]:
        return f"more than {measured[-1][0]} draws"
    return f"{np.exp(np.interp(-np.log(value), -distances, sizes)):.0f} draws"


def _controls(points: Sequence[Point]) -> list[tuple[str, float, float]]:
    """Name, TV refined and TV from a random start, of every law that has both, in the first format."""
    form, found = points[0]["format"], []
    for point in points:
        control = _mean(points, RANDOM, point["family"], point["size"], form)
        if (point["state"], point["format"]) == (REFINED, form) and control is not None:
            found.append((label(point["family"], point["size"]), float(np.mean(point["distance"])), control))
    return found


def _laws(points: Sequence[Point]) -> list[str]:
    """The families but that of kept networks."""
    return list(dict.fromkeys(point["family"] for point in points if point["family"] != NETWORKS))


def _mean(points: Sequence[Point], state: str, family: str, size: int, form: str) -> float | None:
    return _cell(points, state, family, size, form, "distance").value


def _cell(points: Sequence[Point], state: str, family: str, size: int, form: str, what: str) -> Cell:
    for point in points:
        if (point["state"], point["family"], point["size"], point["format"]) == (state, family, size, form):
            return Cell(point[what] / 1000) if what == "bytes" else Cell.over(point[what])
    return Cell(None)
