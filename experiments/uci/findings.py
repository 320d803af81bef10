"""All tables together: who predicts best, what compact posteriors lose, and what may be said of it."""

import math
from collections.abc import Mapping

import numpy as np

from configs.uci import CHAINS
from experiments.harness.tables import Row, Table
from experiments.uci import compact, scores

Scores = Mapping[str, Mapping[str, Mapping[str, float]]]
"""By table, by method or law, by name of the number."""
MOST_LOST, LEAST_FEWER = 0.02, 50.0
"""What a compact posterior may lose of the NLL, in nats, and the times fewer numbers that it must be."""
PUBLISHED = {"airfoil": (0.1215, -0.9126), "bikesharing": (0.2261, -0.7315)}
"""RMSE and NLL of bde in the paper of its package, means of five runs."""


def nll_table(judged: Scores) -> Table:
    """A row for every table of data, a column for every method that ran on one of them."""
    methods = [method for method in scores.WORDS if any(method in each for each in judged.values())]
    rows = [
        Row.of(name, (scores.known(each.get(method, {}).get("nll")) for method in methods), 3)
        for name, each in judged.items()
    ]
    return Table("NLL, Gaussian", [scores.WORDS[method] for method in methods], rows)


def compact_table(laws: Scores) -> Table:
    """NLL of every law above that of the draws; a row for every table of data."""
    names = [name for name in next(iter(laws.values())) if name != compact.DRAWS]
    rows = [Row.of(name, (scores.known(each[law]["gap"]) for law in names), 3) for name, each in laws.items()]
    fewer = [f"{law} ({math.floor(min(each[law]['fewer'] for each in laws.values()))} x)" for law in names]
    title = "NLL of compact posteriors above that of the draws; in brackets, times fewer numbers, at least"
    return Table(title, fewer, rows)


def of_methods(judged: Scores) -> list[str]:
    """Which method is best where, which chains agree, and bde beside ours."""
    best = {name: _best(each) for name, each in judged.items()}
    counts = {
        method: sum(value == method for value in best.values()) for method in dict.fromkeys(best.values())
    }
    said = [
        "Least NLL of the Gaussian with the predictive moments: "
        + ", ".join(f"{scores.WORDS[method]} on {count} of {len(best)}" for method, count in counts.items())
        + "."
    ]
    agree = [
        _agreement(judged, method) for method in CHAINS if any(method in each for each in judged.values())
    ]
    if agree:
        said.append(
            "Rank R-hat in function space is at most 1.01 for 95 % of the quantities on "
            f"{', '.join(agree)}. Where it is larger, the chains stay apart and their draws are a mixture of "
            "what each has seen, not yet the posterior."
        )
    return said + [_beside(name, each) for name, each in judged.items() if scores.PEER in each]


def _agreement(judged: Scores, method: str) -> str:
    found = [each[method]["rhat_95"] for each in judged.values() if method in each]
    agree = sum(value <= 1.01 for value in found)
    return (
        f"{agree} of {len(found)} tables for {scores.WORDS[method]} (median over the tables "
        f"{np.median(found):.2f})"
    )


def of_laws(laws: Scores) -> list[str]:
    """Where a refined law keeps the NLL, and whether its controls do too."""
    said = []
    for law, controls in compact.CONTROLS.items():
        kept = [name for name, each in laws.items() if _keeps(each[law])]
        whole = sum(each[law]["mixture_gap"] <= MOST_LOST for each in laws.values())
        far = [name for name in kept if laws[name][law]["gap"] < -MOST_LOST]
        words = (
            f"{law[0].upper()}{law[1:]}: at most {MOST_LOST} nats above the draws' NLL at {LEAST_FEWER:.0f} "
            f"times fewer numbers or more on {len(kept)} of {len(laws)} tables"
            + (f" ({', '.join(kept)})" if kept else "")
            + (
                f", as far or further below it, so not near what draws predict, on {', '.join(far)}"
                if far
                else ""
            )
            + f"; by the NLL of the whole mixture of networks on {whole}"
        )
        also = [
            f"{control} on {sum(_keeps(each[control]) for each in laws.values())}" for control in controls
        ]
        said.append(f"{words}; its controls: {', '.join(also)}.")
    law, rival = compact.MIXTURE, compact.THINNED
    fewer = [
        sum(each[rival][gap] < each[law][gap] for each in laws.values()) for gap in ("gap", "mixture_gap")
    ]
    said.append(
        f"Evenly {rival}, as many numbers as the mixture, lose less than the {law} on {fewer[0]} of "
        f"{len(laws)} tables, by the NLL of the whole mixture of networks on {fewer[1]}"
        + (": there it is better to keep some draws than to fit a law." if any(fewer) else ".")
    )
    return said


def _keeps(law: Mapping[str, float]) -> bool:
    return law["gap"] <= MOST_LOST and law["fewer"] >= LEAST_FEWER


def _best(each: Mapping[str, Mapping[str, float]]) -> str:
    known = {
        method: column["nll"] for method, column in each.items() if scores.known(column["nll"]) is not None
    }
    return min(known, key=lambda method: known[method])


def _beside(name: str, each: Mapping[str, Mapping[str, float]]) -> str:
    theirs = each[scores.PEER]
    ours = each.get("mclmc")
    words = (
        f"{name}: bde has RMSE {theirs['rmse']:.4f} and NLL {theirs['nll']:.3f} after "
        f"{theirs['processor']:.0f} s of processor time"
    )
    if ours is not None:
        words += (
            f", our MCLMC {ours['rmse']:.4f} and {ours['nll']:.3f} after {ours['with_start']:.0f} s with its "
            "ensemble"
        )
    if name in PUBLISHED:
        words += f"; published are {PUBLISHED[name][0]:.4f} and {PUBLISHED[name][1]:.3f}, means of five runs"
    return words + "."
