"""UCI energy: what the linearised predictive repairs, and what tuning adds; `-m slow -s` prints the table."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from symbnn import data, density, evaluate, inference, models
from tests.data.test_real import needs

KEY = jax.random.key(0)
NOISE, NUM_EPOCHS, BATCH_SIZE = 0.05, 3000, 100


@pytest.mark.slow
@needs("uci", "energy")
def test_the_linearised_predictive_is_as_good_as_the_network():
    """RMSE in the units of the targets; networks drawn from the same Gaussians are worse by far."""
    energy = data.load("uci/energy")
    model = models.mlp(energy.input_shape, 1, hidden=(50,), activation="tanh")
    target = density.target(model, energy.train, likelihood=density.gaussian(NOISE))
    steps = NUM_EPOCHS * (len(energy.train.inputs) // BATCH_SIZE)
    network = inference.laplace(
        pretrain_epochs=NUM_EPOCHS,
        batch_size=BATCH_SIZE,
        optimizer=optax.adam(optax.cosine_decay_schedule(1e-2, steps)),
    )(KEY, target).posterior.mean
    scale = energy.target_scale.std

    def summary(prediction):
        return evaluate.regression_summary(prediction, energy.test.targets, scale=scale)

    outputs = model.apply(network, jnp.asarray(energy.test.inputs))
    own = float(np.sqrt(np.mean((np.asarray(outputs) - energy.test.targets) ** 2)) * np.ravel(scale)[0])
    print(f"\nthe network itself: RMSE {own:.3f}")
    found = {}
    for structure in ("diagonal", "kronecker", "low_rank", "full"):
        for tune in ((), ("prior", "noise")):
            method = inference.laplace(
                structure=structure, rank=100, tune=tune, pretrain_epochs=0, initial=network
            )
            fit = method(KEY, target)
            likelihood = density.gaussian(float(fit.diagnostics.get("noise", NOISE)))
            given = {"likelihood": likelihood}
            linear = summary(evaluate.predict_linearised(model.apply, fit, energy.test.inputs, **given))
            drawn = summary(
                evaluate.predict(model.apply, fit, energy.test.inputs, key=KEY, num_samples=200, **given)
            )
            found[structure, tune] = linear, drawn, float(fit.diagnostics["log_marginal_likelihood"])
            print(
                f"{structure:9} {'tuned' if tune else 'as is':5}: linearised RMSE {linear.rmse:.3f} "
                f"NLL {linear.nll:.3f}, drawn RMSE {drawn.rmse:.3f} NLL {drawn.nll:.3f}, "
                f"log evidence {found[structure, tune][2]:.1f}"
            )
    for linear, drawn, _ in found.values():
        assert abs(linear.rmse / own - 1.0) < 0.1
        assert linear.nll < drawn.nll
    for structure in ("diagonal", "kronecker", "low_rank", "full"):
        assert found[structure, ("prior", "noise")][2] > found[structure, ()][2]
