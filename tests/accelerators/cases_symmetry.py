"""The action, balance, checks of a group, and alignment by every method. All computed: the host decides."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import models, symmetry
from symbnn.symmetry.alignment import match
from symbnn.symmetry.alignment.search import assignment
from tests.accelerators.cases import case
from tests.accelerators.cases_inference import KEY, MODEL
from tests.symmetry.cases import draw
from tests.symmetry.group.test_translate import FUSED, SEQUENCES, fused
from tests.symmetry.specs import experts_spec, linear_spec, random_params

WIDE = models.mlp((4,), 3, hidden=(160, 160))
SIGNED = models.mlp((4,), 3, hidden=(5,), activation="tanh")
INPUTS = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)


def several(model: models.Model, num: int = 4) -> object:
    return jax.vmap(model.init)(jax.random.split(KEY, num))


def stacked(spec: symmetry.SymmetrySpec, num: int = 4) -> object:
    """Random weights of a spec without a network."""
    return jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *(random_params(spec, seed) for seed in range(num))
    )


def hidden_of(model: models.Model) -> Callable[..., jax.Array]:
    """What the hidden units of a perceptron compute."""
    first = next(iter(model.init(KEY)))
    return lambda params, inputs: jax.nn.relu(inputs @ params[first]["kernel"] + params[first]["bias"])


@case("action and checks", is_dry=False)
def checks() -> None:
    params = MODEL.init(KEY)
    symmetry.random_element(MODEL.spec, KEY)
    symmetry.verify(MODEL.spec, MODEL.apply, params, INPUTS, KEY)
    moving = draw(FUSED)
    symmetry.verify(symmetry.discover(fused, moving, SEQUENCES), fused, moving, SEQUENCES, KEY)
    symmetry.completeness(MODEL.spec, MODEL.apply, params, INPUTS)


@case("balance", is_dry=False)
def balance() -> None:
    """Of a small network in one program, of a large one by the host."""
    symmetry.balance(MODEL.spec, MODEL.init(KEY))
    symmetry.balance(WIDE.spec, WIDE.init(KEY), max_sweeps=2, max_steps=2)


@case("alignment by weights", is_dry=False)
def by_weights() -> None:
    samples = several(MODEL)
    symmetry.align(MODEL.spec, samples)
    symmetry.align(MODEL.spec, samples, reference="mean")
    symmetry.align(MODEL.spec, samples, precision_weighted=True)
    symmetry.align(MODEL.spec, samples, method="frank_wolfe")
    symmetry.align(SIGNED.spec, several(SIGNED))


@case("alignment in pieces", is_dry=False)
def in_pieces() -> None:
    """As if there were more networks than are held at once."""
    before, match.CHUNK_BYTES = match.CHUNK_BYTES, 1
    symmetry.align(MODEL.spec, several(MODEL))
    match.CHUNK_BYTES = before


@case("alignment by activations", is_dry=False)
def by_activations() -> None:
    settings = {"method": "activations", "inputs": INPUTS}
    for similarity in ("correlation", "inner_product", "contributions"):
        symmetry.align(MODEL.spec, several(MODEL), similarity=similarity, apply=MODEL.apply, **settings)
    hidden, group = hidden_of(MODEL), MODEL.spec.groups[0].name
    symmetry.align(MODEL.spec, several(MODEL), activations=lambda *given: {group: hidden(*given)}, **settings)


@case("alignment of Gaussians", is_dry=False)
def of_gaussians() -> None:
    samples = several(MODEL)
    symmetry.align_gaussians(MODEL.spec, samples, jax.tree.map(jnp.ones_like, samples))


@case("alignment of groups within groups", is_dry=False)
def nested() -> None:
    spec = experts_spec()
    symmetry.align(spec, stacked(spec))


@case("alignment by matrices", is_dry=False)
def by_matrices() -> None:
    spec = linear_spec()
    for reference in (0, "mean"):
        symmetry.align(spec, stacked(spec), reference=reference, restarts=0, max_sweeps=1, max_rounds=1)


@case("assignment on the device", is_dry=False)
def on_device() -> None:
    """What an accelerator does with small matrices."""
    cost = jax.random.normal(KEY, (3, 5, 5))
    assignment._device_greedy(cost)
    assignment.assign(cost, solver="optax")
