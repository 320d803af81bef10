"""Geweke's test of every sampler, and of samplers with planted faults."""

import contextlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Array
from scipy import stats

from symbnn import density
from symbnn.inference.dynamics import Chains, ChainState, Dynamics, Steps, run_compiled
from symbnn.inference.hmc import build_kernel as hmc_kernel
from symbnn.inference.mclmc import adjusted_kernel, unadjusted_kernel
from symbnn.inference.nuts import build_kernel as nuts_kernel
from symbnn.inference.training.train import Problem
from tests.evidence import RESULTS, Check, Section, table
from tests.evidence.faults import CODE_FAULTS, DENSITY_FAULTS
from tests.evidence.geweke import (
    INPUTS,
    LEVEL,
    LIKELIHOOD,
    MODEL,
    PRIOR,
    WHOLE,
    Outcome,
    Size,
    Transition,
    conditional,
    geweke,
    of_kernel,
)

DensityOf = Callable[[Array], density.LogDensity]
Build = Callable[[DensityOf], Transition]
"""(density of the weights given targets) -> transition; called within a fault's context, if there is one."""


class Examined(NamedTuple):
    """What came of one sampler, right or with a fault."""

    sampler: str
    fault: str
    outcome: Outcome
    seconds: float


def build_hmc(density_of: DensityOf = conditional) -> Transition:
    """Six steps; four proposals in five are accepted."""
    return of_kernel(hmc_kernel(num_steps=6, jitter=0.2), step_size=0.23, density_of=density_of)


def build_nuts(density_of: DensityOf = conditional) -> Transition:
    """Trees of up to 31 steps."""
    return of_kernel(nuts_kernel(max_doublings=5), step_size=0.2, density_of=density_of)


def build_adjusted(density_of: DensityOf = conditional) -> Transition:
    """Trajectories of three steps on average; three proposals in four are accepted."""
    return of_kernel(adjusted_kernel(50), step_size=1.5, length=4.5, density_of=density_of)


def build_unadjusted(density_of: DensityOf = conditional) -> Transition:
    """Ten steps between two sets of targets."""
    return of_kernel(unadjusted_kernel(), step_size=0.5, length=4.0, repeats=10, density_of=density_of)


