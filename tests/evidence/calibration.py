"""Simulation-based calibration (Talts et al. 2018) of what a network says, not of its weights.

Weights are drawn from the prior and targets from the network; a sampler sees the targets only. Among its
draws of f(x*), the value of the true network has a rank that is uniform if the sampler is right. Ranks of raw
weights would be blind to a sampler that never leaves the labelling it starts in, and wrong in the eyes of one
that leaves it half of the time; f(x*) has no labels.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy import stats

from symbnn import density, keys, models
from symbnn.inference.chains import adaptation
from symbnn.inference.chains.kernels import Kernel

NUM_DRAWS = 99
"""Draws per replication: ranks go from 0 to 99."""
NUM_BINS = 20
BAND = 0.95
LEVEL = 0.01


class Case(NamedTuple):
    """A network with the prior and inputs of its simulated problems."""

    name: str
    model: Any
    prior: density.Prior
    likelihood: density.Likelihood
    inputs: np.ndarray
    probes: np.ndarray
    """x*."""
    value: Callable[[Array], Array]
    """Outputs (n, k) -> one number for each x*."""

    def log_density(self, targets: Array) -> density.LogDensity:
        """log p(w | y) up to a constant."""

        def log_likelihood(params: Any) -> Array:
            return jnp.sum(self.likelihood.log_prob(self.model.apply(params, self.inputs), targets))

        return density.LogDensity(log_likelihood, self.prior.log_probs)

    def simulate(self, key: Any) -> tuple[Array, Array]:
        """(f(x*), targets) of a network drawn from the prior."""
        params = self.draw(key)
        targets = self.likelihood.sample(keys.named(key, "targets"), self.model.apply(params, self.inputs))
        return self.values(params), targets

    def draw(self, key: Any) -> Any:
        """Weights from the prior."""
        return self.prior.sample(key, jax.eval_shape(self.model.init, key))

    def values(self, params: Any) -> Array:
        """f(x*)."""
        return self.value(self.model.apply(params, self.probes))


def cases() -> tuple[Case, Case]:
    """A regression and a classification."""
    random = np.random.default_rng(1)
    probes = np.array([[0.0, 0.0], [1.0, 1.0], [-1.5, 0.5], [4.0, -4.0]], np.float32)
    few, more = (random.uniform(-2, 2, size=(num, 2)).astype(np.float32) for num in (8, 20))
    prior = density.gaussian_prior(1.0)
    network = models.mlp((2,), 1, hidden=(3,), activation="tanh")
    classifier = models.mlp((2,), 2, hidden=(4,), activation="tanh")
    regression = Case(
        "regression 2-3-1", network, prior, density.gaussian(0.5), few, probes, lambda outputs: outputs[:, 0]
    )
    classification = Case(
        "classification 2-4-2",
        classifier,
        prior,
        density.categorical(),
        more,
        probes,
        lambda outputs: outputs[:, 1] - outputs[:, 0],
    )
    return regression, classification


Posterior = Callable[[Any, Array], Array]
"""(key, targets) -> f(x*) of `NUM_DRAWS` draws, (draws, x*)."""


def of_kernel(
    case: Case, kernel: Kernel, *, step_size: float, length: float = 1.0, thinning: int, num_burnin: int
) -> Posterior:
    """Draws of a kernel with a fixed tuning that starts from another draw of the prior."""

    def posterior(key: Any, targets: Array) -> Array:
        start = case.draw(keys.named(key, "start"))
        log_density, tuning = case.log_density(targets), adaptation.initial_tuning(start, step_size, length)

        def step(index: Array, state: Any) -> Any:
            return kernel.step(jax.random.fold_in(key, index), state, tuning, log_density)[0]

        state = kernel.init(keys.named(key, "sampler"), start, log_density)
        return draws_of(case, step, state, thinning=thinning, num_burnin=num_burnin)

    return posterior


def draws_of(
    case: Case,
    step: Callable[[Array, Any], Any],
    state: Any,
    *,
    position: Callable[[Any], Any] = lambda state: state.position,
    thinning: int,
    num_burnin: int,
) -> Array:
    """f(x*) of `NUM_DRAWS` states of a chain; `step(number of the transition, state)`."""

    def draw(state: Any, number: Array) -> tuple[Any, Array]:
        first = num_burnin + number * thinning
        state = jax.lax.fori_loop(first, first + thinning, step, state)
        return state, case.values(position(state))

    state = jax.lax.fori_loop(0, num_burnin, step, state)
    return jax.lax.scan(draw, state, jnp.arange(NUM_DRAWS))[1]


def ranks_of(case: Case, posterior: Posterior, num: int, *, seed: int = 0) -> np.ndarray:
    """Ranks (replications, x*), all replications in one program."""

    @jax.jit
    def ranks(keys_: Any) -> Array:
        truth, targets = jax.vmap(case.simulate)(keys_)
        draws = jax.vmap(posterior)(jax.vmap(lambda key: keys.named(key, "posterior"))(keys_), targets)
        return jnp.sum(draws < truth[:, None], axis=1)

    return np.asarray(ranks(jax.random.split(jax.random.key(seed), num)))


class Verdict(NamedTuple):
    """What ranks say of a sampler."""

    chi_squared: float
    """p-value of the histograms, corrected for the number of x*."""
    envelope: float
    """p-value of the distance between the ranks' distribution and the uniform one, corrected likewise."""
    spread: float
    """Standard deviation of the normal scores of the ranks, the farthest from 1 of all x*: 1.2 says that the
    posterior is narrower than the truth is far from it, by a factor of 1.2 if both are normal."""
    shift: float
    """Mean of the normal scores, the farthest from 0."""

    @property
    def p_value(self) -> float:
        """Of both tests together."""
        return min(1.0, 2 * min(self.chi_squared, self.envelope))

    @property
    def is_rejected(self) -> bool:
        """By either test, at the level that both share."""
        return self.p_value < LEVEL


