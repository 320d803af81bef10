"""What networks predict, summed over draws in log-space: nothing saturates, and no draw is kept.

log_probs = log 1/S Σ_s softmax(logits_s)          finite where a float32 probability would be 0 or 1
aleatoric = 1/S Σ_s entropy of softmax(logits_s)
logits    = 1/S Σ_s logits_s
energy    = -1/S Σ_s log Σ_c exp(logits_s)
"""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from scipy.special import logsumexp

from experiments.common.problem import Problem
from symbnn import evaluate, keys, tree
from symbnn.data import Streamed
from symbnn.density import categorical
from symbnn.evaluate.corrections.lockstep import trace
from symbnn.evaluate.corrections.moments import with_statistics
from symbnn.posteriors import Empirical
from symbnn.types import Params, Samples

Predictions = dict[str, np.ndarray]
# What a network says before the softmax.
LOGITS = categorical()._replace(name="logits", predictive=lambda outputs: outputs)


def predict(problem: Problem, posterior: Any, inputs: Any, labels: Any = None) -> Predictions:
    """Of all draws together, and with labels the accuracy of every draw (`singles`).

    A bare network is one draw, an `Empirical` posterior all its networks. Inputs on disk are read once, block
    by block.
    """
    blocks = inputs.blocks() if isinstance(inputs, Streamed) else [inputs]
    parts, done = [], 0
    for block in blocks:
        own = None if labels is None else np.asarray(labels)[done : done + len(block)]
        parts.append(_summed(problem, posterior, block, own))
        done += len(block)
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name != "right"}
    if labels is not None:
        found["singles"] = np.sum([part["right"] for part in parts], axis=0) / done
    return found


def _summed(problem: Problem, posterior: Any, inputs: Any, labels: np.ndarray | None) -> Predictions:
    total: dict[str, Any] = {}
    right, num = [], 0
    for networks in draws(problem, posterior):
        together = evaluate.predict(problem.model.apply, networks, inputs, members=True, likelihood=LOGITS)
        for logits in np.asarray(together, np.float64):
            energy = -logsumexp(logits, axis=1)
            log_probs = logits + energy[:, None]
            new = {
                "aleatoric": entropy(log_probs),
                "logits": logits,
                "energy": energy,
            }
            total = {name: total.get(name, 0.0) + value for name, value in new.items()} | {
                "log_probs": np.logaddexp(total["log_probs"], log_probs) if total else log_probs
            }
            num += 1
            if labels is not None:
                right.append(np.sum(log_probs.argmax(axis=1) == labels))
    mean = {name: value / num for name, value in total.items() if name != "log_probs"}
    found = mean | {"log_probs": total["log_probs"] - np.log(num)}
    kept = {name: value.astype(np.float32) for name, value in found.items()}
    return kept | ({"right": np.array(right, np.float64)} if labels is not None else {})


def entropy(log_probs: np.ndarray) -> np.ndarray:
    """Of every row, in nats."""
    return -np.sum(np.exp(log_probs) * log_probs, axis=1)


def draws(problem: Problem, posterior: Any) -> Iterator[Samples]:
    """Networks to predict with, as many at a time as there are devices, one on each."""
    size = jax.local_device_count() if jax.default_backend() == "cpu" else 1
    if isinstance(posterior, Empirical):
        each: Iterator[Params] = (
            tree.take(posterior.samples, i) for i in range(tree.num_samples(posterior.samples))
        )
    elif hasattr(posterior, "sample"):
        draw_keys = keys.indexed(keys.named(problem.key, "draws"), 0, problem.config.judging.num_draws)
        each = (_prepared(problem, tree.take(_draw(posterior, key), 0)) for key in draw_keys)
    else:
        each = iter([posterior])
    waiting: list[Params] = []
    for network in each:
        waiting.append(network)
        if len(waiting) == size:
            yield _spread(waiting)
            waiting = []
    for network in waiting:
        yield _spread([network])


def _spread(networks: list[Params]) -> Samples:
    """The networks stacked, each on a device of its own."""
    stacked = tree.stack(networks)
    if len(networks) == 1:
        return stacked
    mesh = Mesh(np.array(jax.local_devices()[: len(networks)]), ("draws",))
    return jax.device_put(stacked, NamedSharding(mesh, PartitionSpec("draws")))


def _prepared(problem: Problem, network: Params) -> Params:
    """The network with statistics of its own, if the config wants them recomputed for every draw."""
    settings = problem.config.model
    if settings.statistics != "recomputed":
        return network
    images = problem.target.data.inputs[: settings.statistics_images]
    return _with_statistics(problem.model.apply, network, jnp.asarray(images))


@functools.partial(jax.jit, static_argnums=0)
def _with_statistics(apply: Any, network: Params, images: jax.Array) -> Params:
    return with_statistics(trace(apply, network, images), network)


@jax.jit
def _draw(posterior: Any, key: jax.Array) -> Any:
    return posterior.sample(key, 1)
