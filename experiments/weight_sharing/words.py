"""What the page of weight sharing says: how it was done, and what the numbers show, good and bad."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.common.problem import Problem
from experiments.weight_sharing.contenders import (
    DETERMINISTIC,
    ENSEMBLE,
    KMEANS,
    MEAN_FIELD,
    TRAINED,
    num_kernels,
)
from experiments.weight_sharing.scores import Scores

STATISTICS = {
    "running": "Running statistics of norms are averaged over the drawn networks of the last stage.",
    "frozen": "Running statistics of norms stay those of Stage 0, in training and for every draw, so that "
    "each network is a plain function; why not recomputed ones, the config says.",
    "recomputed": "Running statistics of norms are measured for every drawn network on {num:,} training "
    "images.",
}


def introduction(problem: Problem) -> list[str]:
    """What was done, for the report."""
    config = problem.config
    said = [
        f"{problem.data.name}: {problem.target.num_data:,} training and {len(problem.labels):,} judged "
        f"examples; {problem.network} with {num_kernels(problem):,} shared kernel weights.",
        "Stage 0 trains the deterministic network, Stage 1 a standard deviation for every kernel weight. "
        "Outliers keep their own mean and standard deviation; all other weights share Gaussians over (mean, "
        "standard deviation), which Stage 2 merges where they are nearly the same. Stage 3 trains the shared "
        "Gaussians and the outliers on the evidence bound; the result is called 2DGBNN.",
    ]
    if config.pretraining.published:
        files, num = config.pretraining.published, config.judging.num_seeds
        said.append(
            f"Stage 0 is not trained here: seed by seed it is one of the published networks "
            f"{', '.join(files[:num])}, with inputs scaled as their authors did; an ensemble has all "
            f"{len(files)} that are named. Stages 1 and 3 train for {config.stochastic.epochs} and "
            f"{config.training.epochs} epochs."
        )
    if not config.judging.mean_field:
        said.append(
            "Mean-field VI was not trained here; where sizes are compared with it, it has a mean and a "
            "standard deviation for every kernel weight."
        )
    if problem.has_batch_statistics:
        said.append(STATISTICS[config.model.statistics].format(num=config.model.statistics_images))
    if config.judging.reference is not None and not config.judging.holdout:
        said.append(
            f"The reference is {config.judging.reference}: published predictions of full-batch HMC on a "
            "ResNet-20 with filter response norm and swish (Izmailov et al. 2021), another network and "
            "another treatment of its inputs than here."
        )
    if config.judging.outside:
        said.append(
            f"Out of distribution are {', '.join(config.judging.outside)}, smaller and grey images with a "
            "black border and three equal channels. The paper's set for CIFAR-10 is SVHN, which could not be "
            "had; grey digits, letters and clothes are easier to tell from CIFAR-10 than house numbers."
            if problem.data.name == "cifar10"
            else f"Out of distribution are {', '.join(config.judging.outside)}."
        )
    return said


def findings(
    problem: Problem,
    scored: Sequence[dict[str, Scores]],
    counts: dict[str, Any],
    changes: dict[str, Any],
) -> list[str]:
    """Sentences from the numbers: what sharing cost, against whom it loses, where ablations disagree."""
    accuracy, nll, ece = (_pair(scored, name) for name in ("accuracy", "nll", "ece"))
    said = [
        "Against the deterministic network, shared weights change accuracy by "
        f"{100 * (accuracy[1] - accuracy[0]):+.2f} points, NLL by a factor of {nll[1] / nll[0]:.2f} and ECE "
        f"by {ece[1] - ece[0]:+.4f}."
    ]
    if nll[1] < nll[0]:
        said[0] += (
            " Stages 1 and 3 also train longer, and without the weight decay of the deterministic network, "
            "so the better NLL is not due to sharing alone."
        )
    said += [*_paper(problem, scored), *_sizes(problem, scored[0]), *_rivals(scored[0])]
    said += _outside(scored[0])
    if MEAN_FIELD in scored[0]:
        said.append("Mean-field VI has the full KL to the same narrow prior and no setting tuned for it.")
    said += _counted(problem, counts)
    return said + _ablations(scored, changes)


def spreads(stds: np.ndarray, start: float) -> str:
    """How far Stage 1 moved the standard deviations that it started with."""
    low, high = np.quantile(stds, (0.05, 0.95))
    stayed = np.mean(np.abs(stds / start - 1.0) < 0.1)
    return (
        f"After Stage 1, nine tenths of the standard deviations lie between {low:.4f} and {high:.4f}; all "
        f"started at {start:g}, and {100 * stayed:.0f} % are within a tenth of that"
        + (": the plane is hardly two-dimensional." if stayed > 0.5 else ".")
    )


def _pair(scored: Sequence[dict[str, Scores]], name: str) -> list[float]:
    return [float(np.mean([each[column][name] for each in scored])) for column in (DETERMINISTIC, TRAINED)]


def _paper(problem: Problem, scored: Sequence[dict[str, Scores]]) -> list[str]:
    """Where 2DGBNN stands to the paper's own numbers, and which of them it misses."""
    published = problem.config.published
    if published.accuracy is None or published.nll is None or published.ece is None or problem.is_own:
        return []
    accuracy, nll, ece = (_pair(scored, name)[1] for name in ("accuracy", "nll", "ece"))
    misses = {
        "accuracy": accuracy < published.accuracy,
        "NLL": nll > published.nll,
        "ECE": ece > published.ece,
    }
    missed = ", ".join(name for name, is_missed in misses.items() if is_missed)
    return [
        f"Against the paper's 2DGBNN: accuracy {100 * (accuracy - published.accuracy):+.2f} points, NLL "
        f"{nll - published.nll:+.4f}, ECE {ece - published.ece:+.4f}; "
        f"{f'it misses the paper in {missed}' if missed else 'none is worse'}. The paper starts from a "
        "network of its own, so part of the difference is not due to the method."
    ]


