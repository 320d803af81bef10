"""Geweke's joint test (2004) of a Markov kernel on the smallest network that has symmetries.

Two ways to draw weights w and targets y of a network 2-3-1 from their joint law p(w) p(y | w):

    marginal-conditional     w ~ p(w)
    successive-conditional   y ~ p(y | w),   w ~ kernel(w | y),   again and again

A kernel that leaves p(w | y) as it is leaves w distributed as the prior, for ever. So thousands of chains
start from draws of the prior, and after many rounds the means of test functions over them must be those of
the prior. Chains are independent, so a difference of means is compared with its standard error and nothing
has to be said about autocorrelation.

Test functions: values of the network and their squares, log-prior, mass, and log-likelihood, which no
symmetry of the network changes; and every weight and its square, whose laws the symmetries make alike.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy import stats

from symbnn import density, keys, models, tree
from symbnn.density.parts import total
from symbnn.inference.chains import adaptation
from symbnn.inference.chains.kernels import Kernel

LEVEL = 0.01
"""Of a false alarm, over all test functions of a sampler together."""

MODEL = models.mlp((2,), 1, hidden=(3,), activation="tanh")
PRIOR = density.gaussian_prior({"*/bias": 0.5, "*": 1.0})
LIKELIHOOD = density.gaussian(1.0)
INPUTS = np.random.default_rng(0).uniform(-2, 2, size=(6, 2)).astype(np.float32)
PROBES = np.array([[0.0, 0.0], [1.0, -1.0], [3.0, 1.0]], np.float32)
SHAPES = jax.eval_shape(MODEL.init, jax.random.key(0))

Transition = Callable[[Any, Any, Array], Any]
"""(key, weights, targets) -> weights, leaving p(weights | targets) as it is, or meant to."""


class Size(NamedTuple):
    """How much is simulated."""

    num_chains: int = 2048
    num_rounds: int = 60
    num_marginal: int = 400_000


WHOLE = Size()


class Outcome(NamedTuple):
    """How far the successive-conditional simulator is from the prior."""

    functions: tuple[str, ...]
    scores: np.ndarray
    """Differences of means in standard errors."""
    shifts: np.ndarray
    """Differences of means in standard deviations of the prior."""

    @property
    def p_value(self) -> float:
        """Smallest two-sided p-value of all functions, times their number (Bonferroni)."""
        worst = np.max(np.where(np.isfinite(self.scores), np.abs(self.scores), np.inf))
        return float(min(1.0, len(self.scores) * 2 * stats.norm.sf(worst)))

    @property
    def worst(self) -> int:
        """Index of the function that says most against the sampler."""
        return int(np.argmax(np.where(np.isfinite(self.scores), np.abs(self.scores), np.inf)))

    @property
    def is_caught(self) -> bool:
        """Whether the test rejects."""
        return self.p_value < LEVEL


def conditional(targets: Array) -> density.LogDensity:
    """log p(w | y) up to a constant."""

    def log_likelihood(params: Any) -> Array:
        return jnp.sum(LIKELIHOOD.log_prob(MODEL.apply(params, INPUTS), targets))

    return density.LogDensity(log_likelihood, PRIOR.log_probs)


def of_kernel(
    kernel: Kernel,
    *,
    step_size: float,
    length: float = 1.0,
    repeats: int = 1,
    density_of: Callable[[Array], density.LogDensity] = conditional,
) -> Transition:
    """`repeats` steps of a kernel with a fixed tuning."""

    def transition(key: Any, params: Any, targets: Array) -> Any:
        log_density, tuning = density_of(targets), adaptation.initial_tuning(params, step_size, length)
        state = kernel.init(keys.named(key, "start"), params, log_density)

        def body(index: Array, state: Any) -> Any:
            return kernel.step(jax.random.fold_in(key, index), state, tuning, log_density)[0]

        return jax.lax.fori_loop(0, repeats, body, state).position

    return transition


def geweke(transition: Transition, size: Size = WHOLE, *, seed: int = 0) -> Outcome:
    """The test of one kernel."""
    key_marginal, key_start, key_rounds = jax.random.split(jax.random.key(seed), 3)
    draw = jax.vmap(lambda key: PRIOR.sample(key, SHAPES))
    starts = draw(jax.random.split(key_start, size.num_chains))

    @jax.jit
    def marginal(key: Any) -> tuple[Array, Array]:
        def one(key: Any) -> Array:
            params = PRIOR.sample(key, SHAPES)
            return jnp.stack(list(functions(params, keys.named(key, "targets")).values()))

        values = jax.lax.map(one, jax.random.split(key, size.num_marginal), batch_size=10_000)
        return values.mean(0), values.std(0)

    @jax.jit
    def successive(key: Any, starts: Any) -> Array:
        """Means over the second half of the rounds, (chains, functions)."""
        half = size.num_rounds // 2

        def chain(key: Any, params: Any) -> Array:
            def body(index: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
                key_targets, key_move, key_fresh = jax.random.split(jax.random.fold_in(key, index), 3)
                targets = LIKELIHOOD.sample(key_targets, MODEL.apply(carry[0], INPUTS))
                params = transition(key_move, carry[0], targets)
                values = jnp.stack(list(functions(params, key_fresh).values()))
                return params, carry[1] + jnp.where(index >= half, values, 0.0)

            nothing = jnp.zeros(len(functions(params, key)))
            return jax.lax.fori_loop(0, size.num_rounds, body, (params, nothing))[1] / (
                size.num_rounds - half
            )

        return jax.vmap(chain)(jax.random.split(key, size.num_chains), starts)

    mean, std = (np.asarray(array, np.float64) for array in marginal(key_marginal))
    found = np.asarray(successive(key_rounds, starts), np.float64)
    error = np.sqrt(found.var(0, ddof=1) / size.num_chains + std**2 / size.num_marginal)
    difference = found.mean(0) - mean
    names = tuple(functions(tree.take(starts, 0), key_start))
    return Outcome(names, difference / error, difference / std)


def functions(params: Any, key: Any) -> dict[str, Array]:
    """The test functions; `key` draws the targets of the log-likelihood."""
    outputs = MODEL.apply(params, PROBES)[:, 0]
    fresh = LIKELIHOOD.sample(key, MODEL.apply(params, INPUTS))
    log_prior = PRIOR.log_prob(params)
    leaves = tree.named_leaves(params)
    weights = {f"{name}[{i}]": leaf.ravel()[i] for name, leaf in leaves.items() for i in range(leaf.size)}
    return {
        **{f"f(x{i})": value for i, value in enumerate(outputs)},
        **{f"f(x{i})²": value**2 for i, value in enumerate(outputs)},
        "log-prior": log_prior,
        "mass": total(jax.tree.map(jnp.square, params)),
        "log-likelihood": conditional(fresh).log_likelihood(params),
        "log-prior²": log_prior**2,
        **weights,
        **{f"{name}²": value**2 for name, value in weights.items()},
    }
