"""Samplers on ten posteriors of posteriordb: their means and spreads against those of the reference draws.

    bias = |mean - reference mean| / reference sd,   spread = sd / reference sd,

the worst over the parameters of a posterior. The reference has 10,000 independent draws, so its own bias is
up to 0.03 and its spread is known to 2 % or so.
"""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from numpyro.infer import MCMC, NUTS

from symbnn import density, diagnostics, inference, keys, tree
from tests.evidence import RESULTS, Check, Section, posteriordb, table
from tests.evidence.posteriors import POSTERIORS, Posterior, Reference, load, named_numbers

BIAS, SPREAD = 0.1, 0.05
"""What |bias| and |spread - 1| must stay below."""


class Size(NamedTuple):
    """How much is drawn: many short chains, which one program runs side by side."""

    num_chains: int = 64
    num_samples: int = 250
    num_burnin: int = 300


WHOLE = Size()


class Score(NamedTuple):
    """How one sampler did on one posterior."""

    bias: float
    spread: float
    """Of all parameters, the ratio that is farthest from one."""
    ess: float
    rhat: float
    seconds: float


Draw = Callable[[jax.Array, density.Target, Size], dict[str, Any]]
"""(key, target, size) -> unconstrained draws (chains, draws, ...)."""


def ours(factory: Callable[..., Any], **settings: Any) -> Draw:
    """A sampler of this library."""

    def draw(key: jax.Array, target: density.Target, size: Size) -> dict[str, Any]:
        placement = inference.Placement(lanes=size.num_chains)
        method = factory(**size._asdict(), **settings, placement=placement, progress=None)
        return method(key, target).posterior.by_chain()

    return draw


@functools.lru_cache(maxsize=1)
def pilot(target: density.Target, num_chains: int) -> dict[str, Any]:
    """A short run of NUTS: where HMC and adjusted MCLMC start, and how wide the posterior is."""
    return ours(inference.nuts)(jax.random.key(1), target, Size(num_chains, num_samples=50, num_burnin=150))


def hmc(key: jax.Array, target: density.Target, size: Size) -> dict[str, Any]:
    """HMC from where a short run of NUTS ended.

    Trajectories of a fixed length from near zero leave one chain of 64 in a trap of the mixture of Gaussians,
    a component that sits on one observation; what is tested here is where chains stay, not how they get
    there.
    """
    starts = jax.tree.map(lambda leaf: leaf[:, -1], pilot(target, size.num_chains))
    settings = {"mass": "diagonal", "jitter": 0.5, "max_num_steps": 100, "initial": starts}
    return ours(inference.hmc, **settings)(key, target, size)


def adjusted_mclmc(key: jax.Array, target: density.Target, size: Size) -> dict[str, Any]:
    """Adjusted MCLMC, whose trajectories are as long as a short run of NUTS says the posterior is wide."""
    seen = pilot(target, size.num_chains)
    width = np.sqrt(sum(np.sum(np.var(leaf, axis=(0, 1))) for leaf in jax.tree.leaves(seen)))
    starts = jax.tree.map(lambda leaf: leaf[:, -1], seen)
    settings = {"kernel": "adjusted", "length": float(0.5 * np.pi * width), "thinning": 2, "initial": starts}
    return ours(inference.mclmc, **settings)(key, target, size)


def blackjax_nuts(key: jax.Array, target: density.Target, size: Size) -> dict[str, Any]:
    """BlackJAX's NUTS with its own adaptation, as its documentation runs it."""
    log_density = target.log_density

    def chain(key: jax.Array, start: Any) -> Any:
        key_warmup, key_draws = jax.random.split(key)
        adaptation = blackjax.window_adaptation(blackjax.nuts, log_density)
        (state, found), _ = adaptation.run(key_warmup, start, num_steps=size.num_burnin)
        kernel = blackjax.nuts(log_density, **found)

        def step(state: Any, key: jax.Array) -> tuple[Any, Any]:
            state, _ = kernel.step(key, state)
            return state, state.position

        return jax.lax.scan(step, state, jax.random.split(key_draws, size.num_samples))[1]

    key_start, key_run = jax.random.split(key)
    starts = jax.vmap(target.init)(jax.random.split(key_start, size.num_chains))
    return jax.jit(jax.vmap(chain))(jax.random.split(key_run, size.num_chains), starts)


