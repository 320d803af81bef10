"""Tables of weight sharing: quality, size, out of distribution, variants."""

from collections.abc import Sequence
from typing import Any

from experiments.common.problem import Problem
from experiments.harness.tables import Cell, Row, Table
from experiments.weight_sharing.contenders import TRAINED, UNTRAINED, num_kernels
from experiments.weight_sharing.scores import Scores
from symbnn import sharing
from symbnn.sharing import SharedWeights

PAPER = "paper's 2DGBNN"
ROWS = {
    "outliers": ("outliers", 0),
    "ellipses": ("ellipses", 0),
    "gaussians": ("Gaussians", 0),
    "accuracy": ("accuracy", 4),
    "nll": ("NLL", 4),
    "ece": ("ECE", 4),
    "single_mean": ("accuracy of one draw, mean", 4),
    "single_worst": ("accuracy of one draw, worst", 4),
    "agreement": ("agreement with the reference", 4),
    "total_variation": ("total variation to the reference", 4),
    "bytes": ("bytes of its file", 0),
}


def columns_of(scored: Sequence[dict[str, Scores]]) -> list[str]:
    """Every column that some seed has; the first seed has all, in order."""
    return list(scored[0])


def main_table(problem: Problem, scored: Sequence[dict[str, Scores]]) -> Table:
    """Every column, mean and spread over seeds; the paper's own numbers beside them."""
    names = columns_of(scored)
    config = problem.config
    # The paper knows neither data nor network of the user.
    is_brought = problem.is_own or config.data.npz is not None
    has_paper = config.published.accuracy is not None and not is_brought
    rows = []
    for name, (words, decimals) in ROWS.items():
        cells = [_over(scored, column, name) for column in names]
        if has_paper:
            value = getattr(config.published, name, None)
            cells.append(Cell(None if value is None else float(value)))
        if any(cell.value is not None for cell in cells):
            rows.append(Row(words, tuple(cells), decimals))
    seeds = f"mean ± standard deviation over {len(scored)} seeds" if len(scored) > 1 else "one seed"
    fewer = [name for name in names if any(name not in each for each in scored)]
    if fewer:
        num = sum(fewer[0] in each for each in scored)
        seeds += f" ({num} for {', '.join(fewer)})"
    judged = "held-out training" if config.judging.holdout else "test"
    return Table(
        f"{problem.data.name}, {problem.network}: {judged} images, {config.judging.num_draws} draws, {seeds}",
        (*names, PAPER) if has_paper else tuple(names),
        tuple(rows),
    )


def _over(scored: Sequence[dict[str, Scores]], column: str, name: str) -> Cell:
    return Cell.over([each[column][name] for each in scored if name in each.get(column, {})])


def size_table(problem: Problem, shared: SharedWeights, scored: dict[str, Scores]) -> Table:
    """Sizes of the first seed: the paper's count, and bytes of all files."""
    size = sharing.size_of(shared)
    num = num_kernels(problem)
    counts = {
        "numbers of a deterministic network (n)": num,
        "numbers of mean field (2n)": 2 * num,
        "paper's count: outliers + ellipses + 2 Gaussians": size.paper_count,
        "the same with two numbers per ellipse": size.paper_count_blended,
    }
    in_bytes = {
        "bytes of float32 weights": size.weight_bytes,
        "bytes of float32 (mean, std) pairs": size.pair_bytes,
        "bytes of 2DGBNN with labels of whole bytes": size.bytes,
        "bytes of 2DGBNN with ideally coded labels, all else as it is": size.entropy_coded_bytes,
        **{f"file of {name}": int(each["bytes"]) for name, each in scored.items()},
    }
    rows = [
        Row(f"{words}: {value:,}", (Cell(weights / value), Cell(pairs / value)), 1)
        for each, weights, pairs in (
            (counts, num, 2 * num),
            (in_bytes, size.weight_bytes, size.pair_bytes),
        )
        for words, value in each.items()
    ]
    columns = ("times smaller than deterministic", "times smaller than mean field")
    return Table("Size, first seed; the paper counts neither labels nor covariances", columns, tuple(rows))


