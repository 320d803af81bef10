"""Simulation-based calibration of every method in function space, on a regression and a classification."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from jaxtyping import Array
from numpyro.infer.hmc import hmc as numpyro_hmc

from symbnn import density, inference, keys
from symbnn.inference.dynamics import Chains, ChainState, Dynamics, Steps, run_compiled
from symbnn.inference.hmc import build_kernel as hmc_kernel
from symbnn.inference.mclmc import adjusted_kernel, unadjusted_kernel
from symbnn.inference.nuts import build_kernel as nuts_kernel
from symbnn.inference.training.train import Problem
from tests.evidence import RESULTS, Check, Section, table
from tests.evidence.calibration import (
    LEVEL,
    NUM_BINS,
    NUM_DRAWS,
    Case,
    Posterior,
    Verdict,
    band,
    cases,
    draws_of,
    judge,
    of_kernel,
    ranks_of,
)


class Size(NamedTuple):
    """Replications: of samplers, which run side by side, and of methods that train, one after the other."""

    num_sampled: int = 1000
    num_trained: int = 300
    num_burnin: int = 100


WHOLE = Size()


class Judged(NamedTuple):
    """What came of one method in one case."""

    ranks: np.ndarray
    verdict: Verdict
    seconds: float


def hmc(case: Case, size: Size) -> Posterior:
    """Trajectories of about one radius of the prior."""
    kernel = hmc_kernel(num_steps=8, jitter=0.3)
    return of_kernel(case, kernel, step_size=0.12, thinning=4, num_burnin=size.num_burnin)


def nuts(case: Case, size: Size) -> Posterior:
    """Trees of up to 31 steps."""
    return of_kernel(
        case, nuts_kernel(max_doublings=5), step_size=0.12, thinning=2, num_burnin=size.num_burnin
    )


def adjusted(case: Case, size: Size) -> Posterior:
    """Trajectories of eight steps on average."""
    return of_kernel(
        case, adjusted_kernel(50), step_size=0.5, length=4.0, thinning=4, num_burnin=size.num_burnin
    )


def unadjusted(case: Case, size: Size) -> Posterior:
    """Steps that are not corrected."""
    return of_kernel(
        case, unadjusted_kernel(), step_size=0.5, length=4.0, thinning=20, num_burnin=5 * size.num_burnin
    )


def blackjax_nuts(case: Case, size: Size) -> Posterior:
    """BlackJAX's own kernel with the settings of `nuts`."""

    def posterior(key: Any, targets: Array) -> Array:
        start = case.draw(keys.named(key, "start"))
        masses = jnp.ones(sum(leaf.size for leaf in jax.tree.leaves(start)))
        kernel = blackjax.nuts(case.log_density(targets), 0.12, masses, max_num_doublings=5)

        def step(index: Array, state: Any) -> Any:
            return kernel.step(jax.random.fold_in(key, index), state)[0]

        return draws_of(case, step, kernel.init(start), thinning=2, num_burnin=size.num_burnin)

    return posterior


def numpyro_nuts(case: Case, size: Size) -> Posterior:
    """NumPyro's own kernel with the settings of `nuts`; its state carries the key."""

    def posterior(key: Any, targets: Array) -> Array:
        log_density = case.log_density(targets)
        init, step = numpyro_hmc(lambda params: -log_density(params), algo="NUTS")
        state = init(
            case.draw(keys.named(key, "start")),
            num_warmup=0,
            step_size=0.12,
            adapt_step_size=False,
            adapt_mass_matrix=False,
            max_tree_depth=5,
            rng_key=keys.named(key, "sampler"),
        )
        return draws_of(
            case,
            lambda index, state: step(state),
            state,
            position=lambda state: state.z,
            thinning=2,
            num_burnin=size.num_burnin,
        )

    return posterior