def numpyro_nuts(key: jax.Array, target: density.Target, size: Size) -> dict[str, Any]:
    """NumPyro's NUTS with its own adaptation."""
    key_start, key_run = jax.random.split(key)
    starts = jax.vmap(target.init)(jax.random.split(key_start, size.num_chains))
    run = MCMC(
        NUTS(potential_fn=lambda params: -target.log_density(params)),
        num_warmup=size.num_burnin,
        num_samples=size.num_samples,
        num_chains=size.num_chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    run.run(key_run, init_params=starts)
    return run.get_samples(group_by_chain=True)


SAMPLERS: dict[str, Draw] = {
    "HMC": hmc,
    "NUTS": ours(inference.nuts),
    "adjusted MCLMC": adjusted_mclmc,
    "BlackJAX NUTS": blackjax_nuts,
    "NumPyro NUTS": numpyro_nuts,
}
REQUIRED = ("HMC", "NUTS", "adjusted MCLMC")


def section(size: Size = WHOLE, names: tuple[str, ...] = tuple(POSTERIORS)) -> Section:
    """All samplers on the posteriors."""
    folder = posteriordb()
    if folder is None:
        raise SystemExit(
            "the posteriors of posteriordb are needed: set SYMBNN_DATA_DIR to a folder with them"
        )
    scores: dict[str, dict[str, Score]] = {}
    kinds: dict[str, str] = {}
    for name in names:
        posterior, reference = load(folder, name)
        scores[name], kinds[name] = {}, posterior.kind
        target = as_target(posterior)
        for sampler, draw in SAMPLERS.items():
            scores[name][sampler] = score(draw, posterior, target, reference, size)
            print(name, sampler, scores[name][sampler], flush=True)
    draw_figure(scores)
    return Section("Ten posteriors of posteriordb", text(scores, kinds, size), checks(scores))


def score(
    draw: Draw, posterior: Posterior, target: density.Target, reference: Reference, size: Size
) -> Score:
    """One sampler on one posterior."""
    begun = time.process_time()
    draws = draw(keys.named(jax.random.key(0), posterior.kind), target, size)
    seconds = time.process_time() - begun
    constrained = jax.vmap(jax.vmap(posterior.constrain))(jax.tree.map(jnp.asarray, dict(draws)))
    numbers = {name: np.asarray(value, np.float64) for name, value in named_numbers(constrained).items()}
    if numbers.keys() != reference.mean.keys():
        raise ValueError(f"parameters {sorted(numbers)}, but the reference has {sorted(reference.mean)}")
    biases = [
        abs(value.mean() - reference.mean[name]) / reference.std[name] for name, value in numbers.items()
    ]
    spreads = [value.std() / reference.std[name] for name, value in numbers.items()]
    stacked = jnp.asarray(np.stack(list(numbers.values()), axis=-1), jnp.float32)
    # An effective size of a spread is that of squares: both must be large for the two numbers to be known.
    squares = jnp.square(stacked - stacked.mean((0, 1)))
    ess = min(float(jnp.min(diagnostics.bulk_ess(each))) for each in (stacked, squares))
    rhat = float(jnp.max(diagnostics.rank_rhat(stacked)))
    return Score(max(biases), max(spreads, key=lambda ratio: abs(ratio - 1)), ess, rhat, seconds)


def as_target(posterior: Posterior) -> density.Target:
    """What samplers take; chains start near zero on the unconstrained scale, where every model is stable."""

    def init(key: jax.Array) -> dict[str, jax.Array]:
        shapes = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in posterior.shapes.items()}
        return jax.tree.map(lambda leaf: 0.2 * leaf, tree.draw_like(key, shapes))

    return density.Target(init, posterior.log_density)


