"""Toy posterior: what symmetries make of the weights of the smallest network that has them.

Of a network 2-2-1 with ReLU the two weights of the last layer are looked at, over thousands of trainings.
Scaling a unit's incoming weights by λ and its outgoing weight by 1/λ changes no prediction, nor does swapping
the units. Training keeps the imbalance of the start between incoming and outgoing weights, so the weights lie
on a ring; with incoming weights of one length they lie on the diamond |w_1| + |w_2| = const that the data ask
for; and with the units in order only one half of it is left. Figure 1 of Laurent, Aldea, Franchi (2024).
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs.toy_posterior import ToyPosterior
from experiments.common import methods
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Row, Table
from experiments.toy_posterior import figures
from symbnn import data, density, keys, models, symmetry, tree
from symbnn.types import Params, Samples

TRAINED, RESCALED, SORTED = "as trained", "scaling removed", "scaling and permutation removed"
PAPER = "The paper's figure shows a ring, a diamond and half a diamond; it gives no numbers."


def run(config: ToyPosterior, rundir: Path | str) -> Table:
    """All stages of the study; returns the table of the three gauges."""
    with open_run("toy_posterior", config, rundir) as opened:
        points = two_clouds(config)
        model = models.mlp((2,), 1, hidden=(2,))
        networks = opened.stage("networks", lambda: _train(config, model, points))
        kept = np.flatnonzero(np.asarray(networks["loss"]) <= config.max_loss)
        if kept.size == 0:
            raise ValueError(f"no network reached --max-loss {config.max_loss:g}; train longer or raise it")
        samples = tree.take(networks["samples"], kept)
        moved = opened.stage("gauges", lambda: _gauges(config, model, points, samples))
        return _present(opened, config, kept.size, moved)


def two_clouds(config: ToyPosterior) -> data.Split:
    """Two Gaussian clouds on either side of the origin, as many points in each; targets 0 and 1."""
    generator = np.random.default_rng(config.seed)
    centre = np.full(2, config.distance / np.sqrt(2.0))
    noise = config.spread * generator.normal(size=(2, config.num_points, 2))
    inputs = (noise + np.stack([centre, -centre])[:, None]).reshape(-1, 2)
    targets = np.repeat([1.0, 0.0], config.num_points)[:, None]
    return data.Split(inputs.astype(np.float32), targets.astype(np.float32))


def _train(config: ToyPosterior, model: models.Model, points: data.Split) -> dict[str, Any]:
    """All networks, and the mean loss of each in the last epoch."""
    fit = methods.ensemble(
        keys.named(jax.random.key(config.seed), "training"),
        density.target(model, points, likelihood=density.bernoulli()),
        config,
        num_members=config.num_networks,
        optimizer="sgd",
        objective="mle",
        members_per_block=config.members_per_block,
    )
    return {"samples": fit.posterior.samples, "loss": fit.diagnostics["loss"][:, -1]}


def _gauges(
    config: ToyPosterior, model: models.Model, points: data.Split, samples: Samples
) -> dict[str, dict[str, Any]]:
    """The two last weights in every gauge, and by how much the gauge changed the logits of the points."""
    rescaled = jax.jit(
        jax.vmap(lambda params: symmetry.normalise(model.spec, params, scale=config.incoming_norm))
    )(samples)
    ordered = jax.jit(jax.vmap(lambda params: sort_by_outgoing(model.spec, params)))(rescaled)
    inputs = jnp.asarray(points.inputs)
    logits = jax.jit(lambda networks: jax.lax.map(lambda params: model.apply(params, inputs), networks))
    before = logits(samples)
    scale = jnp.max(jnp.abs(before))
    return {
        name: {
            "weights": networks["out"]["kernel"][..., 0],
            "change": jnp.max(jnp.abs(logits(networks) - before)) / scale,
        }
        for name, networks in {TRAINED: samples, RESCALED: rescaled, SORTED: ordered}.items()
    }


def sort_by_outgoing(spec: symmetry.SymmetrySpec, params: Params) -> Params:
    """The hidden units in rising order of their outgoing weight, as in the paper's figure.

    After `normalise` any key of the incoming weights but their length would do as well; this one makes the
    picture one half of the plane.
    """
    (group,) = spec.groups
    order = jnp.argsort(params["out"]["kernel"][:, 0])
    element = symmetry.identity(spec)
    return symmetry.act(spec, element._replace(permutations={group.name: order}), params)


def _present(run: Run, config: ToyPosterior, num_kept: int, moved: Any) -> Table:
    weights = {name: np.asarray(moved[name]["weights"]) for name in (TRAINED, RESCALED, SORTED)}
    drawn = figures.last_layer_panels(weights, min_count=config.min_count)
    return present(
        run,
        introduction=[
            f"{config.num_networks} networks 2-2-1 with ReLU and biases, {config.num_epochs} epochs of "
            f"gradient descent with learning rate {config.learning_rate:g} and minibatches of "
            f"{config.batch_size} on 2 × {config.num_points} points; {num_kept} of them end with a mean loss "
            f"of at most {config.max_loss:g} and are kept. Scaling is removed by incoming weights of length "
            f"{config.incoming_norm:g}, permutation by the order of the outgoing weights."
        ],
        tables=[_table(weights, moved)],
        figures=[("last_layer", drawn, "The two weights of the last layer over the networks")],
        findings=[finding(weights), PAPER],
    )


def _variations(pair: np.ndarray) -> tuple[float, float]:
    """Standard deviation over mean of √(w₁² + w₂²), constant on a ring, and of |w₁| + |w₂|, on a diamond."""
    ring, diamond = np.sqrt(np.sum(pair**2, axis=-1)), np.sum(np.abs(pair), axis=-1)
    return float(ring.std() / ring.mean()), float(diamond.std() / diamond.mean())


def _half(pair: np.ndarray) -> float:
    return float(np.mean(pair[:, 0] <= pair[:, 1]))


def _table(weights: dict[str, np.ndarray], moved: Any) -> Table:
    pairs = list(weights.values())
    ring, diamond = zip(*map(_variations, pairs), strict=True)
    rows = (
        Row.of("spread of √(w₁² + w₂²), share of its mean", ring, 3),
        Row.of("spread of |w₁| + |w₂|, share of its mean", diamond, 3),
        Row.of("networks with w₁ ≤ w₂, %", (100 * _half(pair) for pair in pairs), 1),
        Row.of("largest change of a logit, 10⁻⁶", (1e6 * float(moved[name]["change"]) for name in weights)),
    )
    return Table("The two weights of the last layer in three gauges", tuple(weights), rows)


def finding(weights: dict[str, np.ndarray]) -> str:
    """The shapes that the weights lie on, by the numbers."""
    half = _half(weights[SORTED])
    return (
        f"As trained, {_shape(weights[TRAINED])}. With scaling removed, {_shape(weights[RESCALED])}. With "
        f"the units in order, {100 * half:.0f} % of the networks lie in one half of the plane."
    )


def _shape(pair: np.ndarray) -> str:
    """Which of the two lengths varies less: that of a ring, or that of a diamond."""
    ring, diamond = _variations(pair)
    return (
        f"√(w₁² + w₂²) varies by {100 * ring:.1f} % of its mean and |w₁| + |w₂| by {100 * diamond:.1f} %: "
        f"nearer to a {'ring' if ring < diamond else 'diamond'}"
    )
