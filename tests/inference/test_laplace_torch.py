"""Laplace against laplace-torch on the same weights: the posterior, the linearised predictive, the evidence.

In float64, so that what differs is the method and not rounding; single precision has a test of its own.
"""

import functools
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
def case(name: str, task: str) -> Case:
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
    params = {str(i): leaf.detach().numpy() for i, leaf in enumerate(network.parameters())}
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
    loadings = jax.tree.leaves(jax.vmap(law.loadings)(shaped))
    rows = np.concatenate([np.reshape(leaf, (sum(sizes), -1)) for leaf in loadings], axis=1)
    return rows @ rows.T


def their_covariance(fitted: Any, structure: str) -> Any:
    if structure == "full":
        return fitted.posterior_covariance
    if structure == "diag":
        return torch.diag(fitted.posterior_variance)
    return fitted.posterior_precision.to_matrix(exponent=-1)


CASES = [
    pytest.param(name, task, subset, structure, id=f"{name}-{task}-{subset}-{structure}")
    for name in SHAPES
    for task in ("regression", "classification")
    for subset in ("all", "last_layer")
    for structure in ("full", "kron", "diag")
]


@pytest.mark.parametrize(("name", "task", "subset", "structure"), CASES)
def test_all_numbers_are_those_of_laplace_torch(name, task, subset, structure):
    with jax.enable_x64(True):
        given = case(name, task)
        fitted, fit = theirs(given, subset, structure), ours(given, subset, structure)
        assert relative(covariance(fit.posterior), their_covariance(fitted, structure)) < RELATIVE
        evidence = fit.diagnostics["log_marginal_likelihood"]
        assert relative(evidence, fitted.log_marginal_likelihood()) < RELATIVE
        test_inputs = torch.tensor(given.test_inputs)
        outputs = evaluate.linearised(given.model.apply, fit, given.test_inputs, block_inputs=2)
        mean, variance = fitted._glm_predictive_distribution(test_inputs)
        assert relative(outputs.mean, mean) < RELATIVE
        assert relative(outputs.covariance, variance) < RELATIVE
        if given.is_regression:
            return
        for link in ("probit", "bridge"):
            probs = evaluate.predict_linearised(given.model.apply, fit, given.test_inputs, link=link)
            assert relative(probs, fitted(test_inputs, link_approx=link)) < RELATIVE
