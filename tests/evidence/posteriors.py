"""Ten posteriors of posteriordb (Magnusson et al. 2024, github.com/stan-dev/posteriordb) as plain log-
densities.

Each is a function of its data to a `Posterior` over unconstrained numbers: the log-density has the Jacobian
of the transformation to the parameters of the model, up to a constant. Of the thirteen that lie in the data
folder these are of different kinds; the other three are more linear regressions.
"""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid, logsumexp, sigmoid
from jax.scipy import stats
from jaxtyping import Array

Parameters = dict[str, Array]


class Posterior(NamedTuple):
    """A log-density with what the reference has numbers of."""

    kind: str
    shapes: dict[str, tuple[int, ...]]
    """Of the unconstrained parameters."""
    log_density: Callable[[Parameters], Array]
    constrain: Callable[[Parameters], Parameters]
    """To the parameters of the model, by their names there."""


class Reference(NamedTuple):
    """Mean and standard deviation of the 10,000 reference draws of every parameter."""

    mean: dict[str, float]
    std: dict[str, float]


def load(folder: Path, name: str) -> tuple[Posterior, Reference]:
    """A posterior of `POSTERIORS` with its data and reference from the folder `name`."""
    data = json.loads((folder / name / "data.json").read_text())
    arrays = {key: np.asarray(value, np.float32) for key, value in data.items()}
    found = json.loads((folder / name / "reference.json").read_text())
    numbers = ({key: entry[which] for key, entry in found.items()} for which in ("mean", "sd"))
    return POSTERIORS[name](arrays), Reference(*numbers)


