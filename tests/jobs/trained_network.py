"""Somebody with one network, trained by a guess of prior and noise: how sure it is, without sampling."""

import jax
import numpy as np

from symbnn import data, density, evaluate, inference, models

rng = np.random.default_rng(0)
x = rng.uniform(-2, 2, (150, 1)).astype(np.float32)
y = (np.sin(2 * x) + 0.1 * rng.normal(size=x.shape)).astype(np.float32)

model = models.mlp((1,), 1, hidden=(16,), activation="tanh")
target = density.target(model, data.Split(x, y), likelihood=density.gaussian(0.5))
# Weights that are trained already come in by `initial=params, pretrain_epochs=0`.
method = inference.laplace(structure="kronecker", tune=("prior", "noise"), pretrain_epochs=800, batch_size=50)
fit = method(jax.random.key(0), target)
print("noise", fit.diagnostics["noise"], "log evidence", fit.diagnostics["log_marginal_likelihood"])

likelihood = density.gaussian(float(fit.diagnostics["noise"]))
prediction = evaluate.predict_linearised(model.apply, fit, np.array([[0.0], [5.0]]), likelihood=likelihood)
print("standard deviation inside the data and far outside", prediction.std[:, 0])
assert prediction.epistemic[1] > 2 * prediction.epistemic[0]
