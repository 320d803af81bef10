"""Laplace against laplace-torch on the same weights: the posterior, the linearised predictive, the evidence.

In float64, so that what differs is the method and not rounding; single precision has a test of its own.
"""

import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import density, evaluate, inference
from symbnn.posteriors import FixedLeaves
from tests.inference.cases import LinearModel

torch = pytest.importorskip("torch")
laplace_torch = pytest.importorskip("laplace")

# What laplace-torch itself calls.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")

NOISE, PRIOR_PRECISION = 0.3, 2.5
SHAPES = {"mlp": (5,), "cnn": (2, 6, 6)}
OURS = {"full": "full", "kron": "kronecker", "diag": "diagonal", "lowrank": "low_rank"}
RELATIVE = 1e-4


class Case(NamedTuple):
    """A network in both libraries, at the same weights, with data."""

    network: Any
    model: LinearModel
    params: dict[str, np.ndarray]
    inputs: np.ndarray
    targets: np.ndarray
    test_inputs: np.ndarray

    @property
    def is_regression(self) -> bool:
        return self.targets.ndim == 2


def relative(ours: Any, theirs: Any) -> float:
    """Largest difference in units of the largest number."""
    ours, theirs = np.asarray(ours), theirs.detach().numpy()
    assert ours.shape == theirs.shape
    return float(np.max(np.abs(ours - theirs)) / np.max(np.abs(theirs)))


def mlp(params: dict[str, Any], x: Any) -> Any:
    hidden = jnp.tanh(x @ params["0"].T + params["1"])
    return hidden @ params["2"].T + params["3"]


def cnn(params: dict[str, Any], x: Any) -> Any:
    """In PyTorch's layout, with a stride and padding."""
    numbers = ("NCHW", "OIHW", "NCHW")
    first = jax.lax.conv_general_dilated(x, params["0"], (1, 1), ((1, 1), (1, 1)), dimension_numbers=numbers)
    hidden = jnp.tanh(first + params["1"][:, None, None])
    second = jax.lax.conv_general_dilated(hidden, params["2"], (2, 2), "VALID", dimension_numbers=numbers)
    hidden = jnp.tanh(second + params["3"][:, None, None]).reshape(len(x), -1)
    return hidden @ params["4"].T + params["5"]


@functools.cache
def case(name: str, task: str, dtype: str = "float64") -> Case:
    torch.manual_seed(0)
    num_outputs = 2 if task == "regression" else 3
    nn = torch.nn
    layers = {
        "mlp": lambda: [nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, num_outputs)],
        "cnn": lambda: [
            nn.Conv2d(2, 3, 3, padding=1),
            nn.Tanh(),
            nn.Conv2d(3, 4, 2, stride=2),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(36, num_outputs),
        ],
    }
    network = nn.Sequential(*layers[name]()).double()
    leaves = enumerate(network.parameters())
    params = {str(index): leaf.detach().numpy().astype(dtype) for index, leaf in leaves}
    random = np.random.default_rng(0)
    inputs = random.normal(size=(24, *SHAPES[name]))
    targets = random.normal(size=(19, 2)) if task == "regression" else random.integers(3, size=19)
    apply = {"mlp": mlp, "cnn": cnn}[name]
    model = LinearModel(lambda key: jax.tree.map(jnp.asarray, params), apply, None)
    return Case(network, model, params, inputs[:19], targets, inputs[19:])


def theirs(given: Case, subset: str, structure: str) -> Any:
    """laplace-torch, fitted in batches of unequal size."""
    data = torch.utils.data.TensorDataset(torch.tensor(given.inputs), torch.tensor(given.targets))
    task = "regression" if given.is_regression else "classification"
    noise = {"sigma_noise": NOISE} if given.is_regression else {}
    fitted = laplace_torch.Laplace(
        given.network, task, subset, structure, prior_precision=PRIOR_PRECISION, **noise
    )
    fitted.fit(torch.utils.data.DataLoader(data, batch_size=8))
    return fitted


def ours(given: Case, subset: str, structure: str, **settings: Any) -> inference.Fit:
    likelihood = density.gaussian(NOISE) if given.is_regression else density.categorical()
    target = density.target(
        given.model,
        density.Batch(given.inputs, given.targets),
        likelihood=likelihood,
        prior=density.gaussian_prior(PRIOR_PRECISION**-0.5),
    )
    method = inference.laplace(
        structure=OURS[structure],
        leaves=None if subset == "all" else subset,
        pretrain_epochs=0,
        chunk_size=7,
        initial=jax.tree.map(jnp.asarray, given.params),
        **settings,
    )
    return method(jax.random.key(0), target)


