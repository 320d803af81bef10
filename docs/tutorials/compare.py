# %% [markdown]
# # Which approximate posterior is nearest to HMC?
#
# HMC is slow, so you use something else: an ensemble, SWAG, variational inference (VI), Laplace's
# approximation. This page makes all of them for one small network and compares them with HMC in three ways:
# by scores on test images, by predictions, and by weights.
#
# The last one needs this library. Two sets of networks with other labels are far apart in weight space even
# if they compute the same functions.

# %%
import jax
import jax.numpy as jnp
import optax

from symbnn import data, density, evaluate, inference, models, plot, symmetry, tree

digits = data.load("digits", flatten=True)
model = models.mlp(digits.input_shape, digits.num_classes, hidden=(16,))
target = density.target(model, digits.train)
test, labels = jnp.asarray(digits.test.inputs), jnp.asarray(digits.test.targets)

# %% [markdown]
# ## Five posteriors
#
# A **method** takes a key and a target, which is likelihood and prior on data, and returns a fit. All
# methods share one target. The ensemble is trained first: its members are the **modes** that other methods
# start from.

# %%
train = inference.ensemble(num_members=40, epochs=100, optimizer=optax.adam(1e-2), progress=None)
ensemble = train(jax.random.key(0), target).posterior
mode = tree.take(ensemble.samples, 0)

# %% [markdown]
# HMC starts one chain at each of four members.

# %%
sample = inference.hmc(
    num_chains=4,
    num_samples=100,
    num_burnin=100,
    step_size=0.01,
    num_steps=50,
    initial=tree.take(ensemble.samples, slice(4)),
    progress=None,
)
hmc = sample(jax.random.key(1), target).posterior

# %% [markdown]
# The others are Gaussians around one mode. SWAG goes on training and looks where the weights wander. VI
# fits independent Gaussians to the target. Laplace takes the curvature at the mode, here of all weights with
# all their correlations.

# %%
wander = optax.sgd(0.1, momentum=0.9)
swag = inference.swag(epochs=40, optimizer=wander, pretrain_epochs=0, initial=mode, progress=None)
variational = inference.variational(epochs=400, optimizer=optax.adam(3e-3), initial=mode, progress=None)
laplace = inference.laplace(structure="full", pretrain_epochs=0, initial=mode, progress=None)
fits = {
    "SWAG": swag(jax.random.key(2), target).posterior,
    "VI": variational(jax.random.key(3), target).posterior,
    "Laplace": laplace(jax.random.key(4), target).posterior,
}

# %% [markdown]
# From here on every posterior is a set of networks: two chains of HMC, which are the reference, the other
# two chains, which show how far HMC is from itself, the ensemble, and a hundred draws of each Gaussian. Of
# HMC every second draw is taken, as neighbours in a chain are alike.

# %%
reference = tree.take(hmc.samples, slice(0, 200, 2))
sets = {"HMC, other": tree.take(hmc.samples, slice(200, 400, 2)), "ensemble": ensemble.samples}
sets |= {name: law.sample(jax.random.key(5), 100) for name, law in fits.items()}
expected = evaluate.predict(model.apply, reference, test)
probs = {name: evaluate.predict(model.apply, networks, test) for name, networks in sets.items()}

# %% [markdown]
# One more: Laplace's Gaussian is made for the network that is linear in its weights around the mode.
# `predict_linearised` predicts with that one.

# %%
probs["Laplace, linear"] = evaluate.predict_linearised(model.apply, fits["Laplace"], test)

# %% [markdown]
# ## By scores
#
# **NLL** is the mean negative logarithm of the probability of the true class. The **Brier score** is the
# squared distance between the probabilities and the truth. **ECE**, the expected calibration error, is the
# mean gap between confidence and accuracy. All three are better when lower.

# %%
print(f"{'':16} accuracy   NLL    Brier  ECE")
for name, each in {"HMC": expected, **probs}.items():
    scores = [evaluate.nll(each, labels), evaluate.brier(each, labels), evaluate.ece(each, labels)]
    print(f"{name:16} {evaluate.accuracy(each, labels):.3f}     ", *(f"{score:.3f} " for score in scores))

