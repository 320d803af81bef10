# %% [markdown]
# # How do I make a Bayesian network small by sharing weights?
#
# A mean-field posterior keeps two numbers for every weight, a mean and a standard deviation: twice the size
# of the network. 2DGBNN (Lin, Guan and others 2025) lets most weights share a few Gaussians. This page goes
# through its stages on a small network, looks at the plane in which weights are shared, and compares bytes on
# disk with simpler ways. The formulas are in [the theory](../theory/sharing.md).

# %%
import tempfile
import zlib
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from scipy.cluster.vq import kmeans2

from symbnn import data, density, evaluate, inference, io, models, sharing, tree

keys = jax.random.split(jax.random.key(0), 7)
digits = data.load("digits", flatten=True)
model = models.mlp(digits.input_shape, digits.num_classes, hidden=(64,))
target = density.target(model, digits.train, prior=density.gaussian_prior(0.7))

# %% [markdown]
# ## Stages 0 and 1: a plane of weights
#
# Stage 0 trains a plain network; one that you have will do, too. Stage 1 gives each weight \(i\) of its
# kernels a mean \(\mu_i\), which starts at the trained weight, and a standard deviation \(\sigma_i\). Biases
# stay as they are: there are few of them.


# %%
def recipe(epochs, rate):
    """Adam with a learning rate that falls to zero over the training."""
    num_steps = epochs * (target.num_data // 64)
    return inference.Recipe(epochs, 64, optax.adam(optax.cosine_decay_schedule(rate, num_steps)))


network, losses = sharing.pretrain(keys[0], target, recipe(100, 2e-3))
settings = {"initial": network, "kl_weight": 0.005}
stochastic = sharing.train_stochastic(keys[1], target, recipe(40, 1e-4), **settings)
points = stochastic.points()
print("points in the plane:", points.shape)
print("standard deviations, low to high:", np.quantile(points[:, 1], [0.05, 0.5, 0.95]).round(3))

# %% [markdown]
# Every weight is now a point \((\mu_i, \sigma_i)\) in a plane. A weight with a large standard deviation
# hardly matters to the network, and may be moved far; one with a small one may not.
#
# `kl_weight` tempers the divergence from the prior. With few data and a narrow prior, the full divergence
# would be most of the loss.
#
# ## Stage 1b: outliers and clusters
#
# Three kinds of weights keep a law of their own and are called **outliers**: those with a large
# \(|\mu_i|\), those with the steepest gradient of the loss, and those whose cluster has few members. A
# mixture of Gaussians in the plane is fitted to the others.

# %%
gradients = np.asarray(sharing.gradient_magnitudes(keys[2], target, stochastic))
outliers = sharing.find_outliers(points[:, 0], points[:, 1], gradients, magnitude=0.5)
clusters = sharing.cluster(keys[3], points, outliers)
print("Gaussians:", clusters.mixture.num_components)
for name in ("large", "steep", "lonely"):
    print(f"outliers, {name}: {getattr(clusters.outliers, name).sum()}")

# %% [markdown]
# ## Stage 2: fewer Gaussians
#
# Gaussians that are nearly the same, by their Wasserstein distance, are merged. A weight outside of the
# ellipse that holds 95 % of its Gaussian is called an **ellipse weight**: it is a blend of two Gaussians near
# it.

# %%
refined = sharing.refine(points, clusters.mixture, clusters.labels)
shared = sharing.share(stochastic.params, stochastic.layout, points, refined)
print("Gaussians:", shared.num_components)
print("outliers:", shared.num_outliers, "ellipse weights:", shared.num_ellipses)

# %% [markdown]
# The plane, with the outlines of these ellipses.


# %%
def outlines(mixture):
    """The 95 % ellipse of every Gaussian, (k, 2, points)."""
    angle = np.linspace(0, 2 * np.pi, 60)
    circle = np.sqrt(sharing.CHI_SQUARE_95) * np.stack([np.cos(angle), np.sin(angle)])
    return mixture.means[:, :, None] + np.linalg.cholesky(mixture.covariances) @ circle


def draw(panel, title, mixture):
    """Weights by their kind after Stage 2, and the outlines of the Gaussians."""
    kinds = np.where(refined.labels < 0, 1, 0)
    kinds[refined.ellipses.indices] = 2
    names = {"shared": "0.6", "outlier": "C3", "ellipse weight": "C2"}
    for kind, (name, colour) in enumerate(names.items()):
        panel.scatter(*points[kinds == kind].T, s=4, color=colour, linewidths=0, label=name)
    panel.plot(*outlines(mixture).transpose(1, 2, 0), color="C0", linewidth=0.8)
    panel.set(title=f"{title}: {mixture.num_components} Gaussians", xlabel="mean of a weight")


figure, panels = plt.subplots(1, 2, figsize=(11, 4), sharey=True)
draw(panels[0], "fitted", clusters.mixture)
draw(panels[1], "merged", refined.mixture)
panels[0].set_ylabel("standard deviation of a weight")
panels[1].legend(frameon=False, markerscale=3)
figure

# %% [markdown]
# Each point is a weight. Most standard deviations are still near the value at which all start, 0.03. The peak
# above mean zero is made of weights on which the data have no say, such as those that read a pixel that is
# the same in all images. These have gone to the prior of Stage 1, whose standard deviation is 0.1.

# %%
pixels = digits.train.inputs
is_constant = pixels.min(0) == pixels.max(0)
stds = tree.named_leaves(stochastic.posterior().std)["hidden/kernel"]
print("weights of constant pixels, median standard deviation:", np.median(stds[is_constant]).round(3))

# %% [markdown]
# ## Stage 3: trained together
#
# A draw of the network draws each Gaussian once and hands the value to all its weights. Centres, covariances
# and outliers are now trained on the evidence bound. Which weight belongs to which Gaussian stays as it is.

# %%
objective = sharing.Objective(kl_weight=0.003)
trained = sharing.train_shared(keys[4], target, shared, recipe(40, 1e-3), objective=objective).shared

# %% [markdown]
# Stages 1 and 3 are also more training than the plain network had, with less of a prior. So that this is not
# taken for a merit of sharing, a **control** is trained on from the plain network for as many epochs, with
# next to no prior.

# %%
free = density.target(model, digits.train, prior=density.gaussian_prior(10.0))
control, _ = sharing.pretrain(keys[5], free, recipe(80, 1e-3), initial=network)

# %% [markdown]
# ## Two ways without a posterior
#
# Smaller files can be had without any uncertainty. The first way rounds each weight of the control to 8 bits,
# with a step for each unit. The second replaces each weight by the nearest of 32 centres (k-means), and codes
# which one it is by Huffman's code, as `sharing.save` does for its labels.

# %%
layout = stochastic.layout
rest = {name: leaf for name, leaf in tree.named_leaves(control).items() if name not in layout.names}
leaves = tree.named_leaves(control)
steps = {name: np.abs(leaves[name]).max(0) / 127 for name in layout.names}
integers = {name: np.rint(leaves[name] / steps[name]).astype(np.int8) for name in layout.names}
eight_bits = np.concatenate([(integers[name] * steps[name]).ravel() for name in layout.names])

flat = np.asarray(sharing.flatten(layout, control))
centres, labels = kmeans2(flat[:, None], 32, minit="++", seed=0)
coder = zlib.compressobj(strategy=zlib.Z_HUFFMAN_ONLY)
coded = np.frombuffer(coder.compress(labels.astype(np.uint8).tobytes()) + coder.flush(), np.uint8)

# %% [markdown]
# ## What was gained
#
# All are written to files, with checksums and the names of leaves.

# %%
folder = Path(tempfile.mkdtemp())
mean_field = stochastic.posterior()
io.save_tree(folder / "network", network)
io.save_tree(folder / "control", control)
io.save_posterior(folder / "mean field", mean_field)
sharing.save(folder / "shared", trained)
io.save_tree(folder / "8 bits", {"integers": integers, "steps": steps, "rest": rest})
io.save_tree(folder / "k-means", {"labels": coded, "centres": centres, "rest": rest})

# %%
inputs, targets = jnp.asarray(digits.test.inputs), jnp.asarray(digits.test.targets)
single = {"network": network, "control": control}
for name, weights in {"8 bits": eight_bits, "k-means": centres[labels, 0]}.items():
    single[name] = sharing.insert(layout, control, jnp.asarray(weights))
several = {"mean field": mean_field, "shared, untrained": shared}
several["shared"], _ = sharing.load(folder / "shared")

# %%
probs = {name: jax.nn.softmax(model.apply(params, inputs)) for name, params in single.items()}
for name, posterior in several.items():
    probs[name] = evaluate.predict(model.apply, posterior, inputs, key=keys[6], num_samples=50)
measures = (evaluate.accuracy, evaluate.nll, evaluate.ece)
print(f"{'':18}{'accuracy':>10}{'NLL':>8}{'ECE':>8}{'bytes':>10}")
for name, each in probs.items():
    scores = [float(measure(each, targets)) for measure in measures]
    size = f"{(folder / name).stat().st_size:,}" if (folder / name).exists() else ""
    print(f"{name:18}{scores[0]:10.3f}{scores[1]:8.3f}{scores[2]:8.3f}{size:>10}")

# %% [markdown]
# NLL is the mean negative log-probability of the right class in nats, ECE the expected calibration error;
# less is better for both. Mean field is what Stage 1 gave, where each weight is drawn by itself.
#
# - **Size.** The file of shared weights is several times smaller than that of mean field and of the plain
#   network. K-means is about as small.
# - **Scores.** Shared weights have a better NLL and ECE than the network that they come from, but so has the
#   control. Compare these two before you thank the sharing: longer training explains the gain here.
# - **So for size alone, k-means is the simpler choice.** What shared weights give beside it is a posterior:
#   networks can be drawn from the small file.

# %%
size = sharing.size_of(trained)
files = {name: (folder / name).stat().st_size for name in ("mean field", "shared")}
print(f"numbers: {2 * size.num_weights} of mean field, {size.paper_count} by the paper's count")
print(f"times fewer numbers: {2 * size.num_weights / size.paper_count:.1f}")
print(f"times fewer bytes: {files['mean field'] / files['shared']:.1f}")

# %% [markdown]
# The paper counts outliers, ellipse weights and two numbers for each Gaussian. It leaves out the labels,
# which say to which Gaussian a weight belongs, and covariances, biases and the second number of an outlier.
# All of these must be kept, so the ratio of bytes is the smaller one.
#
# ## What can go wrong
#
# - **Count bytes, not numbers.** For a large network labels are most of the file; for a small one, its header
#   of names and checksums counts, too.
# - **All weights are outliers**, or none. The limits are absolute: `magnitude` has to suit the size of your
#   weights. `find_outliers` says so if nothing is left to share.
# - **A flat plane.** If Stage 1 is short or its `kl_weight` zero, standard deviations stay where they started
#   and the second coordinate says nothing. Look at the figure first.
# - **The divergence drowns the data.** With few data the full divergence from a narrow prior costs accuracy;
#   that is why both stages temper it here. A tempered bound is no evidence bound any more, and its spread is
#   not that of the true posterior.
# - **Merging is not for free.** Compare "shared, untrained" with mean field: Stage 3 must make up for it.
# - **There is no density.** Weights of one Gaussian move together in a draw, so `log_prob` is refused.
#   `noise="weight"` in `share` gives each weight its own noise, and takes as many random numbers.
# - **One seed.** Differences of a few test images are noise. Over seeds, and stage by stage:
#   [digits](../results/weight_sharing/digits/README.md),
#   [MNIST](../results/weight_sharing/mnist_lenet/README.md),
#   [CIFAR-10](../results/weight_sharing/cifar10_resnet20_pretrained/README.md).