def covariance(posterior: Any) -> np.ndarray:
    """Dense, from the loadings of the unit vectors; leaves are in PyTorch's order."""
    law = posterior.free if isinstance(posterior, FixedLeaves) else posterior
    sizes = [leaf.size for leaf in jax.tree.leaves(law.mean)]
    units = np.split(np.eye(sum(sizes)), np.cumsum(sizes)[:-1], axis=1)
    shaped = jax.tree.unflatten(
        jax.tree.structure(law.mean),
        [unit.reshape(-1, *leaf.shape) for unit, leaf in zip(units, jax.tree.leaves(law.mean), strict=True)],
    )
    loadings = jax.tree.leaves(jax.jit(jax.vmap(law.loadings))(shaped))
    rows = np.concatenate([np.reshape(leaf, (sum(sizes), -1)) for leaf in loadings], axis=1)
    return rows @ rows.T


def their_covariance(fitted: Any, structure: str) -> Any:
    if structure == "full":
        return fitted.posterior_covariance
    if structure == "diag":
        return torch.diag(fitted.posterior_variance)
    return fitted.posterior_precision.to_matrix(exponent=-1)


FAST = ("mlp", "classification", "all", "kron")
CASES = [
    pytest.param(*each, id="-".join(each), marks=() if each == FAST else pytest.mark.slow)
    for each in itertools.product(
        SHAPES, ("regression", "classification"), ("all", "last_layer"), ("full", "kron", "diag")
    )
]


def differences(given: Case, fitted: Any, fit: inference.Fit, structure: str) -> dict[str, float]:
    """Of everything that both libraries give."""
    inputs, test_inputs = jnp.asarray(given.test_inputs), torch.tensor(given.test_inputs)
    outputs = evaluate.linearised(given.model.apply, fit, inputs, block_inputs=2)
    mean, variance = fitted._glm_predictive_distribution(test_inputs)
    found = {
        "covariance": relative(covariance(fit.posterior), their_covariance(fitted, structure)),
        "evidence": relative(fit.diagnostics["log_marginal_likelihood"], fitted.log_marginal_likelihood()),
        "mean of outputs": relative(outputs.mean, mean),
        "covariance of outputs": relative(outputs.covariance, variance),
    }
    for link in () if given.is_regression else ("probit", "bridge"):
        probs = evaluate.predict_linearised(given.model.apply, fit, inputs, link=link)
        found[link] = relative(probs, fitted(test_inputs, link_approx=link))
    return found


@pytest.mark.parametrize(("name", "task", "subset", "structure"), CASES)
def test_all_numbers_are_those_of_laplace_torch(name, task, subset, structure):
    with jax.enable_x64(True):
        given = case(name, task)
        found = differences(
            given, theirs(given, subset, structure), ours(given, subset, structure), structure
        )
    assert max(found.values()) < RELATIVE, found


@pytest.mark.slow
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_low_rank_that_holds_everything_is_their_full_one(task):
    """Their own low rank is of the Hessian, by a package that is not published: there is no like for like."""
    with jax.enable_x64(True):
        given = case("mlp", task)
        fit = ours(given, "all", "lowrank", rank=50)
        found = differences(given, theirs(given, "all", "full"), fit, "full")
    assert max(found.values()) < RELATIVE, found


@pytest.mark.slow
@pytest.mark.parametrize("structure", ["full", "kron", "diag"])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_single_precision_is_as_near(task, structure):
    given = case("cnn", task, "float32")
    fit = ours(given, "all", structure)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(fit.posterior))
    found = differences(given, theirs(given, "all", structure), fit, structure)
    assert max(found.values()) < RELATIVE, found


@pytest.mark.slow
@pytest.mark.parametrize("structure", ["full", "kron", "diag"])
def test_the_tuned_prior_and_noise_maximise_their_evidence_too(structure):
    """By theirs, as a function of both, at our optimum and around it."""
    with jax.enable_x64(True):
        given = case("mlp", "regression")
        fitted = theirs(given, "all", structure)
        found = ours(given, "all", structure, tune=("prior", "noise")).diagnostics
    precision, noise = PRIOR_PRECISION / float(found["prior_factor"]) ** 2, float(found["noise"])

    def evidence(precision_factor: float, noise_factor: float) -> float:
        given = (
            torch.tensor([float(precision * precision_factor)]),
            torch.tensor(float(noise * noise_factor)),
        )
        return float(fitted.log_marginal_likelihood(*given))

    best = evidence(1.0, 1.0)
    np.testing.assert_allclose(best, found["log_marginal_likelihood"], rtol=RELATIVE)
    assert all(evidence(*moved) < best for moved in ((1.1, 1.0), (0.9, 1.0), (1.0, 1.05), (1.0, 0.95)))
