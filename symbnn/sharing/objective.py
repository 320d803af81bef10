"""Stage 3: the evidence bound of shared weights, with gradients through the gather.

    L̂ = E_q[log p(y | X, w)] - Σ_k c_k KL(N_k ‖ p) - Σ_outliers KL(N(μ_i, σ_i²) ‖ p)

| `multiplicity`  | c_k                                                      |
|-----------------|----------------------------------------------------------|
| `paper`         | share of the shared weights: one divergence in all       |
| `per_component` | 1: the draws of the components are the latent variables  |
| `per_weight`    | number of weights: mean-field's own count                |

| `prior`      | of a component                                            | of an outlier               |
|--------------|-----------------------------------------------------------|-----------------------------|
| `normal`     | N(0, prior_std²)                                          | N(0, prior_std²)            |
| `pretrained` | N(mean of its members' deterministic weights, prior_std²) | N(its weight, prior_std²)   |
| `anchored`   | itself before the training                                | itself before the training  |

KL is between marginal laws of a weight; with `divergence="plane"` (prior `anchored`) it is between the
two-dimensional Gaussians of a component.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbnn.names import lookup
from symbnn.sharing.posterior import SharedWeights
from symbnn.sharing.stochastic import gaussian_kl

DIVERGENCES = {"marginal": False, "plane": True}


class PriorTables(NamedTuple):
    """The prior of every component and outlier, and how often each component's divergence counts."""

    multiplicities: Any
    means: Any
    variances: Any
    outlier_means: Any
    outlier_variances: Any
    plane_means: Any
    plane_factors: Any


@dataclass(frozen=True)
class Objective:
    """What Stage 3 minimises; hashable, checked when it is made."""

    kl_weight: float = 0.1
    multiplicity: str = "paper"
    prior: str = "normal"
    prior_std: float = 0.1
    divergence: str = "marginal"

    def __post_init__(self) -> None:
        lookup(MULTIPLICITIES, self.multiplicity, "multiplicity")
        lookup(PRIORS, self.prior, "prior")
        lookup(DIVERGENCES, self.divergence, "divergence")
        if self.divergence == "plane" and self.prior != "anchored":
            raise ValueError(f"divergence 'plane' needs the prior 'anchored'; got {self.prior!r}")
        if not self.prior_std > 0 or self.kl_weight < 0:
            raise ValueError(
                "objective: prior_std must be positive and kl_weight not negative; "
                f"got {self.prior_std}, {self.kl_weight}"
            )

    def tables(self, shared: SharedWeights, deterministic: np.ndarray | None = None) -> PriorTables:
        """The prior for `shared`; `deterministic` are the flat Stage-0 weights, for `pretrained`."""
        counts = member_counts(shared)
        means, variances, outlier_means, outlier_variances = PRIORS[self.prior](
            self, shared, counts, deterministic
        )
        single = lambda values: jnp.asarray(values, jnp.float32)  # noqa: E731
        return PriorTables(
            multiplicities=single(MULTIPLICITIES[self.multiplicity](counts)),
            means=single(means),
            variances=single(variances),
            outlier_means=single(outlier_means),
            outlier_variances=single(outlier_variances),
            plane_means=shared.means,
            plane_factors=shared.factors,
        )

    def divergence_of(self, shared: SharedWeights, tables: PriorTables) -> Float[Array, ""]:
        """Both KL terms."""
        if DIVERGENCES[self.divergence]:
            each = plane_kl(shared.means, shared.factors, tables.plane_means, tables.plane_factors)
        else:
            each = gaussian_kl(shared.means[:, 0], shared.variances(), tables.means, tables.variances)
        own = gaussian_kl(
            shared.outlier_means, shared.outlier_stds**2, tables.outlier_means, tables.outlier_variances
        )
        return jnp.sum(tables.multiplicities * each) + jnp.sum(own)


def member_counts(shared: SharedWeights) -> np.ndarray:
    """Weights of every component; an ellipse weight counts for its own, an outlier for none."""
    return _sum_of_members(shared)


def _sum_of_members(shared: SharedWeights, values: np.ndarray | None = None) -> np.ndarray:
    """For every component the sum over its weights, of `values` or of ones."""
    labels = np.delete(np.asarray(shared.labels).astype(np.int64), np.asarray(shared.outlier_indices))
    inside = None if values is None else np.delete(values, np.asarray(shared.outlier_indices))
    return np.bincount(labels, inside, shared.num_components)


def plane_kl(
    means: Float[Array, "k 2"],
    factors: Float[Array, "k 3"],
    prior_means: Float[Array, "k 2"],
    prior_factors: Float[Array, "k 3"],
) -> Float[Array, " k"]:
    """KL between two-dimensional Gaussians by their Cholesky factors."""
    a, b = _matrix(factors), _matrix(prior_factors)
    whitened = jax.scipy.linalg.solve_triangular(b, a, lower=True)
    gap = jax.scipy.linalg.solve_triangular(b, (means - prior_means)[..., None], lower=True)
    log_ratio = jnp.log(prior_factors[:, 0] * prior_factors[:, 2]) - jnp.log(factors[:, 0] * factors[:, 2])
    return 0.5 * (jnp.sum(whitened**2, (1, 2)) + jnp.sum(gap**2, (1, 2)) - 2.0) + log_ratio


def _matrix(factors: Float[Array, "k 3"]) -> Float[Array, "k 2 2"]:
    zero = jnp.zeros_like(factors[:, 0])
    return jnp.stack([factors[:, 0], zero, factors[:, 1], factors[:, 2]], axis=1).reshape(-1, 2, 2)


def _normal(objective: Objective, shared: SharedWeights, counts: np.ndarray, deterministic: Any) -> Any:
    num, outliers, variance = shared.num_components, shared.num_outliers, objective.prior_std**2
    return np.zeros(num), np.full(num, variance), np.zeros(outliers), np.full(outliers, variance)


def _pretrained(objective: Objective, shared: SharedWeights, counts: np.ndarray, deterministic: Any) -> Any:
    if deterministic is None:
        raise ValueError("prior 'pretrained' needs the weights of the deterministic network (Stage 0)")
    deterministic = np.asarray(deterministic, np.float64)
    own, variance = np.asarray(shared.outlier_indices), objective.prior_std**2
    means = _sum_of_members(shared, deterministic) / np.maximum(counts, 1)
    return means, np.full(len(counts), variance), deterministic[own], np.full(len(own), variance)


def _anchored(objective: Objective, shared: SharedWeights, counts: np.ndarray, deterministic: Any) -> Any:
    return shared.means[:, 0], shared.variances(), shared.outlier_means, shared.outlier_stds**2


MULTIPLICITIES = {
    "paper": lambda counts: counts / max(counts.sum(), 1),
    "per_component": lambda counts: np.ones(len(counts)),
    "per_weight": lambda counts: counts,
}
PRIORS = {"normal": _normal, "pretrained": _pretrained, "anchored": _anchored}