def stochastic(algorithm: str, step_size: float) -> Callable[[Case, Size], Posterior]:
    """Stochastic-gradient MCMC on minibatches of half the data."""

    def method(case: Case, size: Size) -> Posterior:
        problem = Problem(case.model, case.likelihood, case.prior, len(case.inputs), 1.0)
        dynamics = Dynamics(algorithm, friction=10.0, batch_size=len(case.inputs) // 2)
        burnin, between = 10 * size.num_burnin, 50
        numbers = np.arange(burnin + NUM_DRAWS * between)

        def posterior(key: Any, targets: Array) -> Array:
            start = jax.tree.map(lambda leaf: leaf[None], case.draw(keys.named(key, "start")))
            state = ChainState(start, jax.tree.map(jnp.zeros_like, start), jnp.zeros(1, jnp.int32))
            for part in (numbers[None, :burnin], numbers[burnin:].reshape(NUM_DRAWS, between)):
                sizes = np.full(part.shape, step_size, np.float32)
                steps = Steps(part, sizes, np.ones_like(sizes))
                chain = Chains({}, key[None], density.Batch(case.inputs, targets))
                state, draws = run_compiled(problem, dynamics, chain, state, steps)
            return jax.vmap(case.values)(jax.tree.map(lambda leaf: leaf[0], draws))

        return posterior

    return method


SAMPLED: dict[str, Callable[[Case, Size], Posterior]] = {
    "HMC": hmc,
    "NUTS": nuts,
    "adjusted MCLMC": adjusted,
    "BlackJAX NUTS": blackjax_nuts,
    "NumPyro NUTS": numpyro_nuts,
    "unadjusted MCLMC": unadjusted,
    "SGLD": stochastic("sgld", 0.01),
    "SGHMC": stochastic("sghmc", 0.03),
}
REQUIRED = ("HMC", "NUTS", "adjusted MCLMC")
STEPS = optax.adam(0.02)
TRAINED: dict[str, Callable[[int], Any]] = {
    "variational": lambda num: inference.variational(
        epochs=400, batch_size=num, optimizer=STEPS, progress=None
    ),
    "Laplace, full": lambda num: inference.laplace(
        structure="full", pretrain_epochs=400, batch_size=num, optimizer=STEPS, progress=None
    ),
}


def section(size: Size = WHOLE) -> Section:
    """All methods in both cases."""
    judged: dict[str, dict[str, Judged]] = {}
    for case in cases():
        judged[case.name] = {}
        for name, method in SAMPLED.items():
            begun = time.process_time()
            ranks = ranks_of(case, method(case, size), size.num_sampled)
            keep(judged[case.name], name, ranks, begun)
        for name, build in TRAINED.items():
            begun = time.process_time()
            keep(judged[case.name], name, trained_ranks(case, build(len(case.inputs)), size), begun)
    draw_figure(judged)
    return Section("Simulation-based calibration in function space", text(judged, size), checks(judged))


def keep(column: dict[str, Judged], name: str, ranks: np.ndarray, begun: float) -> None:
    """Note what came of a method, on the screen too."""
    column[name] = Judged(ranks, judge(ranks), time.process_time() - begun)
    print(name, column[name].verdict, f"{column[name].seconds:.0f} s", flush=True)


def trained_ranks(case: Case, method: Any, size: Size) -> np.ndarray:
    """Ranks of a method that trains, replication by replication, as a user would call it."""
    simulate = jax.jit(case.simulate)
    values = jax.jit(jax.vmap(case.values))
    ranks = []
    for key in jax.random.split(jax.random.key(0), size.num_trained):
        truth, targets = simulate(key)
        target = density.target(
            case.model, density.Batch(case.inputs, targets), likelihood=case.likelihood, prior=case.prior
        )
        fit = method(keys.named(key, "posterior"), target)
        draws = values(fit.posterior.sample(keys.named(key, "draws"), NUM_DRAWS))
        ranks.append(np.sum(np.asarray(draws) < np.asarray(truth), axis=0))
    return np.stack(ranks)


def checks(judged: dict[str, dict[str, Judged]]) -> list[Check]:
    """Exact samplers are not rejected."""
    return [
        Check(
            f"{name}, {case}: p-value of ranks",
            f"{one.verdict.p_value:.2g}",
            f">= {LEVEL}",
            not one.verdict.is_rejected,
        )
        for case, column in judged.items()
        for name, one in column.items()
        if name in REQUIRED
    ]


def text(judged: dict[str, dict[str, Judged]], size: Size) -> str:
    """A table for each case, and what it says."""
    header = (
        "method",
        "replications",
        "χ², p",
        "envelope, p",
        "width of scores",
        "mean of scores",
        "processor",
    )
    parts = [
        f"{size.num_sampled:,} simulated problems ({size.num_trained:,} for methods that train), "
        f"{NUM_DRAWS} draws each, ranks of f(x*) at four x*, the last of them far outside the data. "
        "p-values are the smallest of the four, times four. The width is the standard deviation of normal "
        "scores of the ranks, relative to that of uniform ranks: 1.2 means that the truth lies 1.2 times as "
        "far from the posterior's centre as its width says. Ranks of raw weights are no substitute: they mix "
        "the law of the function with that of its labels, of which a chain may see one or all; f(x*) has no "
        "labels.",
    ]
    for case, column in judged.items():
        rows = [
            (
                name,
                str(len(one.ranks)),
                f"{one.verdict.chi_squared:.2g}",
                f"{one.verdict.envelope:.2g}",
                f"{one.verdict.spread:.2f}",
                f"{one.verdict.shift:+.2f}",
                f"{one.seconds:.0f} s",
            )
            for name, one in column.items()
        ]
        rejected = [name for name, one in column.items() if one.verdict.is_rejected]
        told = ", ".join(f"{name} (width {column[name].verdict.spread:.2f})" for name in rejected)
        parts += ["", f"**{case}**", "", table(header, rows), ""]
        parts += [
            f"Rejected at level {LEVEL}: {told}." if rejected else f"None is rejected at level {LEVEL}."
        ]
    return "\n".join([*parts, "", "![Ranks of the true value among the draws](calibration.png)"])


def draw_figure(judged: dict[str, dict[str, Judged]]) -> None:
    """Histograms of all ranks of a method, and the distribution of the ranks at every x* in its envelope."""
    names = [*SAMPLED, *TRAINED]
    figure, axes = plt.subplots(
        2 * len(judged), len(names), figsize=(1.9 * len(names), 3.0 * len(judged)), layout="constrained"
    )
    shares = (np.arange(NUM_DRAWS) + 1) / (NUM_DRAWS + 1)
    for row, (case, column) in enumerate(judged.items()):
        for place, name in enumerate(names):
            upper, lower = axes[2 * row, place], axes[2 * row + 1, place]
            ranks = column[name].ranks
            upper.hist(ranks[:, 0], NUM_BINS, (0, NUM_DRAWS + 1), color="C0", alpha=0.7)
            upper.axhline(len(ranks) / NUM_BINS, color="black", lw=0.8)
            colour = "C3" if column[name].verdict.is_rejected else "black"
            upper.set_title(f"{name}\n{case}", fontsize=7, color=colour)
            low, high = band(len(ranks))
            lower.fill_between(shares, low, high, color="0.85", lw=0)
            for probe in ranks.T:
                lower.plot(shares, [np.mean(probe <= r) - s for r, s in enumerate(shares)], lw=0.9)
            lower.set_ylim(-0.2, 0.2)
            for axis in (upper, lower):
                axis.tick_params(labelsize=6)
                axis.set_yticks([] if axis is upper else [-0.1, 0, 0.1])
    figure.supxlabel(
        "top: histogram of ranks at the first x*; below: ECDF of ranks minus uniform at all x*, "
        "with its 95 % envelope; red: rejected",
        fontsize=8,
    )
    RESULTS.mkdir(parents=True, exist_ok=True)
    figure.savefig(RESULTS / "calibration.png", dpi=120)
    plt.close(figure)
