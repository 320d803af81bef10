# %% [markdown]
# # A posterior in 20 kB
#
# HMC on a small network leaves hundreds of copies of its weights. Can one Gaussian say the same? This page
# fits one to the raw draws, one to the aligned draws, and one that is then refined. It runs the control that
# shows what the last step proves and what it does not, and it keeps the result in a small file.
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
# Four chains, each from a network that was trained for a moment. The chains are short, so that this page
# takes less than two minutes; the study [compact_posterior](../results/compact_posterior/digits/README.md)
# does the same at length.

# %%
train_four = inference.ensemble(num_members=4, epochs=30, progress=None)
starts = train_four(jax.random.key(0), target).posterior
sample = inference.hmc(
    num_chains=4,
    num_samples=50,
    num_burnin=50,
    step_size=0.01,
    num_steps=50,
    initial=starts.samples,
    progress=None,
)
draws = sample(jax.random.key(1), target).posterior
reference = evaluate.predict(model.apply, draws, test)
print("draws:", tree.num_samples(draws.samples), " accuracy:", f"{evaluate.accuracy(reference, labels):.3f}")

# %% [markdown]
# ## One Gaussian, raw and aligned
#
# **Agreement** is the share of test images with the same most probable class as the draws. **TV**, the
# total variation, is half the sum over classes of the absolute difference of two predictions, averaged over
# the images: 0 if they are equal, 1 if they have nothing in common. Every law is judged by 100 networks
# drawn from it.


# %%
def compare(name, probs):
    scores = evaluate.agreement(probs, reference), evaluate.total_variation(probs, reference)
    print(f"{name:14} agreement {scores[0]:.3f}   TV {scores[1]:.3f}")


def predict(law):
    return evaluate.predict(model.apply, law, test, key=jax.random.key(2), num_samples=100)


aligned = symmetry.align(model.spec, draws, reference="mean")
q_d, q_r = compact.gaussian(draws), compact.gaussian(aligned)
compare("q_d", predict(q_d))
compare("q_r", predict(q_r))

# %%
plot.spread(q_d, q_r)

# %% [markdown]
# Alignment helps. But the histogram shows that it makes single weights only a little narrower: the data
# leave most of them nearly as free as the prior does, whose standard deviation is 1. And one Gaussian with
# independent weights is still a poor predictor. It has the spread of every weight, but not their
# correlation: in the draws, a weight that is too large is made up for by others.
#
# ## Refined
#
# `refine` moves means and standard deviations until the predictions on the training images are those of the
# draws. It sees neither labels nor test images.

# %%
taught = evaluate.predict(model.apply, draws, train)
settings = {"epochs": 60, "loss": "squared", "progress": None}
refined = compact.refine(q_r, model, train, taught, jax.random.key(3), **settings).posterior
compare("q_r", predict(q_r))
compare("refined q_r", predict(refined))

# %% [markdown]
# ## The control
#
# Does this show that alignment found something? Start the same fit from a law that knows nothing of the
# draws: a fresh network with a little noise on every weight. Steps count in standard deviations of the
# start. Here these are small, so the step is larger.

# %%
fresh = model.init(jax.random.key(4))
random_start = posteriors.DiagonalGaussian(fresh, jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.05), fresh))
control = compact.refine(
    random_start, model, train, taught, jax.random.key(3), learning_rate=0.1, **settings
).posterior
compare("refined q_r", predict(refined))
compare("random start", predict(control))

# %% [markdown]
# Both are far nearer to the draws than q_r was. So good predictions do not show that alignment found
# anything. What tells the two apart is how far each law is from q_r, which has the marginals of the aligned
# draws. `displacement` gives the divergence in nats per weight, and the ratio of the standard deviations:
# near 0 is a single network, 1 is as broad as q_r.

# %%
for name, law in (("refined q_r", refined), ("random start", control)):
    moved = compact.displacement(law, q_r)
    print(f"{name:14} KL to q_r {moved.divergence:.2f}   ratio of standard deviations {moved.std_ratio:.3f}")

# %% [markdown]
# The random start ends as hardly more than one network. The refined law keeps a good part of the spread of
# the draws.
#
# ## The rival of the same size
#
# Two networks are as many numbers as a mean and a standard deviation for every weight. So two of the draws,
# the last of two chains, are what a compact law has to beat.

# %%
two = tree.take(draws.samples, jnp.array([49, 99]))
compare("refined q_r", predict(refined))
compare("two draws", evaluate.predict(model.apply, two, test))

# %% [markdown]
# ## 20 kB on disk
#
# `save_posterior` writes the numbers and a description of them, of a few kB. What `load_posterior` gives back
# predicts the same, to the last bit.

# %%
import tempfile
from pathlib import Path

from symbnn import io

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "posterior.safetensors"
    for name, law in (("all draws", draws), ("two draws", posteriors.Empirical(two)), ("refined", refined)):
        io.save_posterior(path, law)
        print(f"{name:10} {path.stat().st_size:9,} bytes")
    back, _ = io.load_posterior(path)
print("same predictions:", bool((predict(back) == predict(refined)).all()))

# %% [markdown]
# ## What can go wrong
#
# - **Good predictions are no proof of a good posterior.** Always print `compact.displacement`, and run the
#   random start beside your fit. A law that shrank to one network predicts well too.
# - **Chains that have not converged.** A compact law repeats what the draws say. Look at R-hat in function
#   space first: [Are my chains converged?](convergence.md)
# - **Far from the training data** the refined law was never asked. Add `compact.mixed_up` inputs to those
#   that the fit sees.
# - **Thinned draws are a strong rival.** A few of the draws themselves may predict as well at the same
#   number of bytes, or better. Compare before you compress; see the
#   [questions and answers](../questions.md#why-may-thinned-draws-beat-a-compact-law).
# - **Networks with BatchNorm** cannot be refined: `refine` refuses them.