def stochastic(algorithm: str, step_size: float) -> Transition:
    """Fifty steps of stochastic-gradient MCMC on minibatches of half the targets."""
    problem, number = Problem(MODEL, LIKELIHOOD, PRIOR, len(INPUTS), 1.0), 50
    dynamics = Dynamics(algorithm, friction=10.0, batch_size=len(INPUTS) // 2)
    sizes = np.full((1, number), step_size, np.float32)
    steps = Steps(np.arange(number)[None], sizes, np.ones_like(sizes))

    def transition(key: Any, params: Any, targets: Array) -> Any:
        one = jax.tree.map(lambda leaf: leaf[None], params)
        state = ChainState(one, jax.tree.map(jnp.zeros_like, one), jnp.zeros(1, jnp.int32))
        chain = Chains({}, key[None], density.Batch(INPUTS, targets))
        state, _ = run_compiled(problem, dynamics, chain, state, steps)
        return jax.tree.map(lambda leaf: leaf[0], state.position)

    return transition


ADJUSTED: dict[str, Build] = {"HMC": build_hmc, "NUTS": build_nuts, "adjusted MCLMC": build_adjusted}
UNADJUSTED: dict[str, Callable[[], Transition]] = {
    "unadjusted MCLMC, step 0.5": build_unadjusted,
    "SGLD, step 0.02": lambda: stochastic("sgld", 0.02),
    "SGHMC, step 0.05": lambda: stochastic("sghmc", 0.05),
}
NOT_ITS_OWN = {("NUTS", "every proposal accepted"), ("adjusted MCLMC", "momenta of 1.2 times the mass")}
"""NUTS has no proposal to accept; the momentum of MCLMC is a direction."""


def section(size: Size = WHOLE) -> Section:
    """All samplers, right and with faults."""
    right = [*(examine(name, "", build, size) for name, build in ADJUSTED.items())]
    biased = [examine(name, "", lambda _, make=make: make(), size) for name, make in UNADJUSTED.items()]
    faulty = [
        examine(name, fault, build, size)
        for name, build in ADJUSTED.items()
        for fault in (*CODE_FAULTS, *DENSITY_FAULTS)
        if (name, fault) not in NOT_ITS_OWN
    ]
    draw_figure(right + biased, faulty)
    found = [passes(one) for one in right] + [caught(one) for one in faulty]
    return Section("Geweke's joint test", text(right, biased, faulty, size), found)


def examine(sampler: str, fault: str, build: Build, size: Size) -> Examined:
    """The test of one sampler with a fault, or with none."""
    begun = time.process_time()
    with CODE_FAULTS.get(fault, contextlib.nullcontext)():
        outcome = geweke(build(DENSITY_FAULTS.get(fault, conditional)), size)
    one = Examined(sampler, fault, outcome, time.process_time() - begun)
    print(line(one), flush=True)
    return one


def passes(one: Examined) -> Check:
    """A right sampler is not rejected."""
    return Check(
        f"{one.sampler}: p-value", f"{one.outcome.p_value:.2g}", f">= {LEVEL}", not one.outcome.is_caught
    )


def caught(one: Examined) -> Check:
    """A faulty one is."""
    return Check(
        f"{one.sampler} with {one.fault}: p-value",
        f"{one.outcome.p_value:.2g}",
        f"< {LEVEL}",
        one.outcome.is_caught,
    )


def line(one: Examined) -> tuple[str, ...]:
    """A row of the tables."""
    worst = one.outcome.worst
    return (
        one.sampler,
        *([one.fault] if one.fault else []),
        f"{one.outcome.p_value:.2g}",
        one.outcome.functions[worst],
        f"{one.outcome.scores[worst]:+.1f}",
        f"{one.outcome.shifts[worst]:+.3f}",
        f"{np.nanmax(np.abs(one.outcome.shifts)):.3f}",
        f"{one.seconds:.0f} s",
    )


def text(right: list[Examined], biased: list[Examined], faulty: list[Examined], size: Size) -> str:
    """Tables of p-values."""
    columns = (
        "p-value",
        "worst function",
        "in standard errors",
        "in sd of the prior",
        "largest shift, in sd",
    )
    number = len(right[0].outcome.functions)
    rejected = [one for one in biased if one.outcome.is_caught]
    return "\n".join(
        [
            f"Network 2-3-1 with tanh, Gaussian likelihood, {len(INPUTS)} inputs. {size.num_chains:,} chains "
            f"start from the prior and go through {size.num_rounds} rounds of new targets and new weights; "
            f"means of {number} test functions over the second half are compared with "
            f"{size.num_marginal:,} draws of the prior. The p-value is the smallest of all functions, times "
            f"{number}; a sampler is rejected below {LEVEL}.",
            "",
            table(("sampler", *columns, "processor"), [line(one) for one in right + biased]),
            "",
            f"Of the {len(biased)} samplers that do not correct their error, {len(rejected)} are rejected"
            + (f": {', '.join(one.sampler for one in rejected)}." if rejected else "."),
            "",
            "With a fault planted in the code that users run, or in the density:",
            "",
            table(("sampler", "fault", *columns, "processor"), [line(one) for one in faulty]),
            "",
            "![Scores of the test functions](geweke.png)",
        ]
    )


def draw_figure(right: list[Examined], faulty: list[Examined]) -> None:
    """Scores of all test functions, a row for every sampler; one outside the grey rejects it."""
    bound = stats.norm.isf(LEVEL / 2 / len(right[0].outcome.scores))
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, rows in zip(axes, (right, faulty), strict=True):
        for place, one in enumerate(rows):
            axis.plot(one.outcome.scores, np.full(len(one.outcome.scores), place), "o", ms=3, alpha=0.6)
        axis.axvspan(-bound, bound, color="0.9", zorder=0)
        axis.set_xscale("symlog", linthresh=5)
        low, high = axis.get_xlim()
        axis.set_xticks([tick for tick in (-100, -10, 0, 10, 100) if low < tick < high])
        labels = [f"{one.sampler}: {one.fault}" if one.fault else one.sampler for one in rows]
        axis.set_yticks(np.arange(len(rows)), labels, fontsize=7)
        axis.invert_yaxis()
        axis.set_xlabel("difference of means in standard errors")
    RESULTS.mkdir(parents=True, exist_ok=True)
    figure.savefig(RESULTS / "geweke.png", dpi=130)
    plt.close(figure)
