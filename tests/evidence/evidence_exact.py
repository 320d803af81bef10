"""Every method against the exact posterior of networks with one and two units."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

from symbnn import density, diagnostics, inference, keys
from symbnn.inference.chains import adaptation
from symbnn.inference.hmc import build_kernel
from tests.evidence import RESULTS, Check, Section, table
from tests.evidence.evidence_posteriordb import WHOLE, Draw, Size, blackjax_nuts, numpyro_nuts, ours
from tests.evidence.exact import PLACES, Exact, exact, target

BIAS, SPREAD = 0.1, 0.05
SPACINGS = {1: (0.1, 0.05), 2: (0.3, 0.25)}
"""Of a coarser grid, which tells the error, and of the one that is used."""
NUM_RUNGS = 24


class Score(NamedTuple):
    """How far a method is from the exact posterior."""

    bias: float
    """Largest |mean of f(x*) - exact| in exact standard deviations."""
    spread: float
    """Ratio of standard deviations of f(x*), the farthest from 1."""
    slope: float
    """Largest distance between the distributions of |u|, of all units together."""
    offset: float
    """The same of the bias of the last layer."""
    ess: float
    """Least effective number of draws of f(x*); NaN for draws of an approximation."""
    seconds: float


def approximation(build: Callable[[], Any]) -> Draw:
    """Independent draws of a posterior that was fitted, as one chain."""

    def draw(key: jax.Array, target: density.Target, size: Size) -> dict[str, Any]:
        fit = build()(key, target)
        samples = fit.posterior.sample(keys.named(key, "draws"), size.num_chains * size.num_samples)
        return jax.tree.map(lambda leaf: leaf[None], samples)

    return draw


def stochastic(algorithm: str, step_size: float) -> Draw:
    """Chains of stochastic-gradient MCMC, one from each of some prior draws."""

    def draw(key: jax.Array, target: density.Target, size: Size) -> dict[str, Any]:
        method = inference.sgmcmc(
            num_samples=size.num_samples,
            step_size=step_size,
            algorithm=algorithm,
            num_burnin=2000,
            thinning=50,
            batch_size=3,
            progress=None,
        )
        starts = jax.vmap(target.init)(jax.random.split(keys.named(key, "starts"), size.num_chains))
        mode_keys = jax.random.split(key, size.num_chains)
        posterior, _ = method.fit_modes(mode_keys, target, starts)
        return posterior.samples

    return draw


STEPS = optax.adam(0.02)
METHODS: dict[str, Draw] = {
    "HMC": ours(inference.hmc, mass="diagonal", jitter=0.5, trajectory=2.0, max_num_steps=100, thinning=2),
    "NUTS": ours(inference.nuts),
    "adjusted MCLMC": ours(inference.mclmc, kernel="adjusted", length=4.0, thinning=4),
    "BlackJAX NUTS": blackjax_nuts,
    "NumPyro NUTS": numpyro_nuts,
    "unadjusted MCLMC": ours(inference.mclmc, thinning=10),
    "SGLD": stochastic("sgld", 0.01),
    "SGHMC": stochastic("sghmc", 0.03),
    "variational": approximation(
        lambda: inference.variational(epochs=2000, batch_size=6, optimizer=STEPS, progress=None)
    ),
    "Laplace, full": approximation(
        lambda: inference.laplace(
            structure="full", pretrain_epochs=2000, batch_size=6, optimizer=STEPS, progress=None
        )
    ),
}
REQUIRED = ("HMC", "NUTS", "adjusted MCLMC")


def section(size: Size = WHOLE, spacings: dict[int, tuple[float, float]] = SPACINGS) -> Section:
    """Both networks, all methods."""
    parts = [
        "Networks 1-1-1 and 1-2-1 with tanh, six points. The last layer is integrated in closed form and the "
        "hidden weights on a grid; functions are compared at 25 places in [-3, 3]: the largest bias of the "
        "mean in exact standard deviations, the ratio of standard deviations farthest from 1; and the "
        "largest distance between distribution functions of |u| (incoming weight of a unit) and of the last "
        "bias, which symmetries leave alone.",
    ]
    found: list[Check] = []
    curves: dict[int, tuple[Exact, dict[str, np.ndarray]]] = {}
    for num_units, (coarse, fine) in spacings.items():
        units = f"{num_units} unit{'s' if num_units > 1 else ''}"
        rough, true = exact(num_units, coarse), exact(num_units, fine)
        scores, means = compare(true, num_units, size)
        curves[num_units] = (true, means)
        estimate, error = evidence(num_units)
        distance = abs(estimate - true.log_evidence) / error
        parts += ["", f"**{units}**", "", scores_table(scores), ""]
        parts += [
            f"Log-evidence {true.log_evidence:.4f} by quadrature (a coarser grid: {rough.log_evidence:.4f}); "
            f"from {NUM_RUNGS} tempered runs of HMC {estimate:.3f} ± {error:.3f}, {distance:.1f} standard "
            "errors away."
        ]
        found.append(
            Check(f"evidence, {units}, in standard errors", f"{distance:.1f}", "< 3.5", distance < 3.5)
        )
        for name in REQUIRED:
            one = scores[name]
            where = f"{name}, {units}"
            found.append(Check(f"{where}: bias / sd of f", f"{one.bias:.3f}", f"< {BIAS}", one.bias < BIAS))
            off = abs(one.spread - 1)
            found.append(Check(f"{where}: error of sd of f", f"{off:.3f}", f"< {SPREAD}", off < SPREAD))
    draw_figure(curves)
    parts += ["", "![Mean functions against the exact one](exact.png)"]
    return Section("Exact posteriors of networks with one and two units", "\n".join(parts), found)


def compare(true: Exact, num_units: int, size: Size) -> tuple[dict[str, Score], dict[str, np.ndarray]]:
    """Scores of all methods, and the means and standard deviations of their functions."""
    problem = target(num_units)
    scores, means = {}, {}
    for name, draw in METHODS.items():
        begun = time.process_time()
        draws = draw(keys.named(jax.random.key(0), name), problem, size)
        seconds = time.process_time() - begun
        scores[name], means[name] = score(draws, problem, true, seconds)
        print(num_units, name, scores[name], flush=True)
    return scores, means


def score(draws: Any, problem: density.Target, true: Exact, seconds: float) -> tuple[Score, np.ndarray]:
    """How far draws (chains, draws, ...) are from the truth."""
    apply = jax.jit(jax.vmap(jax.vmap(lambda params: problem.model.apply(params, PLACES)[:, 0])))
    values = apply(jax.tree.map(jnp.asarray, draws))
    outputs = np.asarray(values, np.float64)
    mean, std = outputs.mean((0, 1)), outputs.std((0, 1))
    ratios = std / true.std
    hidden, last = np.asarray(draws["hidden"]["kernel"]), np.asarray(draws["out"]["bias"])
    is_sampled = outputs.shape[0] > 1
    return Score(
        float(np.max(np.abs(mean - true.mean) / true.std)),
        float(ratios[np.argmax(np.abs(ratios - 1))]),
        _distance(np.abs(hidden), true.slopes, true.slope_cdf),
        _distance(last, true.offsets, true.offset_cdf),
        float(jnp.min(diagnostics.bulk_ess(values))) if is_sampled else float("nan"),
        seconds,
    ), np.stack([mean, std])


def evidence(num_units: int, *, num_chains: int = 256, num_draws: int = 100) -> tuple[float, float]:
    """(log-evidence by stepping stones, its standard error) from HMC at powers β of the likelihood.

    Σ_k log E_{β_k} p(y | w)^(β_{k+1} - β_k); the error is that of the means over independent chains.
    """
    problem = target(num_units)
    powers = np.linspace(0, 1, NUM_RUNGS + 1) ** 4
    kernel = build_kernel(num_steps=10, jitter=0.3)

    def chain(key: jax.Array, power: jax.Array) -> jax.Array:
        tempered = density.LogDensity(
            lambda params: power * problem.log_likelihood(params), problem.prior.log_probs
        )
        start = problem.init(key)
        tuning = adaptation.initial_tuning(start, 0.12, 1.0)

        def step(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            state, _ = kernel.step(key, state, tuning, tempered)
            return state, problem.log_likelihood(state.position)

        state = kernel.init(key, start, tempered)
        return jax.lax.scan(step, state, jax.random.split(key, 2 * num_draws))[1][num_draws:]

    chain_keys = jax.random.split(jax.random.key(0), (NUM_RUNGS, num_chains))
    run = jax.jit(jax.vmap(jax.vmap(chain, in_axes=(0, None))))
    found = np.asarray(run(chain_keys, jnp.asarray(powers[:-1], jnp.float32)), np.float64)
    steps = np.diff(powers)[:, None, None]
    top = np.max(steps * found, axis=(1, 2))
    ratios = np.exp(steps * found - top[:, None, None]).mean(2)
    means = ratios.mean(1)
    errors = ratios.std(1, ddof=1) / np.sqrt(num_chains) / means
    return float(np.sum(np.log(means) + top)), float(np.sqrt(np.sum(errors**2)))


def scores_table(scores: dict[str, Score]) -> str:
    """A row for every method."""
    header = (
        "method",
        "bias / sd",
        "ratio of sd",
        "distance of |u|",
        "of last bias",
        "effective",
        "processor",
    )
    rows = [
        (
            name,
            f"{one.bias:.3f}",
            f"{one.spread:.3f}",
            f"{one.slope:.3f}",
            f"{one.offset:.3f}",
            "–" if np.isnan(one.ess) else f"{one.ess:,.0f}",
            f"{one.seconds:.0f} s",
        )
        for name, one in scores.items()
    ]
    return table(header, rows)


def draw_figure(curves: dict[int, tuple[Exact, dict[str, np.ndarray]]]) -> None:
    """Bias and width of the function of every method, along x*."""
    figure, axes = plt.subplots(
        2, len(curves), figsize=(9, 5), sharex=True, squeeze=False, layout="constrained"
    )
    for column, (num_units, (true, means)) in enumerate(curves.items()):
        for name, (mean, std) in means.items():
            style = "-" if name in REQUIRED else "--"
            axes[0, column].plot(PLACES[:, 0], (mean - true.mean) / true.std, style, lw=1, label=name)
            axes[1, column].plot(PLACES[:, 0], std / true.std, style, lw=1)
        axes[0, column].set_title(f"{num_units} unit{'s' if num_units > 1 else ''}", fontsize=9)
        axes[1, column].set_xlabel("x*")
    axes[0, 0].set_ylabel("bias of f(x*) / sd")
    axes[1, 0].set_ylabel("ratio of sd")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=7
    )
    RESULTS.mkdir(parents=True, exist_ok=True)
    figure.savefig(RESULTS / "exact.png", dpi=130)
    plt.close(figure)


def _distance(draws: np.ndarray, points: np.ndarray, cdf: np.ndarray) -> float:
    """Kolmogorov's distance, at `points`."""
    ordered = np.sort(draws.ravel())
    return float(np.max(np.abs(np.searchsorted(ordered, points, side="right") / len(ordered) - cdf)))
