"""Numbers and tables of weight sharing."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.problem import Problem
from experiments.harness.tables import Cell, Row, Table
from experiments.weight_sharing.stages import kernels
from symbnn import evaluate, keys, sharing, tree
from symbnn.data import Streamed
from symbnn.sharing import SharedWeights, Stochastic
from symbnn.types import Params

Scores = dict[str, Any]
DETERMINISTIC, STOCHASTIC, MEAN_FIELD = "deterministic", "stochastic", "mean-field VI"
UNTRAINED, TRAINED, PAPER = "2DGBNN, untrained", "2DGBNN", "paper's 2DGBNN"
ROWS = {
    "outliers": ("outliers", 0),
    "ellipses": ("ellipses", 0),
    "gaussians": ("Gaussians", 0),
    "accuracy": ("accuracy", 4),
    "nll": ("NLL", 4),
    "ece": ("ECE", 4),
    "single_mean": ("accuracy of one draw, mean", 4),
    "single_worst": ("accuracy of one draw, worst", 4),
    "auroc": ("AUROC against other data", 4),
    "aupr": ("AUPR against other data", 4),
    "fpr85": ("FPR at 85 % TPR against other data", 4),
}


def columns(
    problem: Problem,
    network: Params,
    stochastic: Stochastic,
    before: SharedWeights,
    after: SharedWeights,
    mean_field: Stochastic | None,
) -> dict[str, Scores]:
    """Scores by column."""
    posteriors: dict[str, Any] = {DETERMINISTIC: network, STOCHASTIC: stochastic.posterior()}
    if mean_field is not None:
        posteriors[MEAN_FIELD] = mean_field.posterior()
    posteriors |= {UNTRAINED: before, TRAINED: after}
    source = problem.config.judging.outside
    outside = None if source is None else problem.outside(source)
    return {name: scores(problem, each, outside) for name, each in posteriors.items()}


def scores(problem: Problem, posterior: Any, outside: Any = None) -> Scores:
    """Accuracy, NLL and ECE of the mean prediction, accuracy of single draws, counts, OOD scores."""
    labels = problem.labels
    probs, singles = _predict(problem, posterior, problem.inputs, labels)
    found = {
        "accuracy": evaluate.accuracy(probs, labels),
        "nll": evaluate.nll(probs, labels),
        "ece": evaluate.ece(probs, labels),
    }
    if len(singles) > 1:
        found |= {"single_mean": np.mean(singles), "single_worst": np.min(singles)}
    if isinstance(posterior, SharedWeights):
        size = sharing.size_of(posterior)
        found |= {
            "outliers": size.num_outliers,
            "ellipses": size.num_ellipses,
            "gaussians": size.num_components,
        }
    if outside is not None:
        # The paper's positives are in-distribution inputs, scored by their largest probability.
        inside = -evaluate.max_probability_score(probs)
        other = -evaluate.max_probability_score(_predict(problem, posterior, outside)[0])
        found |= {
            "auroc": evaluate.auroc(other, inside),
            "aupr": evaluate.aupr(other, inside),
            "fpr85": evaluate.fpr_at(other, inside, recall=0.85),
        }
    return {name: np.asarray(value, np.float64) for name, value in found.items()}


def _predict(
    problem: Problem, posterior: Any, inputs: Any, labels: Any = None
) -> tuple[jax.Array, list[float]]:
    """Mean probabilities over draws, and the accuracy of each draw if there are labels.

    A bare network is one draw. Only the sum is kept, so memory does not grow with the number of draws; inputs
    on disk are read once, block by block.
    """
    apply = problem.model.apply
    blocks = inputs.blocks() if isinstance(inputs, Streamed) else [inputs]
    if not hasattr(posterior, "sample"):
        network = tree.stack([posterior])
        return jnp.concatenate([evaluate.predict(apply, network, block) for block in blocks]), []
    num = problem.config.judging.num_draws
    means, num_right, done = [], np.zeros(num), 0
    for block in blocks:
        total: Any = 0.0
        for draw, key in enumerate(keys.indexed(keys.named(problem.key, "draws"), 0, num)):
            probs = evaluate.predict(apply, _draw(posterior, key), block)
            total = total + probs
            if labels is not None:
                right = evaluate.accuracy(probs, labels[done : done + len(block)])
                num_right[draw] += len(block) * float(right)
        means.append(total / num)
        done += len(block)
    return jnp.concatenate(means), [] if labels is None else list(num_right / done)


@jax.jit
def _draw(posterior: Any, key: jax.Array) -> Any:
    return posterior.sample(key, 1)


def main_table(problem: Problem, scored: list[dict[str, Scores]]) -> Table:
    """Every column, mean and spread over seeds; the paper's own numbers beside them."""
    names = list(scored[0])
    config = problem.config
    # The paper knows neither data nor network of the user.
    is_brought = problem.is_own or config.data.npz is not None
    has_paper = config.published.accuracy is not None and not is_brought
    rows = []
    for name, (words, decimals) in ROWS.items():
        cells = [
            Cell.over([each[column][name] for each in scored if name in each[column]]) for column in names
        ]
        if has_paper:
            value = getattr(config.published, name, None)
            cells.append(Cell(None if value is None else float(value)))
        if any(cell.value is not None for cell in cells):
            rows.append(Row(words, tuple(cells), decimals))
    seeds = f"mean ± standard deviation over {len(scored)} seeds" if len(scored) > 1 else "one seed"
    judged = "held-out training" if config.judging.holdout else "test"
    return Table(
        f"{problem.data.name}, {problem.network}: {judged} images, {config.judging.num_draws} draws, {seeds}",
        (*names, PAPER) if has_paper else tuple(names),
        tuple(rows),
    )