def checks(scores: dict[str, dict[str, Score]]) -> list[Check]:
    """Both bounds, of the samplers that have to keep them."""
    found = []
    for sampler in REQUIRED:
        column = [scores[name][sampler] for name in scores]
        bias = max(one.bias for one in column)
        spread = max(abs(one.spread - 1) for one in column)
        where = f"{sampler} on {len(column)} posteriors"
        found.append(Check(f"{where}: largest bias / sd", f"{bias:.3f}", f"< {BIAS}", bias < BIAS))
        found.append(Check(f"{where}: largest error of sd", f"{spread:.3f}", f"< {SPREAD}", spread < SPREAD))
    return found


def text(scores: dict[str, dict[str, Score]], kinds: dict[str, str], size: Size) -> str:
    """A table of biases and spreads, and one of effective draws."""
    header = ("posterior", "kind", *SAMPLERS)

    def rows(show: Callable[[Score], str]) -> list[tuple[str, ...]]:
        return [
            (name.partition("-")[0], kinds[name], *map(show, row.values())) for name, row in scores.items()
        ]

    total = size.num_chains * size.num_samples
    lowest = min(one.ess for row in scores.values() for one in row.values())
    return "\n".join(
        [
            "Largest |bias| / sd and the ratio of sd farthest from 1, over all parameters of a posterior; "
            f"{size.num_chains} chains of {size.num_samples} draws after {size.num_burnin} of burn-in. The "
            "reference is a summary of 10,000 independent draws of "
            "[posteriordb](https://github.com/stan-dev/posteriordb). The other three posteriors with a "
            "reference in the data folder are further linear regressions.",
            "",
            table(header, rows(lambda one: f"{one.bias:.3f}, {one.spread:.3f}")),
            "",
            f"Effective draws of {total:,} (the least of all parameters and of their squares), R-hat, and "
            f"seconds of processor time with compilation; the smallest effective number is {lowest:,.0f}. "
            "Adjusted MCLMC has no masses, so it takes two transitions a draw. HMC and adjusted MCLMC start "
            "where a short run of NUTS ended, which also gives the latter's length; HMC's seconds include "
            "it: from near zero, where the others start, trajectories of one length may end in a trap of the "
            "mixture of Gaussians, a component that sits on one observation.",
            "",
            table(header, rows(lambda one: f"{one.ess:,.0f}, {one.rhat:.3f}, {one.seconds:.0f} s")),
            "",
            "![Bias and spread against the reference](posteriordb.png)",
        ]
    )


def draw_figure(scores: dict[str, dict[str, Score]]) -> None:
    """Bias and spread of every sampler on every posterior, with the bounds."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    places = np.arange(len(scores))
    for index, sampler in enumerate(SAMPLERS):
        shift = 0.14 * (index - 2)
        column = [row[sampler] for row in scores.values()]
        marker = "o" if sampler in REQUIRED else "x"
        axes[0].plot([one.bias for one in column], places + shift, marker, ms=4, label=sampler)
        axes[1].plot([one.spread for one in column], places + shift, marker, ms=4)
    axes[0].axvline(BIAS, color="grey", lw=0.8, ls="--")
    for bound in (1 - SPREAD, 1 + SPREAD):
        axes[1].axvline(bound, color="grey", lw=0.8, ls="--")
    axes[0].set(xlabel="largest |bias| / sd", xlim=(0, None), yticks=places)
    axes[0].set_yticklabels([name.partition("-")[0] for name in scores])
    axes[0].invert_yaxis()
    axes[1].set(xlabel="ratio of sd farthest from 1")
    figure.legend(loc="outside upper center", ncols=5, frameon=False, fontsize=8)
    RESULTS.mkdir(parents=True, exist_ok=True)
    figure.savefig(RESULTS / "posteriordb.png", dpi=130)
    plt.close(figure)
