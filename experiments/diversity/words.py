"""What a page of the study says: networks and data before its numbers, findings made from them after."""

from collections.abc import Iterator

import numpy as np

from experiments.common.distortions import DISTORTIONS
from experiments.common.problem import Problem, joined
from experiments.diversity.exchange import LEAST_SAMPLES, LEVEL, NUM_BINS, NUM_SIMULATED, Judged
from experiments.diversity.results import CHAIN, Orders, Results
from symbnn import tree
from symbnn.models.base import split_statistics

PAPER = (
    "The paper (ResNet-18, CIFAR-100 against SVHN): 0.107 nats a pair in distribution, 0.22 out of it, no "
    "functional collapse; an ensemble's units are exchangeable, those of HMC chains are not; orders of units "
    "change in phases of high learning rate and freeze afterwards."
)
NOT_INDEPENDENT = (
    "The test takes samples as independent, which draws of a chain are not. That the chain fails shows that "
    "it did not visit all labels of its units equally often: it rarely swaps them, or is too short."
)
# Pairs with less than this share of the mean information are told.
COLLAPSE = 0.1
# Fewer pairs, of five networks or fewer, say nothing of a correlation.
LEAST_PAIRS = 10


def introduction(problem: Problem, results: Results) -> str:
    """Networks, data, what is compared."""
    config = problem.config
    sentences = [
        f"{config.num_networks} networks {_network(problem)} {_origin(problem)}; all pairs of "
        f"{config.num_paired}, on {len(problem.labels)} test examples of {problem.data.name}."
    ]
    if CHAIN in results.tested:
        sentences.append(f"One HMC chain of {config.chain.num_samples} draws.")
    names = (f"{name} of the test examples" if name in DISTORTIONS else name for name in config.outside)
    sentences.append(f"Out of distribution: {', '.join(names)}.")
    if any(each.thin for each in results.tested.values()):
        sentences.append(
            f"Where a layer has fewer than five samples per unit its p-value is simulated ({NUM_SIMULATED:,} "
            "sets of uniform counts)."
        )
    if any(each.pooled for each in results.tested.values()):
        sentences.append(
            "If units are exchangeable, the unit with the largest weight is uniform in every layer, "
            f"independently from layer to layer: so positions in {NUM_BINS} parts of a layer are also "
            "counted over all layers, with a simulated p-value."
        )
    return " ".join(sentences)


def _network(problem: Problem) -> str:
    if problem.is_own:
        return problem.sizes
    if problem.network == "mlp":
        return f"with {joined(problem.config.hidden)} hidden units"
    return f"{problem.network} ({tree.num_weights(split_statistics(problem.shapes)[0]):,} weights)"


def _origin(problem: Problem) -> str:
    training = problem.config.training
    if problem.config.published:
        return "that others trained and published"
    return (
        f"on {problem.target.num_data} examples of {problem.data.name}, {training.num_epochs} epochs of "
        f"momentum from learning rate {training.learning_rate:g}"
    )


def caption(results: Results) -> str:
    """Of the panels that there are."""
    parts = ["Pairs of networks", "units with the largest weight"]
    return ", ".join([*parts, "orders of units through training"] if results.orders else parts)


def findings(results: Results) -> list[str]:
    """What the numbers say, and nothing of what was not measured."""
    return [
        *_exchanged(results.tested),
        *_compared(results),
        *(_ordered(results.orders) if results.orders else ()),
    ]


def _exchanged(tested: dict[str, Judged]) -> Iterator[str]:
    several = {name: each for name, each in tested.items() if each.pooled}
    if not several:
        single = {name: next(iter(each.layers.values())).p_value for name, each in tested.items()}
        verdicts = (f"{name}: p = {p_value:.2g}, {_verdict(p_value)}" for name, p_value in single.items())
        yield f"Test of exchangeable units: {', '.join(verdicts)}."
    for name, each in several.items():
        yield from _layers(name, each)
        yield from _all_layers(name, each)
    if CHAIN in tested and _fails(tested[CHAIN]):
        yield NOT_INDEPENDENT


