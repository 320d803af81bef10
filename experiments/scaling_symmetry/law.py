"""Imbalance of units and its decay under training: the law of weight decay along scaling orbits.

The loss does not change when the incoming weights of a ReLU unit are multiplied by λ and the outgoing ones
divided by it. So its gradient has no part along the orbit, and under gradient flow with weight decay μ the
imbalance D_i = ‖incoming‖² − ‖outgoing‖² of every unit decays alone (Du, Hu, Lee 2018):

    dD_i/dt = −2 μ D_i,   so   D_i(T) = D_i(0) exp(−2 μ Σ_t η_t / (1 − momentum)).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from configs.scaling_symmetry import Law
from experiments.common.optimizers import OPTIMIZERS
from symbnn import density, keys, symmetry
from symbnn.models import Model
from symbnn.programs import has_convolution
from symbnn.symmetry.gauges import mass_of
from symbnn.types import Key, Params, Samples


def imbalance(spec: symmetry.SymmetrySpec, samples: Samples) -> jax.Array:
    """‖incoming‖² − ‖outgoing‖² of every unit, `(samples, units)`; biases are incoming weights."""
    dtype = jnp.zeros(()).dtype
    with jax.enable_x64(True):
        return _imbalance(spec, samples).astype(dtype)


@partial(jax.jit, static_argnames="spec")
def _imbalance(spec: symmetry.SymmetrySpec, samples: Samples) -> jax.Array:
    scales = symmetry.identity(spec).scales
    logs = {name: jnp.zeros(value.shape, jnp.float64) for name, value in scales.items()}
    alive = jax.tree.map(jnp.ones_like, logs)

    def one(params: Params) -> jax.Array:
        both = mass_of(spec, params, True).flow(logs, alive)
        return jnp.concatenate([(both.positive[name] - both.negative[name]).ravel() for name in logs])

    return jax.vmap(one)(samples)


def share_left(before: jax.Array, after: jax.Array) -> jax.Array:
    """Slope of the imbalances after training on those before, by network: what the law gives."""
    return jnp.sum(before * after, axis=-1) / jnp.sum(before**2, axis=-1)


def left_by_law(weight_decay: Any, sum_of_rates: Any, momentum: float = 0.0) -> Any:
    """exp(−2 μ Σ_t η_t / (1 − momentum)); the sum is over the learning rates of all steps."""
    return jnp.exp(-2.0 * weight_decay * sum_of_rates / (1.0 - momentum))


def sweep(
    key: Key, model: Model, batch: density.Batch, law: Law, *, optimizer: str, batch_size: int
) -> jax.Array:
    """`share_left` for every (learning rate, weight decay, network), all trained in one program."""
    rates, decays, networks = jnp.meshgrid(
        jnp.asarray(law.learning_rates),
        jnp.asarray(law.weight_decays),
        jnp.arange(law.num_networks),
        indexing="ij",
    )
    momentum = law.momentum if optimizer in ("momentum", "nesterov") else 0.0
    member_keys = jax.vmap(lambda index: jax.random.fold_in(key, index))(networks.ravel())
    starts = jax.jit(jax.vmap(model.init))(member_keys)
    members = ((1.0 - momentum) * rates.ravel(), decays.ravel(), member_keys, starts)
    ends = _train(model.apply, optimizer, momentum, batch_size, law.num_steps, members, batch)
    left = share_left(imbalance(model.spec, starts), imbalance(model.spec, ends))
    return left.reshape(rates.shape)


@partial(jax.jit, static_argnames=("apply", "name", "momentum", "batch_size", "num_steps"))
def _train(
    apply: Any,
    name: str,
    momentum: float,
    batch_size: int,
    num_steps: int,
    members: tuple[jax.Array, jax.Array, Key, Samples],
    batch: density.Batch,
) -> Samples:
    """Members have a learning rate, weight decay, key and start each; all are traced, so one program does."""
    log_prob = density.categorical().log_prob
    num_images = batch.inputs.shape[0]

    def one(rate: jax.Array, decay: jax.Array, key: Key, start: Params) -> Params:
        optimizer = OPTIMIZERS[name](rate, momentum)

        def loss(params: Params, chosen: density.Batch) -> jax.Array:
            squared = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))
            return -jnp.mean(log_prob(apply(params, chosen.inputs), chosen.targets)) + decay / 2 * squared

        def step(carry: tuple[Params, Any], index: jax.Array) -> tuple[tuple[Params, Any], None]:
            params, state = carry
            chosen = batch
            if batch_size < num_images:
                rows = jax.random.choice(jax.random.fold_in(key, index), num_images, (batch_size,))
                chosen = density.Batch(batch.inputs[rows], batch.targets[rows])
            updates, state = optimizer.update(jax.grad(loss)(params, chosen), state, params)
            return (optax.apply_updates(params, updates), state), None

        (end, _), _ = jax.lax.scan(step, (start, optimizer.init(start)), jnp.arange(num_steps))
        return end

    program = jax.make_jaxpr(apply)(jax.tree.map(lambda leaf: leaf[0], members[-1]), batch.inputs)
    if jax.default_backend() == "cpu" and has_convolution(program.jaxpr):
        # Side by side they are grouped convolutions, which CPUs are slow at.
        return jax.lax.map(lambda member: one(*member), members)
    return jax.vmap(one)(*members)


def orbit(
    apply: Any, spec: symmetry.SymmetrySpec, params: Params, scales: jax.Array, inputs: jax.Array
) -> dict[str, jax.Array]:
    """Masses at all scales of the first generator of every group, and the largest change of a logit."""

    def at(scale: jax.Array) -> tuple[jax.Array, jax.Array]:
        element = symmetry.identity(spec)
        first = {name: value.at[0].set(scale) for name, value in element.scales.items()}
        moved = symmetry.act(spec, element._replace(scales=first), params)
        weights = moved["params"] if density.has_batch_statistics(moved) else moved
        change = jnp.max(jnp.abs(apply(moved, inputs) - logits)) / jnp.max(jnp.abs(logits))
        return jnp.sum(jnp.stack([jnp.sum(leaf**2) for leaf in jax.tree.leaves(weights)])), change

    logits = apply(params, inputs)
    mass, change = jax.jit(lambda scales: jax.lax.map(at, scales))(scales)
    return {"mass": mass, "change": jnp.max(change)}


def normalised_network(
    key: Key, inputs: jax.Array, *, hidden: int, num_outputs: int
) -> tuple[Any, Params, symmetry.SymmetrySpec]:
    """A perceptron with batch normalisation in evaluation mode, fitted to `inputs`: apply, params, spec."""
    flat = inputs.reshape(inputs.shape[0], -1)
    kernels = {
        name: jax.random.normal(keys.named(key, name), shape) / jnp.sqrt(shape[0])
        for name, shape in {"hidden": (flat.shape[1], hidden), "out": (hidden, num_outputs)}.items()
    }
    before = flat @ kernels["hidden"]
    params = {
        "params": {
            "hidden": {"kernel": kernels["hidden"]},
            "norm": {"scale": jnp.ones(hidden), "bias": jnp.zeros(hidden)},
            "out": {"kernel": kernels["out"], "bias": jnp.zeros(num_outputs)},
        },
        "batch_stats": {"norm": {"mean": before.mean(0), "var": before.var(0)}},
    }
    return _apply_normalised, params, symmetry.discover(_apply_normalised, params, flat[:2])


def _apply_normalised(variables: Params, inputs: jax.Array) -> jax.Array:
    params, statistics = variables["params"], variables["batch_stats"]["norm"]
    hidden = inputs.reshape(inputs.shape[0], -1) @ params["hidden"]["kernel"]
    hidden = (hidden - statistics["mean"]) * jax.lax.rsqrt(statistics["var"] + 1e-5)
    hidden = jax.nn.relu(hidden * params["norm"]["scale"] + params["norm"]["bias"])
    return hidden @ params["out"]["kernel"] + params["out"]["bias"]
