"""Somebody with a regression: RMSE, NLL, CRPS, calibration and coverage in one call."""

import jax
import numpy as np

from symbnn import data, density, evaluate, inference, models

rng = np.random.default_rng(0)
x = rng.uniform(-2, 2, (200, 1)).astype(np.float32)
y = (np.sin(2 * x) + 0.1 * rng.normal(size=x.shape)).astype(np.float32)

model = models.mlp((1,), 2, hidden=(16,))
likelihood = density.heteroscedastic()
target = density.target(model, data.Split(x[:150], y[:150]), likelihood=likelihood)
fit = inference.ensemble(num_members=5, epochs=600, batch_size=50)(jax.random.key(0), target)
prediction = evaluate.predict(model.apply, fit.posterior, x[150:], likelihood=likelihood)
print(summary := evaluate.regression_summary(prediction, y[150:]))
assert summary.rmse < 0.5
