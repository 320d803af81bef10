"""The clouds of the toy and the gauge of its figure."""

import re

import jax
import jax.numpy as jnp
import numpy as np

from experiments.toy_posterior import study
from symbnn import models, symmetry
from tests.experiments.cases import debug_config

KEY = jax.random.key(0)


def test_the_clouds_of_the_toy_are_balanced_and_apart():
    points = study.two_clouds(debug_config("toy_posterior"))
    assert points.inputs.shape == (400, 2)
    assert points.targets.mean() == 0.5
    side = points.inputs.sum(-1)
    assert np.mean((side > 0) == (points.targets[:, 0] > 0)) > 0.99


def test_the_gauge_of_the_toy_orders_units_and_keeps_the_function():
    model = models.mlp((2,), 1, hidden=(2,))
    inputs = jax.random.normal(KEY, (5, 2))
    for seed in range(4):
        params = model.init(jax.random.key(seed))
        moved = study.sort_by_outgoing(model.spec, symmetry.normalise(model.spec, params, scale=3.0))
        first, second = np.asarray(moved["out"]["kernel"][:, 0])
        assert first <= second
        lengths = jnp.linalg.norm(moved["hidden"]["kernel"], axis=0)
        np.testing.assert_allclose(lengths, 3.0, rtol=1e-5)
        np.testing.assert_allclose(model.apply(moved, inputs), model.apply(params, inputs), atol=1e-5)


def test_ring_and_diamond_are_told_apart_by_what_varies_less():
    angles = np.linspace(0.1, 6.2, 50)
    ring = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    diamond = ring / np.abs(ring).sum(axis=1, keepdims=True)
    ordered = np.sort(diamond, axis=1)
    said = study.finding({study.TRAINED: ring, study.RESCALED: diamond, study.SORTED: ordered})
    assert re.search(
        r"As trained, .* varies by 0\.0 % of its mean and .*: nearer to a ring\. With scaling", said
    )
    assert re.search(r"With scaling removed, .* \|w₁\| \+ \|w₂\| by 0\.0 %: nearer to a diamond\.", said)
    assert "100 % of the networks lie in one half" in said