def judge(ranks: np.ndarray) -> Verdict:
    """Both tests, and by how much the ranks are off."""
    num, num_probes = ranks.shape
    histograms = np.stack([np.histogram(row, NUM_BINS, (0, NUM_DRAWS + 1))[0] for row in ranks.T])
    chi_squared = [stats.chisquare(row).pvalue for row in histograms]
    null, found = tails_of_uniform(num), tail_probabilities(ranks)
    envelope = [(1 + np.sum(null <= one)) / (1 + len(null)) for one in found]
    scores = stats.norm.ppf((ranks + 0.5) / (NUM_DRAWS + 1))
    spreads, shifts = scores.std(0), scores.mean(0)
    return Verdict(
        float(min(1.0, num_probes * min(chi_squared))),
        float(min(1.0, num_probes * min(envelope))),
        float(spreads[np.argmax(np.abs(spreads / scores_of_uniform() - 1))] / scores_of_uniform()),
        float(shifts[np.argmax(np.abs(shifts))]),
    )


def scores_of_uniform() -> float:
    """Standard deviation of the scores of uniform ranks: a little below 1, as ranks end at 0 and 99."""
    return float(stats.norm.ppf((np.arange(NUM_DRAWS + 1) + 0.5) / (NUM_DRAWS + 1)).std())


def tail_probabilities(ranks: np.ndarray) -> np.ndarray:
    """Per column, the smallest two-sided binomial probability of #{rank <= r} (Säilynoja et al. 2022)."""
    num, num_columns = ranks.shape
    histograms = np.zeros((NUM_DRAWS + 1, num_columns), int)
    np.add.at(histograms, (ranks, np.arange(num_columns)), 1)
    counts = np.cumsum(histograms, axis=0)[:-1]
    shares = (np.arange(NUM_DRAWS) + 1.0)[:, None] / (NUM_DRAWS + 1)
    below, above = stats.binom.cdf(counts, num, shares), stats.binom.sf(counts - 1, num, shares)
    return 2 * np.minimum(below, above).min(0)


@functools.cache
def tails_of_uniform(num: int) -> np.ndarray:
    """`tail_probabilities` of 2,000 sets of uniform ranks."""
    return tail_probabilities(np.random.default_rng(0).integers(NUM_DRAWS + 1, size=(num, 2000)))


def band(num: int) -> tuple[np.ndarray, np.ndarray]:
    """Between which #{rank <= r} / num - (r + 1) / 100 lies for all r at once, 95 times in 100."""
    level = np.quantile(tails_of_uniform(num), 1 - BAND)
    shares = (np.arange(NUM_DRAWS) + 1.0) / (NUM_DRAWS + 1)
    low, high = stats.binom.ppf(level / 2, num, shares), stats.binom.isf(level / 2, num, shares)
    return low / num - shares, high / num - shares