def named_numbers(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """`beta` of shape (..., 3) as `beta[1]`, `beta[2]`, `beta[3]`, counted as Stan does; (...) stays `beta`.

    Two leading axes, chains and draws, belong to the draws.
    """
    numbers: dict[str, Any] = {}
    for name, value in parameters.items():
        if value.ndim == 2:
            numbers[name] = value
        else:
            numbers |= {f"{name}[{i + 1}]": value[..., i] for i in range(value.shape[-1])}
    return numbers


def normal(value: Any, mean: Any, std: Any) -> Array:
    """Σ log N(value; mean, std²)."""
    return jnp.sum(stats.norm.logpdf(value, mean, std))


def cauchy(value: Any, scale: float) -> Array:
    """Log-density of a half-Cauchy, up to a constant."""
    return -jnp.log1p(jnp.square(value / scale))


def interval(raw: Array) -> tuple[Array, Array]:
    """(number in (0, 1), log of the Jacobian)."""
    return sigmoid(raw), jnp.sum(log_sigmoid(raw) + log_sigmoid(-raw))


def regression(kind: str, design: np.ndarray, response: np.ndarray) -> Posterior:
    """response ~ N(design β, σ²) with flat priors on β and on σ > 0."""

    def log_density(params: Parameters) -> Array:
        std = jnp.exp(params["log_sigma"])
        return normal(response, design @ params["beta"], std) + params["log_sigma"]

    def constrain(params: Parameters) -> Parameters:
        return {"beta": params["beta"], "sigma": jnp.exp(params["log_sigma"])}

    return Posterior(kind, {"beta": (design.shape[1],), "log_sigma": ()}, log_density, constrain)


def earnings(data: dict[str, np.ndarray]) -> Posterior:
    """Logarithm of earnings on height, sex and their interaction."""
    height, male = data["height"].astype(np.float64), data["male"]
    scaled = (height - height.mean()) / height.std(ddof=1)
    design = np.stack([np.ones_like(scaled), scaled, male, scaled * male], axis=1)
    return regression("linear regression", design.astype(np.float32), np.log(data["earn"]))


def mesquite(data: dict[str, np.ndarray]) -> Posterior:
    """Logarithm of the weight of bushes on those of their volume and area: correlated coefficients."""
    area = data["diam1"] * data["diam2"]
    columns = [np.ones_like(area), np.log(area * data["canopy_height"]), np.log(area), data["group"]]
    return regression("correlated regression", np.stack(columns, axis=1), np.log(data["weight"]))


def nes(data: dict[str, np.ndarray]) -> Posterior:
    """Party of voters on eight of their properties."""
    ages = [data["age_discrete"] == group for group in (2, 3, 4)]
    columns = [data["real_ideo"], data["race_adj"], *ages, data["educ1"], data["gender"], data["income"]]
    design = np.stack([np.ones_like(data["income"]), *columns], axis=1).astype(np.float32)
    return regression("wide regression", design, data["partyid7"])


def autoregression(data: dict[str, np.ndarray]) -> Posterior:
    """A time series on its own last five values."""
    series, order = data["y"], int(data["K"])
    lagged = np.stack([series[order - k - 1 : len(series) - k - 1] for k in range(order)], axis=1)

    def log_density(params: Parameters) -> Array:
        std = jnp.exp(params["log_sigma"])
        prior = normal(params["alpha"], 0, 10) + normal(params["beta"], 0, 10) + cauchy(std, 2.5)
        means = params["alpha"] + lagged @ params["beta"]
        return prior + normal(series[order:], means, std) + params["log_sigma"]

    def constrain(params: Parameters) -> Parameters:
        return {"alpha": params["alpha"], "beta": params["beta"], "sigma": jnp.exp(params["log_sigma"])}

    return Posterior(
        "autoregression", {"alpha": (), "beta": (order,), "log_sigma": ()}, log_density, constrain
    )


def moving_average(data: dict[str, np.ndarray]) -> Posterior:
    """ARMA(1, 1): e_t = y_t - μ - φ y_{t-1} - θ e_{t-1}."""
    series = data["y"]

    def log_density(params: Parameters) -> Array:
        mean, phi, theta, std = (
            *(params[name] for name in ("mu", "phi", "theta")),
            jnp.exp(params["log_sigma"]),
        )
        first = series[0] - (mean + phi * mean)

        def error(last: Array, pair: Array) -> tuple[Array, Array]:
            new = pair[1] - (mean + phi * pair[0] + theta * last)
            return new, new

        _, errors = jax.lax.scan(error, first, jnp.stack([series[:-1], series[1:]], axis=1))
        prior = normal(mean, 0, 10) + normal(phi, 0, 2) + normal(theta, 0, 2) + cauchy(std, 2.5)
        return prior + normal(first, 0, std) + normal(errors, 0, std) + params["log_sigma"]

    def constrain(params: Parameters) -> Parameters:
        return {
            **{name: params[name] for name in ("mu", "phi", "theta")},
            "sigma": jnp.exp(params["log_sigma"]),
        }

    return Posterior(
        "moving average", dict.fromkeys(("mu", "phi", "theta", "log_sigma"), ()), log_density, constrain
    )


def garch(data: dict[str, np.ndarray]) -> Posterior:
    """GARCH(1, 1): σ²_t = α₀ + α₁ (y_{t-1} - μ)² + β₁ σ²_{t-1}, with α₁ + β₁ < 1."""
    series, first = data["y"], float(data["sigma1"]) ** 2

    def constrain(params: Parameters) -> Parameters:
        alpha1, share = sigmoid(params["raw_alpha"]), sigmoid(params["raw_beta"])
        return {
            "mu": params["mu"],
            "alpha0": jnp.exp(params["log_alpha"]),
            "alpha1": alpha1,
            "beta1": (1 - alpha1) * share,
        }

    def log_density(params: Parameters) -> Array:
        mean, alpha0, alpha1, beta1 = constrain(params).values()
        _, jacobian_alpha = interval(params["raw_alpha"])
        _, jacobian_beta = interval(params["raw_beta"])

        def advance(last: Array, value: Array) -> tuple[Array, Array]:
            new = alpha0 + alpha1 * jnp.square(value - mean) + beta1 * last
            return new, new

        _, later = jax.lax.scan(advance, jnp.full_like(mean, first), series[:-1])
        variances = jnp.concatenate([jnp.full((1,), first), later])
        jacobian = params["log_alpha"] + jacobian_alpha + jnp.log1p(-alpha1) + jacobian_beta
        return normal(series, mean, jnp.sqrt(variances)) + jacobian

    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("mu", "log_alpha", "raw_alpha", "raw_beta"), ())
    return Posterior("volatility", shapes, log_density, constrain)


def eight_schools(data: dict[str, np.ndarray]) -> Posterior:
    """θ_j = μ + τ z_j with a half-Cauchy τ: the hierarchy, not centred."""
    effects, errors = data["y"], data["sigma"]

    def constrain(params: Parameters) -> Parameters:
        spread = jnp.exp(params["log_tau"])
        theta = params["z"] * spread[..., None] + params["mu"][..., None]
        return {"theta": theta, "mu": params["mu"], "tau": spread}

    def log_density(params: Parameters) -> Array:
        theta, mean, spread = constrain(params).values()
        prior = normal(params["z"], 0, 1) + normal(mean, 0, 5) + cauchy(spread, 5)
        return prior + normal(effects, theta, errors) + params["log_tau"]

    return Posterior("hierarchy", {"z": (8,), "mu": (), "log_tau": ()}, log_density, constrain)


