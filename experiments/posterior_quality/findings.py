"""What the numbers of the study of posterior quality say, in sentences made from them."""

from collections.abc import Callable, Iterator

from scipy import stats

from experiments.posterior_quality.results import (
    CHAINS,
    ENSEMBLE,
    HEADS,
    MANY,
    NAMES,
    NETWORKS,
    ONE,
    SINGLE,
    Estimate,
    Results,
)
from experiments.posterior_quality.scores import VERSIONS

OF_PREDICTIONS = (
    "The paper (ResNet-18, CIFAR-100 and Tiny-ImageNet): many modes beat one in accuracy and Brier score for "
    "every method."
)
PAPER = (
    "The paper (ResNet-18, CIFAR-100 and Tiny-ImageNet): many modes beat one in accuracy and Brier score for "
    "every method and have the smaller MMD, the deep ensemble's is 0.0; removing symmetries does not always "
    "lower it, and posterior quality and detection out of distribution show no clear correlation."
)


def findings(results: Results) -> list[str]:
    """What the numbers say, then what the paper says; of predictions only, where no weights were compared."""
    if not results.discrepancies:
        return [
            single_finding(results),
            *(gain_finding(results, name, sign=sign) for name, sign in GAINS.items()),
            *(gain_finding(results, f"{source}_auroc", sign=1.0) for source in results.outside),
            OF_PREDICTIONS,
        ]
    return [
        ensemble_finding(results),
        *(gain_finding(results, name, sign=sign) for name, sign in GAINS.items()),
        *(_nearer_finding(results, reference) for reference in results.discrepancies),
        *(_equal_finding(results, reference) for reference in results.discrepancies),
        *_correlations(results),
        PAPER,
    ]


def ensemble_finding(results: Results) -> str:
    """Whether the ensemble's discrepancy is zero within its interval, before and after symmetries go."""
    parts, outside = [], []
    for version in VERSIONS:
        found = results.discrepancy(NETWORKS, ENSEMBLE, version)
        p_value = results.p_value(NETWORKS, ENSEMBLE, version)
        parts.append(f"{version} {found.text(3)} (p = {p_value:.3f})")
        if not found.holds_zero:
            outside.append(version)
    verdict = (
        "zero lies in every interval, as it must"
        if not outside
        else f"zero is NOT in the interval of {', '.join(outside)}"
    )
    return (
        "Deep ensemble against reference, disjoint sets of independent networks, MMD² in 10⁻²: "
        f"{'; '.join(parts)}: {verdict}."
    )


UNITS = {"%": "points"}
GAINS = {"accuracy": 1.0, "nll": -1.0, "brier": -1.0, "ece": -1.0}
"""Scores of predictions, with the sign of what is better."""


def single_finding(results: Results) -> str:
    """The networks themselves, their ensemble, and which sets are more accurate than it."""
    single, together = (results.score(entry, "accuracy") for entry in (SINGLE, ENSEMBLE))
    sets = [entry for entry in results.entries() if entry not in (SINGLE, ENSEMBLE)]

    def above(entry: str, level: Estimate) -> bool:
        return results.score(entry, "accuracy").value > level.value

    def words(level: Estimate) -> str:
        return "; ".join(results.label(entry) for entry in sets if above(entry, level)) or "none"

    return (
        f"Accuracy of one network, mean over {results.num_modes}: {single.text()} %; of their ensemble "
        f"{together.text()} %. More accurate than one network: {words(single)}. More accurate than the "
        f"ensemble: {words(together)}."
    )


def gain_finding(results: Results, name: str, *, sign: float) -> str:
    """For which methods many modes are better (`sign` of their gain), for which zero is inside the interval,
    and for which they are worse."""
    better: list[str] = []
    unclear: list[str] = []
    worse: list[str] = []
    for method in results.methods():
        gain = results.gain(method, name)
        list_of = unclear if gain.holds_zero else better if sign * gain.value > 0 else worse
        list_of.append(f"{results.name(method)} ({gain.text()})")
    source, _, end = name.rpartition("_")
    head, _, unit = HEADS[end].partition(", ")
    known = f"{head} ({source})" if source else head
    start = f"{known[0].upper()}{known[1:]}, many modes minus one in {UNITS.get(unit, unit)}: "
    rest = f"; zero lies inside the interval for {', '.join(unclear)}" if unclear else ""
    rest += f"; they are worse for {', '.join(worse)}" if worse else ""
    return f"{start}many modes beat one for {', '.join(better) or 'no method'}{rest}."


def _by_version(words: Callable[[str], str]) -> str:
    return "; ".join(f"{version}: {words(version)}" for version in VERSIONS)


def _nearer_finding(results: Results, reference: str) -> str:
    """Where many modes are nearer to the reference than one, by version."""

    def words(version: str) -> str:
        def gap(method: str, kind: str) -> float:
            return results.discrepancy(reference, f"{method}_{kind}", version).value

        far = [results.name(method) for method in results.methods() if gap(method, MANY) >= gap(method, ONE)]
        return f"all but {', '.join(far)}" if far else "all"

    return (
        f"Methods whose many modes are nearer to the {NAMES[reference]} than one mode, by MMD², of "
        f"{len(results.methods())}: {_by_version(words)}."
    )


def _equal_finding(results: Results, reference: str) -> str:
    """Which sets are not told from the reference, by version."""

    def words(version: str) -> str:
        entries = results.compared(reference)
        equal = [each for each in entries if results.discrepancy(reference, each, version).holds_zero]
        return " and ".join(map(results.label, equal)) or "none"

    return (
        f"Sets that cannot be told from the {NAMES[reference]}, as the interval of their MMD² holds zero: "
        f"{_by_version(words)}."
    )


def _correlations(results: Results) -> Iterator[str]:
    """Rank correlation of discrepancy and predictions over methods; silent for fewer than five."""
    entries = [entry for entry in results.compared(NETWORKS) if entry not in (ENSEMBLE, CHAINS)]
    if len(entries) < 5:
        return
    scores = {"accuracy": "accuracy"} | {f"{source}_auroc": f"AUROC ({source})" for source in results.outside}

    def words(version: str) -> str:
        gaps = [results.discrepancy(NETWORKS, entry, version).value for entry in entries]
        return ", ".join(
            f"{label} {stats.spearmanr(gaps, [results.score(e, name).value for e in entries]).statistic:+.2f}"
            for name, label in scores.items()
        )

    yield (
        f"Rank correlation of MMD² with predictions over {len(entries)} sets (methods with one mode and with "
        f"many): {_by_version(words)}."
    )