def _layers(name: str, tested: Judged) -> Iterator[str]:
    if not tested.by_layer:
        return
    adjusted = tested.holm
    failed = [layer for layer, p_value in adjusted.items() if p_value <= LEVEL]
    least = min(tested.by_layer, key=lambda layer: tested.by_layer[layer].p_value)
    said = f"all {len(adjusted)} pass" if not failed else f"{', '.join(failed)} of {len(adjusted)} fail"
    yield (
        f"Test of exchangeable units in every layer, {name}: {said}. The least p-value is "
        f"{tested.by_layer[least].p_value:.2g} ({least}), {adjusted[least]:.2g} when corrected for "
        f"{len(adjusted)} tests (Holm)."
    )
    if tested.thin:
        yield (
            f"With {tested.num_samples} samples, {', '.join(tested.thin)} have fewer than five a unit: these "
            "tests see a preference for a few units only if it is strong."
        )


def _all_layers(name: str, tested: Judged) -> Iterator[str]:
    pooled = tested.pooled
    if pooled is None:
        return
    yield (
        f"Over all {len(tested.layers)} layers, {name}: positions of the units with the largest weight have "
        f"p = {pooled.p_value:.2g}, {_verdict(pooled.p_value)}."
    )
    if not tested.by_layer:
        share, needed = 100 * pooled.expected[0] / pooled.expected.sum(), 100 * pooled.noticed
        yield (
            f"{tested.num_samples} networks are weak evidence: fewer than {LEAST_SAMPLES} say nothing of a "
            f"layer by itself, and of the {pooled.counts.sum():.0f} positions over all layers the first of "
            f"{len(pooled.counts)} parts, which should have {share:.0f} %, would need {needed:.0f} % for the "
            "test to see it."
        )


def _compared(results: Results) -> Iterator[str]:
    right = 100 * np.asarray(results.accuracies)
    inside, least = results.inside, results.inside.min() / results.inside.mean()
    yield (
        f"The networks are right on {right.mean():.2f} % of the test examples ({right.min():.2f} to "
        f"{right.max():.2f})."
    )
    words = " and ".join(
        f"by {each.mean():.3f} {'out of distribution' if len(results.outside) == 1 else f'on {name}'}"
        f"{_correlation(inside, each)}"
        for name, each in results.outside.items()
    )
    collapse = (
        "no two networks are one function" if least > COLLAPSE else "some pairs are close to one function"
    )
    yield (
        f"Pairs differ by {inside.mean():.3f} nats on test examples and {words}. The most alike pair has "
        f"{100 * least:.0f} % of the mean: {collapse}."
    )


def _correlation(inside: np.ndarray, outside: np.ndarray) -> str:
    """Of the two over pairs, if these are enough to say so."""
    correlation = f" (correlation {np.corrcoef(inside, outside)[0, 1]:.2f})"
    return correlation if len(inside) >= LEAST_PAIRS else ""


def _ordered(orders: Orders) -> Iterator[str]:
    """Phases of the highest and of the lowest learning rate, if orders fall into both."""
    high, low = (orders.epochs <= min(orders.milestones)), (orders.epochs > max(orders.milestones))
    if not high.any() or not low.any():
        return
    means = {name: (each[:, high].mean(), each[:, low].mean()) for name, each in orders.taus.items()}
    several = len(means) > 1
    parts = (
        f"{first:.2f} and {last:.2f}{f' ({name})' if several else ''}"
        for name, (first, last) in means.items()
    )
    settled = [name for name, (first, last) in means.items() if last > first]
    said = (
        f"orders change less in the end in {len(settled)} of {len(means)} layers"
        if several
        else ("orders change less in the end" if settled else "orders do not change less in the end")
    )
    yield (
        f"Kendall's τ between successive orders of units at the highest and at the lowest learning rate: "
        f"{', '.join(parts)}; {said}."
    )


def _fails(tested: Judged) -> bool:
    pooled = tested.pooled is not None and tested.pooled.p_value <= LEVEL
    return pooled or any(p_value <= LEVEL for p_value in tested.holm.values())


def _verdict(p_value: float) -> str:
    return "passes" if p_value > LEVEL else "fails"