def size_table(shared: SharedWeights, file_bytes: int) -> Table:
    """Sizes of the first seed: the paper's count, and bytes."""
    size = sharing.size_of(shared)
    num = size.num_weights
    counts = {
        "numbers of a deterministic network (n)": num,
        "numbers of mean field (2n)": 2 * num,
        "paper's count: outliers + ellipses + 2 Gaussians": size.paper_count,
        "the same with two numbers per ellipse": size.paper_count_blended,
    }
    in_bytes = {
        "bytes of float32 weights": size.weight_bytes,
        "bytes of float32 (mean, std) pairs": size.pair_bytes,
        "bytes of the file": file_bytes,
        "bytes without its header": size.bytes,
        "bytes with entropy-coded labels (ideal coder)": size.entropy_coded_bytes,
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


def variant_table(base: dict[str, Scores], changes: dict[str, Any]) -> Table:
    """One row per change of settings."""
    names = ("accuracy", "nll", "ece", "single_mean", "single_worst")

    def row(words: str, before: Scores, after: Scores) -> Row:
        counts = "/".join(str(int(after[name])) for name in ("outliers", "ellipses", "gaussians"))
        cells = [Cell(float(before["nll"])), *(Cell(float(after[name])) for name in names)]
        return Row(f"{words} ({counts})", tuple(cells))

    rows = [row("as above", base[UNTRAINED], base[TRAINED])]
    rows += [row(name, each["before"], each["after"]) for name, each in changes.items()]
    columns = ("NLL before Stage 3", *(ROWS[name][0] for name in names))
    title = "One change of settings each, first seed (outliers/ellipses/Gaussians)"
    return Table(title, columns, tuple(rows))


def findings(scored: list[dict[str, Scores]], changes: dict[str, Any], num_judged: int) -> list[str]:
    """Sentences from the numbers: what sharing cost, and where ablations disagree with the paper."""
    accuracy, nll, ece = (
        [np.mean([each[column][name] for each in scored]) for column in (DETERMINISTIC, TRAINED)]
        for name in ("accuracy", "nll", "ece")
    )
    said = [
        "Against the deterministic network, shared weights change accuracy by "
        f"{100 * (accuracy[1] - accuracy[0]):+.2f} points, NLL by a factor of {nll[1] / nll[0]:.2f} and ECE "
        f"by {ece[1] - ece[0]:+.4f}."
    ]
    if nll[1] < nll[0]:
        said[0] += (
            " Stage 3 also trains longer, and without the weight decay of the deterministic network, so the "
            "better NLL is not due to sharing alone."
        )
    if MEAN_FIELD in scored[0]:
        said.append("Mean-field VI has the full KL to the same narrow prior and no setting tuned for it.")
    base = scored[0][TRAINED]
    error = 100 * np.sqrt(base["accuracy"] * (1 - base["accuracy"]) / num_judged)
    for name in ("no ellipses", "no outliers", "neither"):
        if name in changes:
            after = changes[name]["after"]
            gain = 100 * float(after["accuracy"] - base["accuracy"])
            factor = float(after["nll"] / base["nll"])
            if abs(gain) < 2 * error:
                word = f"no difference beyond the noise of one seed (standard error {error:.2f} points)"
            else:
                word = "a loss as in the paper" if gain < 0 else "a gain"
            said.append(
                f"{name.capitalize()}: accuracy {gain:+.2f} points, NLL {factor:.2f} times: {word}. "
                "The paper's Table 5 reports a loss of accuracy."
            )
    return said


def introduction(problem: Problem) -> list[str]:
    """What was done, for the report."""
    layout = sharing.layout_of(problem.shapes, select=kernels(problem))
    return [
        f"{problem.data.name}: {problem.target.num_data:,} training and {len(problem.labels):,} judged "
        f"examples; {problem.network} with {layout.num_weights:,} shared kernel weights.",
        "Stage 0 trains the deterministic network, Stage 1 a standard deviation for every kernel weight. "
        "Outliers keep their own mean and standard deviation; all other weights share Gaussians over (mean, "
        "standard deviation), which Stage 2 merges where they are nearly the same. Stage 3 trains the shared "
        "Gaussians and the outliers on the evidence bound; the result is called 2DGBNN.",
    ]
