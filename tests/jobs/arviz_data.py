"""An ArviZ user: our fit as InferenceData, for their plots and summaries, and back."""

import arviz
import jax
import numpy as np

from symbnn import data, density, inference, interop, io, models

digits = data.load("digits", flatten=True, num_train=60)
model = models.mlp(digits.input_shape, digits.num_classes, hidden=(3,))
sample = inference.hmc(num_chains=2, num_samples=5, num_burnin=0, step_size=0.01, num_steps=3)
fit = sample(jax.random.key(0), density.target(model, digits.train))

inference_data = io.to_arviz(fit)
print(arviz.summary(inference_data, var_names=["out/bias"], kind="stats"))
back = interop.from_arviz(inference_data)
jax.tree.map(np.testing.assert_array_equal, fit.posterior.samples, back.posterior.samples)
assert back.posterior.num_chains == 2