def _outside(scored: dict[str, Scores]) -> list[str]:
    """Where 2DGBNN tells other data apart worse than its deterministic network, and its best score."""
    own, plain = (scored[name].get("outside", {}) for name in (TRAINED, DETERMINISTIC))
    said = []
    for name, found in own.items():
        here, there = (each[name]["auroc"]["largest probability"] for each in (own, plain))
        best = max(found["auroc"], key=found["auroc"].__getitem__)
        word = "worse" if here < there else "better"
        said.append(
            f"Out of distribution on {name}, 2DGBNN is {word} than its deterministic network by largest "
            f"probability (AUROC {here:.3f} and {there:.3f}); its best score is {best} "
            f"({found['auroc'][best]:.3f})."
        )
    return said


def _sizes(problem: Problem, scored: dict[str, Scores]) -> list[str]:
    """Numbers and bytes against mean field, and against the network alone."""
    own, plain = scored[TRAINED], scored[DETERMINISTIC]
    fewer = 2 * num_kernels(problem) / own["numbers"]
    said = [
        f"By the paper's count 2DGBNN has {fewer:.1f} times fewer numbers than mean field, but that leaves "
        f"out the labels: its file is {plain['bytes'] / own['bytes']:.1f} times smaller than that of the "
        "deterministic network."
    ]
    if KMEANS in scored:
        rival = scored[KMEANS]
        share, gain = rival["bytes"] / own["bytes"], 100 * (rival["accuracy"] - own["accuracy"])
        words = ": for size alone it is the better choice" if share < 1 and gain >= 0 else ""
        said.append(
            f"Plain k-means sharing of the network, without any uncertainty, takes {share:.2f} times the "
            f"bytes of 2DGBNN at {gain:+.2f} points of accuracy{words}."
        )
    return said


def _rivals(scored: dict[str, Scores]) -> list[str]:
    """Columns with a better NLL, and where the reference is nearer to another column."""
    own, plain = scored[TRAINED], scored[DETERMINISTIC]
    better = [name for name in scored if name != TRAINED and scored[name]["nll"] < own["nll"]]
    said = []
    if better:
        words = ", ".join(f"{name} ({scored[name]['nll']:.3f})" for name in better)
        said.append(f"On the first seed NLL is lower than 2DGBNN's ({own['nll']:.3f}) for: {words}.")
    if "total_variation" in own:
        nearest = min(scored, key=lambda name: float(scored[name]["total_variation"]))
        words = ", which averages networks of different basins" if nearest == ENSEMBLE else ""
        said.append(
            f"Total variation to the reference: 2DGBNN {own['total_variation']:.4f}, its deterministic "
            f"network {plain['total_variation']:.4f}; nearest is {nearest}{words}."
        )
    return said


def _counted(problem: Problem, counts: dict[str, Any]) -> list[str]:
    """Which settings come nearest to the paper's counts, by the sum of the logarithms of the ratios."""
    names = ("outliers", "ellipses", "gaussians")
    wanted = [getattr(problem.config.published, name) for name in names]
    if not counts or None in wanted:
        return []

    def far(name: str) -> float:
        # One more of each, as there may be none.
        return sum(
            abs(math.log((counts[name][kind] + 1) / (value + 1)))
            for kind, value in zip(names, wanted, strict=True)
        )

    nearest = min(counts, key=far)
    found, theirs = (
        " / ".join(f"{int(value):,}" for value in values)
        for values in ([counts[nearest][name] for name in names], wanted)
    )
    return [
        f"Nearest to the paper's outliers, ellipses and Gaussians ({theirs}) are the settings "
        f"'{nearest}': {found}."
    ]


def _ablations(scored: Sequence[dict[str, Scores]], changes: dict[str, Any]) -> list[str]:
    """What the paper's Table 5 leaves out, against the standard error of the difference and other seeds."""
    said = []
    for name in ("no ellipses", "no outliers", "neither"):
        if name in changes:
            apart = changes[name]["difference"]
            gain, error = (100 * float(apart[key]) for key in ("accuracy", "accuracy_error"))
            worse, width = float(apart["nll"]), float(apart["nll_error"])
            said.append(
                f"{name.capitalize()}: accuracy {gain:+.2f} ± {error:.2f} points "
                f"({_beyond(gain, error, 'a gain', 'a loss as in the paper')}), NLL {worse:+.4f} ± "
                f"{width:.4f} ({_beyond(worse, width, 'worse', 'better')}). The paper's Table 5 reports a "
                "loss of accuracy."
            )
    if said and len(scored) > 1:
        spread = np.std([float(each[TRAINED]["nll"]) for each in scored], ddof=1)
        said.append(
            f"These are changes of one seed, and errors of its test examples; the NLL of the {len(scored)} "
            f"seeds has a standard deviation of {spread:.4f}, which such a difference must exceed, too."
        )
    return said


def _beyond(value: float, error: float, more: str, less: str) -> str:
    if abs(value) < 2 * error or value == 0:
        return "within the noise"
    return more if value > 0 else less