# %% [markdown]
# Only Laplace stands out. Its Gaussian is as wide as the prior along all directions that the data leave
# open, and so far away the network is not linear: networks that are drawn are bad. The linear network is
# the remedy, if not a complete one. The others are close together, and HMC need not win: no score asks for
# likeness to the posterior.
#
# The figure shows accuracy against confidence. Above the dashed line, a posterior is right more often than
# it claims, as the linear network of Laplace is. Below is the number of images on a logarithmic scale: where
# it is small, mind the intervals.

# %%
shown = {name: probs[name] for name in ("ensemble", "VI", "Laplace, linear")}
plot.reliability(shown, labels)

# %% [markdown]
# ## By predictions
#
# **Agreement** is the share of test images with the same most probable class as HMC. **TV**, the total
# variation, is half the sum over classes of the absolute difference of two predictions.
#
# The last column asks who notices strange images: digits whose pixels were shuffled, all in one way.
# **AUROC** is the probability that a shuffled image gets less confidence than a digit: 0.5 is chance.

# %%
shuffled = test[:, jax.random.permutation(jax.random.key(6), test.shape[1])]
strange = {name: evaluate.predict(model.apply, networks, shuffled) for name, networks in sets.items()}
strange["Laplace, linear"] = evaluate.predict_linearised(model.apply, fits["Laplace"], shuffled)
unsure = evaluate.max_probability_score
print(f"{'':16} agreement  TV     AUROC")
for name, each in probs.items():
    near = evaluate.agreement(each, expected), evaluate.total_variation(each, expected)
    found = evaluate.auroc(unsure(each), unsure(strange[name]))
    print(f"{name:16} {near[0]:.3f}      {near[1]:.3f}  {found:.3f}")

# %% [markdown]
# Read every row against the first: two halves of HMC are no nearer to each other than that. On test images
# the ensemble may well be as near. On shuffled images, HMC and VI doubt nearly always; the ensemble and
# SWAG, which hardly vary their weights, less often. Likeness on test images does not extend to others.
#
# ## By weights
#
# **MMD²**, the squared maximum mean discrepancy, compares two sets of networks. It is zero on average if
# both come from one law, and may be a little negative; the farther the sets are apart, the larger it is.
#
# Before, the symmetries go. `balance` chooses the scales of ReLU units for which the weights have least
# norm. `sort_units` then orders the units by their largest incoming weight. Both look at one network alone.
# Alignment to a common reference would not do: it pulls both sets towards the reference.


# %%
@jax.jit
@jax.vmap
def without_symmetries(params):
    balanced = symmetry.balance(model.spec, params).params
    return symmetry.sort_units(model.spec, balanced, key="max")


def discrepancy(networks, others):
    return evaluate.mmd(networks, others, key=jax.random.key(7), aggregate="mean").total.value


print(f"{'MMD² to HMC':16} raw     without symmetries")
for name, networks in sets.items():
    raw = discrepancy(networks, reference)
    removed = discrepancy(without_symmetries(networks), without_symmetries(reference))
    print(f"{name:16} {raw:.3f}   {removed:.3f}")

# %% [markdown]
# Look at the first row. By raw weights two halves of HMC seem to differ. Without symmetries next to nothing
# is left: they had found the same networks under other labels.
#
# Then compare with the tables above. The ensemble predicts much like HMC, and its weights are far away: it
# is a set of optima, without the width around them. Laplace has about the right width, so its weights are
# near, and yet it predicts worst of all. Neither comparison replaces the other.
#
# ## What can go wrong
#
# - **A reference that has not converged.** All columns are relative to HMC. These chains are short, so that
#   the page runs in two minutes. Check yours: [Are my chains converged?](convergence.md) And always keep the
#   row of HMC against itself.
# - **Raw weights.** MMD, Wasserstein distances, means and variances of raw weights measure labels first.
# - **Aligning before MMD.** Alignment to one reference pulls both sets towards it. Use a gauge such as
#   `balance` with `sort_units`, or `symmetry.canonicalise`, which see each network alone.
# - **p-values.** `evaluate.mmd` gives one with `num_permutations`. It takes the networks of a set to be
#   independent. Draws of a chain are not, nor are draws around one mode: thin them, or leave p out.
# - **A mode that is none.** SWAG and Laplace trust the network that they are given. Train it to the end.
# - **A few points of accuracy.** One image of 500 is 0.002. Differences of that size say nothing.