def gaussian_process(data: dict[str, np.ndarray]) -> Posterior:
    """Length, amplitude and noise (a variance) of a Gaussian process seen at eleven points."""
    inputs, outputs = data["x"], data["y"]
    squares = np.square(inputs[:, None] - inputs[None])

    def constrain(params: Parameters) -> Parameters:
        return {name: jnp.exp(params[f"log_{name}"]) for name in ("rho", "alpha", "sigma")}

    def log_density(params: Parameters) -> Array:
        length, amplitude, noise = constrain(params).values()
        covariance = amplitude**2 * jnp.exp(-0.5 * squares / length**2) + noise * jnp.eye(len(inputs))
        root = jnp.linalg.cholesky(covariance)
        scaled = jax.scipy.linalg.solve_triangular(root, outputs, lower=True)
        likelihood = -0.5 * jnp.sum(jnp.square(scaled)) - jnp.sum(jnp.log(jnp.diagonal(root)))
        prior = 24 * jnp.log(length) - 4 * length + normal(amplitude, 0, 2) + normal(noise, 0, 1)
        return prior + likelihood + sum(params.values())

    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("log_rho", "log_alpha", "log_sigma"), ())
    return Posterior("Gaussian process", shapes, log_density, constrain)


def hidden_markov(data: dict[str, np.ndarray]) -> Posterior:
    """Two hidden states with ordered positive means, summed out by the forward algorithm."""
    series = data["y"]

    def constrain(params: Parameters) -> Parameters:
        stay = {name: sigmoid(params[f"raw_{name}"]) for name in ("theta1", "theta2")}
        means = jnp.cumsum(jnp.exp(params["log_steps"]), axis=-1)
        return {**{name: jnp.stack([p, 1 - p], axis=-1) for name, p in stay.items()}, "mu": means}

    def log_density(params: Parameters) -> Array:
        first, second, means = constrain(params).values()
        log_moves = jnp.log(jnp.stack([first, second]))
        log_emissions = stats.norm.logpdf(series[:, None], means, 1.0)

        def forward(log_states: Array, log_emission: Array) -> tuple[Array, None]:
            return logsumexp(log_states[:, None] + log_moves, axis=0) + log_emission, None

        last, _ = jax.lax.scan(forward, log_emissions[0], log_emissions[1:])
        jacobian = sum(interval(params[name])[1] for name in ("raw_theta1", "raw_theta2"))
        prior = normal(means[0], 3, 1) + normal(means[1], 10, 1)
        return prior + logsumexp(last) + jacobian + jnp.sum(params["log_steps"])

    shapes: dict[str, tuple[int, ...]] = {"raw_theta1": (), "raw_theta2": (), "log_steps": (2,)}
    return Posterior("hidden Markov model", shapes, log_density, constrain)


def mixture(data: dict[str, np.ndarray]) -> Posterior:
    """Two Gaussians with ordered means."""
    values = data["y"]

    def constrain(params: Parameters) -> Parameters:
        low = params["low"]
        return {
            "mu": jnp.stack([low, low + jnp.exp(params["log_gap"])], axis=-1),
            "sigma": jnp.exp(params["log_sigma"]),
            "theta": sigmoid(params["raw_theta"]),
        }

    def log_density(params: Parameters) -> Array:
        means, stds, share = constrain(params).values()
        _, jacobian = interval(params["raw_theta"])
        log_shares = jnp.log(jnp.stack([share, 1 - share]))
        likelihood = jnp.sum(logsumexp(log_shares + stats.norm.logpdf(values[:, None], means, stds), axis=1))
        prior = normal(stds, 0, 2) + normal(means, 0, 2) + 4 * (jnp.log(share) + jnp.log1p(-share))
        return prior + likelihood + jacobian + params["log_gap"] + jnp.sum(params["log_sigma"])

    shapes: dict[str, tuple[int, ...]] = {"low": (), "log_gap": (), "log_sigma": (2,), "raw_theta": ()}
    return Posterior("mixture", shapes, log_density, constrain)


POSTERIORS: dict[str, Callable[[dict[str, np.ndarray]], Posterior]] = {
    "arK-arK": autoregression,
    "arma-arma11": moving_average,
    "earnings-logearn_interaction_z": earnings,
    "eight_schools-eight_schools_noncentered": eight_schools,
    "garch-garch11": garch,
    "gp_pois_regr-gp_regr": gaussian_process,
    "hmm_example-hmm_example": hidden_markov,
    "low_dim_gauss_mix-low_dim_gauss_mix": mixture,
    "mesquite-logmesquite_logva": mesquite,
    "nes1972-nes": nes,
}


def num_parameters(posterior: Posterior) -> int:
    """Unconstrained dimensions."""
    return sum(math.prod(shape) for shape in posterior.shapes.values())
