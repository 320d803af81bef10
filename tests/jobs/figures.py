"""Somebody who wants to see it: spread, ranks, traces and pairs before and after alignment; the groups."""

import jax

from symbnn import data, density, inference, models, plot, symmetry

digits = data.load("digits", flatten=True, num_train=100)
model = models.mlp(digits.input_shape, digits.num_classes, hidden=(4,))
sample = inference.hmc(num_chains=2, num_samples=10, num_burnin=0, step_size=0.01, num_steps=5)
fit = sample(jax.random.key(0), density.target(model, digits.train))
aligned = symmetry.align(model.spec, fit.posterior)

for figure in (
    plot.spread(fit, aligned),
    plot.rank(fit, aligned),
    plot.trace(fit, aligned),
    plot.pairs(fit, aligned),
    plot.groups(model.spec),
):
    figure.savefig("figure.png")