def outside_table(scored: Sequence[dict[str, Scores]]) -> Table:
    """AUROC against every other data set, by every score; then the paper's numbers."""
    names = columns_of(scored)
    rows = []
    for data, found in scored[0][TRAINED]["outside"].items():
        for score in found["auroc"]:
            cells = [_outside(scored, column, data, "auroc", score) for column in names]
            rows.append(Row(f"{data}: AUROC by {score}", cells))
        for score, words in (("aupr", "AUPR"), ("fpr85", "FPR at 85 % TPR")):
            cells = [_outside(scored, column, data, score) for column in names]
            rows.append(Row(f"{data}: {words} by largest probability", cells))
    return Table(
        "Out of distribution (AUPR and FPR: positives are inside, as in the paper)", tuple(names), rows
    )


def _outside(scored: Sequence[dict[str, Scores]], column: str, data: str, *path: str) -> Cell:
    values = []
    for each in scored:
        if "outside" not in each.get(column, {}):
            continue
        if path[-1] == "mutual information" and "single_mean" not in each[column]:
            # One network does not disagree with itself.
            continue
        found: Any = each[column]["outside"][data]
        for name in path:
            found = found[name]
        values.append(found)
    return Cell.over(values)


def count_table(problem: Problem, base: dict[str, Scores], counts: dict[str, Any]) -> Table:
    """What settings do to the numbers of outliers, ellipse weights and Gaussians; the paper's beside them."""
    published, pairs = problem.config.published, 2 * num_kernels(problem)
    found: dict[str, Any] = {"as above": base[TRAINED], **counts}
    if published.outliers is not None and published.ellipses is not None and published.gaussians is not None:
        own = (published.outliers, published.ellipses, published.gaussians)
        numbers = own[0] + own[1] + 2 * own[2]
        found[PAPER] = dict(zip(("outliers", "ellipses", "gaussians"), own, strict=True)) | {
            "numbers": numbers
        }
    names = ("outliers", "ellipses", "gaussians", "numbers")
    rows = [
        Row.of(
            words,
            (
                *(each[name] for name in names),
                pairs / float(each["numbers"]),
                float(each["bytes"]) / 1e3 if "bytes" in each else None,
            ),
            0,
        )
        for words, each in found.items()
    ]
    columns = (
        "outliers",
        "ellipses",
        "Gaussians",
        "numbers",
        "times fewer than mean field",
        "kB of its file",
    )
    return Table("Counts before Stage 3, one change of settings each, first seed", columns, rows)


def variant_table(base: dict[str, Scores], changes: dict[str, Any]) -> Table:
    """One row per change of settings, with the standard errors of its differences."""
    names = ("accuracy", "nll", "ece", "single_mean", "single_worst")

    def row(words: str, before: Scores | None, after: Scores, apart: Scores | None) -> Row:
        counts = "/".join(str(int(after[name])) for name in ("outliers", "ellipses", "gaussians"))
        cells = [
            Cell(None if before is None else float(before["nll"])),
            *(Cell(float(after[name])) for name in names),
            *(_with_error(apart, name, scale) for name, scale in (("accuracy", 100.0), ("nll", 1.0))),
        ]
        cells.append(Cell(float(after["bytes"]) / 1e3))
        return Row(f"{words} ({counts})", tuple(cells))

    rows = [row("as above", base.get(UNTRAINED), base[TRAINED], None)]
    rows += [row(name, each["before"], each["after"], each["difference"]) for name, each in changes.items()]
    columns = (
        "NLL before Stage 3",
        *(ROWS[name][0] for name in names),
        "points of accuracy above the first row",
        "NLL above the first row",
        "kB of its file",
    )
    title = (
        "One change of settings each, first seed (outliers/ellipses/Gaussians); differences ± their standard "
        "error over the test examples"
    )
    return Table(title, columns, tuple(rows))


def _with_error(apart: Scores | None, name: str, scale: float) -> Cell:
    if apart is None:
        return Cell(None)
    return Cell(scale * float(apart[name]), scale * float(apart[f"{name}_error"]))
