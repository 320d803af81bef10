"""Tables of rows as problems: a perceptron gives a mean and a spread for every target."""

from typing import Any

import jax
import jax.numpy as jnp

from experiments.common.problem import Problem, prior
from symbnn import data, density, models
from symbnn.types import Key


def load(
    config: Any,
    name: str,
    *,
    hidden: tuple[int, ...],
    activation: str,
    likelihood: density.Likelihood,
    prior_scale: float,
    test_share: float = 0.2,
    key: Key | None = None,
) -> Problem:
    """The table `name` and a perceptron with means and spreads: `labels` are columns of standardised values.

    `key` is that of `config.seed` unless another is given.
    """
    read = data.load(
        name,
        data_dir=config.data.directory,
        num_train=config.data.num_train,
        num_test=config.data.num_test,
        seed=config.seed,
        test_share=test_share,
    )
    num_outputs = 2 * read.train.targets.shape[1]
    model = models.mlp(read.input_shape, num_outputs, hidden=hidden, activation=activation, rows="last")
    target = density.target(model, read.train, likelihood=likelihood, prior=prior(prior_scale))
    return Problem(
        config,
        jax.random.key(config.seed) if key is None else key,
        read,
        read.input_shape,
        "mlp",
        model,
        target,
        jnp.asarray(read.test.inputs),
        jnp.asarray(read.test.targets),
    )
