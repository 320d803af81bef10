"""What a run says about itself: totals per chain, a verdict in words, and an error when nothing moves."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from symbnn.inference.base import Chunk, Progress, noting_compilation
from symbnn.inference.chains.settings import Run, Work

LOW_ACCEPTANCE = 0.1
MANY_DIVERGENCES = 0.01
PATIENCE = 20
"""Transitions after which a run in which all of them diverged is stopped."""

PER_CHAIN = (
    "acceptance",
    "divergences",
    "energy_error",
    "num_gradients",
    "step_size",
    "chains",
    "log_density",
)
"""Diagnostics with one row per chain."""


logger = logging.getLogger(__name__)


class SamplingError(RuntimeError):
    """No chain has moved: the draws would be copies of the start."""


class Tally(NamedTuple):
    """Sums over the transitions of one or more chunks, per chain; on the host."""

    transitions: np.ndarray
    acceptance: np.ndarray
    divergences: np.ndarray
    squared_energy_error: np.ndarray
    gradients: np.ndarray


def tally_of(chunk: Chunk) -> Tally:
    """Totals of one chunk, whose numbers are per chain and draw."""
    return Tally(*(np.asarray(chunk[f"info/{name}"], np.float64).sum(1) for name in Tally._fields))


def add(tallies: Sequence[Tally]) -> Tally:
    """Totals of several chunks."""
    return Tally(*(np.sum(parts, axis=0) for parts in zip(*tallies, strict=True)))


def event(settings: Run, work: Work, chunk: Chunk, seconds: float, *, replayed: bool) -> Progress:
    """What is reported of a chunk, `seconds` after the start of the run."""
    if work.stage == "burn-in":
        done, total = work.stop, settings.num_burnin
    else:
        done, total = (work.stop - settings.num_burnin) // settings.thinning, settings.num_samples
    tally = tally_of(chunk)
    statistics = {
        "acceptance": float(tally.acceptance.sum() / tally.transitions.sum()),
        "divergences": float(tally.divergences.sum()),
        "log_density": float(np.mean(chunk["info/log_density"])),
        "step_size": float(np.mean(chunk["state/tuning/step_size"])),
        "seconds": seconds,
    }
    return Progress(work.stage, done, total, statistics, replayed)


@contextlib.contextmanager
def noting_first(work: Work, index: int) -> Iterator[None]:
    """Around the first chunk that is computed: log where a stopped run goes on, and a slow compilation."""
    if index:
        logger.info("%s: goes on with chunk %d; those before it were read back", work.stage, index)
    with noting_compilation(logger, work.stage):
        yield


def log_chunk(
    settings: Run, work: Work, tallies: dict[str, list[Tally]], step_size: np.ndarray, chains: np.ndarray
) -> None:
    """Log divergences among the draws (in the burn-in they are part of the search), and what was adapted."""
    tally = tallies[work.stage][-1]
    if work.stage == "sampling" and tally.divergences.any():
        diverged, all_of_them = int(tally.divergences.sum()), int(tally.transitions.sum())
        where = chains[tally.divergences > 0].tolist()
        logger.warning("sampling: %d of %d transitions diverged, of chains %s", diverged, all_of_them, where)
    if work.stop == settings.num_burnin:
        whole, span = add(tallies["burn-in"]), f"{step_size.min():.3g} to {step_size.max():.3g}"
        acceptance = whole.acceptance.sum() / whole.transitions.sum()
        logger.info("burn-in: ended with step size %s, acceptance %.2f", span, acceptance)


def require_progress(
    total: Tally, step_size: np.ndarray, *, is_last: bool, everywhere: Callable[[bool], bool] = bool
) -> None:
    """`SamplingError` if every transition of every chain has diverged so far.

    `everywhere` tells whether something holds on all processes: one that ended alone would leave the others
    waiting for it.
    """
    enough = is_last or total.transitions.min() >= PATIENCE
    if everywhere(bool(enough and np.all(total.divergences == total.transitions))):
        raise SamplingError(
            f"all {int(total.transitions.sum())} transitions of {len(total.transitions)} chains diverged "
            f"(step size {step_size.min():.3g} to {step_size.max():.3g}): no chain has moved. Take a much "
            "smaller step size or let it adapt (step_size=None), and check that the log-density is finite"
        )


def diagnostics(total: Tally, step_size: np.ndarray, chains: np.ndarray) -> dict[str, Any]:
    """Per-chain rates, and a verdict."""
    calm = total.transitions - total.divergences
    return {
        "acceptance": total.acceptance / total.transitions,
        "divergences": total.divergences.astype(int),
        # A chain whose transitions all diverged has no energy error: zero would be a perfect one.
        "energy_error": np.sqrt(total.squared_energy_error / np.where(calm > 0, calm, np.nan)),
        "step_size": step_size,
        "chains": chains,
        "verdict": verdict(total, step_size, chains),
    }


def verdict(total: Tally, step_size: np.ndarray, chains: np.ndarray) -> str:
    """ "ok", or a sentence per chain that is in trouble."""
    sentences = []
    for row, chain in enumerate(chains):
        acceptance = total.acceptance[row] / total.transitions[row]
        divergent = total.divergences[row] / total.transitions[row]
        if not acceptance >= LOW_ACCEPTANCE:
            sentences.append(
                f"chain {chain} accepted {acceptance:.1%} of its proposals: "
                f"step size {step_size[row]:.3g} is too large"
            )
        elif divergent > MANY_DIVERGENCES:
            sentences.append(
                f"chain {chain}: {int(total.divergences[row])} of {int(total.transitions[row])} "
                "transitions diverged"
            )
    return "; ".join(sentences) or "ok"
