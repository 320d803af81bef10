# %% [markdown]
# # A posterior in 20 kB
#
# HMC on a small network leaves hundreds of copies of its weights. Can one Gaussian say the same? This page
# fits one to the raw draws, one to the aligned draws, and one that is then refined; and it runs the control
# that shows what the last step proves and what it does not.
#
# The network has 64 inputs, 32 hidden units and 10 outputs: 2,410 weights. A mean and a standard deviation
# for each, in float32, are 19,280 bytes.
#
# - **q_d** is the Gaussian with the mean and standard deviation of every weight over the raw draws.
# - **q_r** is the same over aligned draws.
# - **Refined** is q_r after it was moved until it predicts as the draws do.

# %%
import jax
import jax.numpy as jnp

from symbnn import compact, data, density, evaluate, inference, models, plot, posteriors, symmetry, tree

digits = data.load("digits", flatten=True)
model = models.mlp(digits.input_shape, digits.num_classes, hidden=(32,))
target = density.target(model, digits.train)
train, test = jnp.asarray(digits.train.inputs), jnp.asarray(digits.test.inputs)
labels = jnp.asarray(digits.test.targets)

# %% [markdown]
# ## Draws
#
# Two chains, each from a network that was trained for a few seconds. The chains are short, so that this
# page takes less than two minutes; the study `compact_posterior` does the same at length.

# %%
starts = inference.ensemble(num_members=2, epochs=30, progress=None)(jax.random.key(0), target).posterior
sample = inference.hmc(
    num_chains=2,
    num_samples=50,
    num_burnin=50,
    step_size=0.01,
    num_steps=50,
    initial=starts.samples,
    progress=None,
)
draws = sample(jax.random.key(1), target).posterior
reference = evaluate.predict(model.apply, draws.samples, test)
print("draws:", tree.num_samples(draws.samples), " accuracy:", f"{evaluate.accuracy(reference, labels):.3f}")

# %% [markdown]
# ## One Gaussian, raw and aligned
#
# **Agreement** is the share of test images with the same most probable class as the draws. **TV**, the
# total variation, is half the sum over classes of the absolute difference of two predictions: 0 if they are
# equal, 1 if they have nothing in common. Every law is judged by 100 networks drawn from it.


# %%
def show(name, law):
    compare(name, evaluate.predict(model.apply, law, test, key=jax.random.key(2), num_samples=100))


def compare(name, probs):
    scores = evaluate.agreement(probs, reference), evaluate.total_variation(probs, reference)
    print(f"{name:14} agreement {scores[0]:.3f}   TV {scores[1]:.3f}")


aligned = symmetry.align(model.spec, draws, reference="mean")
q_d, q_r = compact.gaussian(draws), compact.gaussian(aligned)
show("q_d", q_d)
show("q_r", q_r)

# %%
plot.spread(draws, aligned)

# %% [markdown]
# Alignment helps, and one Gaussian with independent weights is still a poor predictor. It has the spread of
# every weight, but not their correlation: in the draws, a weight that is too large is made up for by
# another one.
#
# ## Refined
#
# `refine` moves means and standard deviations until the predictions on the training images are those of the
# draws. It sees neither labels nor test images.

# %%
taught = evaluate.predict(model.apply, draws.samples, train)
settings = {"epochs": 60, "loss": "squared", "progress": None}
refined = compact.refine(q_r, model, train, taught, jax.random.key(3), **settings)
show("q_r", q_r)
show("refined q_r", refined.posterior)

# %% [markdown]
# ## The control
#
# Does this show that alignment found something? Start the same fit from a law that knows nothing of the
# draws but the size of the weights: a fresh network as the mean, with the standard deviations of q_r.

# %%
random_start = posteriors.DiagonalGaussian(model.init(jax.random.key(4)), q_r.std)
control = compact.refine(random_start, model, train, taught, jax.random.key(3), **settings)
show("refined q_r", refined.posterior)
show("random start", control.posterior)

# %% [markdown]
# Predictions alone do not tell the two apart as clearly as one might expect. What tells them apart is how
# far each law is from q_r, which has the marginals of the aligned draws: the divergence in nats per weight,
# and the ratio of the standard deviations, where 0 is a single network and 1 is as broad as q_r.

# %%
for name, fit in (("refined q_r", refined), ("random start", control)):
    moved = compact.displacement(fit.posterior, q_r)
    print(f"{name:14} KL to q_r {moved.divergence:.2f}   ratio of standard deviations {moved.std_ratio:.3f}")

# %% [markdown]
# ## The rival of the same size
#
# Two networks are as many numbers as a mean and a standard deviation for every weight. So two of the draws,
# one of each chain, are what a compact law has to beat.

# %%
two = tree.take(draws.samples, jnp.array([49, 99]))
show("refined q_r", refined.posterior)
compare("two draws", evaluate.predict(model.apply, two, test))

# %% [markdown]
# ## 20 kB on disk

# %%
import tempfile
from pathlib import Path

from symbnn import io

with tempfile.TemporaryDirectory() as folder:
    for name, law in (("all draws", draws), ("refined q_r", refined.posterior)):
        path = Path(folder) / "posterior.safetensors"
        io.save_posterior(path, law)
        print(f"{name:14} {path.stat().st_size:,} bytes")

# %% [markdown]
# ## What can go wrong
#
# - **Good predictions are no proof of a good posterior.** Always print `compact.displacement`, and run the
#   random start beside your fit. A law that shrank to one network predicts well too.
# - **Chains that have not converged.** A compact law repeats what the draws say. Look at R-hat in function
#   space first: `diagnostics.function_space`.
# - **Far from the training data** the refined law was never asked. Add `compact.mixed_up` inputs to those
#   that the fit sees.
# - **Thinned draws are a strong rival.** A few of the draws themselves may predict better at the same
#   number of bytes. Compare before you compress; see the questions and answers.
# - **Networks with BatchNorm** cannot be refined: `refine` refuses them.
