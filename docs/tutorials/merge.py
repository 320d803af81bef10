# %% [markdown]
# # How do I merge networks that I trained in PyTorch?
#
# Several networks of the same architecture, trained from different starts, are to become one network of the
# same size. This page reads their PyTorch files, averages their weights as they are, aligned, and aligned and
# fitted, and looks at the loss on the line between two of them.

# %%
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from symbnn import compact, data, density, evaluate, inference, io, models, plot, tree

digits = data.load("digits", flatten=True)
inputs = digits.train.inputs[:500]
test = jnp.asarray(digits.test.inputs), jnp.asarray(digits.test.targets)

# %% [markdown]
# ## Files of PyTorch
#
# In PyTorch you would train and save like this.
#
# ```python
# network = torch.nn.Sequential(
#     torch.nn.Linear(64, 64), torch.nn.ReLU(),
#     torch.nn.Linear(64, 64), torch.nn.ReLU(),
#     torch.nn.Linear(64, 10),
# )
# ...  # training
# torch.save(network.state_dict(), "network0.pt")  # or
# safetensors.torch.save_file(network.state_dict(), "network0.safetensors")
# ```
#
# PyTorch is not installed where this page is made, and need not be. So that the page has files to read,
# it trains four such networks here, from four starts, and writes what PyTorch would have written:
# `io.to_torch` gives keys, shapes and layouts of a state dict. `layers` says what our layers are called in
# PyTorch, where those of a `Sequential` are numbered.

# %%
model = models.mlp(digits.input_shape, digits.num_classes, hidden=(64, 64))
layers = {"hidden0": "0", "hidden1": "2", "out": "4"}
folder = Path(tempfile.mkdtemp())
train = inference.ensemble(num_members=4, epochs=60, optimizer=optax.adam(3e-3))
trained = train(jax.random.key(0), density.target(model, digits.train)).posterior.samples
for index in range(4):
    path = folder / f"network{index}.safetensors"
    state = io.to_torch(model, tree.take(trained, index), layers, path=path)
for name, array in state.items():
    print(name, array.shape)

# %% [markdown]
# Reading is one call. PyTorch keeps the weights of a layer as (outputs, inputs) and JAX's libraries as
# (inputs, outputs); which axis is which is read off the model's program.

# %%
paths = sorted(folder.glob("*.safetensors"))
networks = [io.from_torch(model, path, layers) for path in paths]


def accuracy(params, model=model):
    """Share of test images on which a network is right."""
    return float(evaluate.accuracy(jax.nn.softmax(model.apply(params, test[0])), test[1]))


for path, network in zip(paths, networks, strict=True):
    print(path.name, f"{accuracy(network):.3f}")

# %% [markdown]
# ## One network out of four
#
# Unit 5 of one network has nothing to do with unit 5 of another: hidden units may be relabelled without any
# change of what the network computes. `compact.merge` first relabels the units of each network so that they
# fit those of the first. It compares units by what they compute on some hundred training inputs; labels are
# not needed. It then averages the weights, and may **correct** the mean. The default, `"regression"`, goes
# through the layers and fits each by least squares, so that on these inputs it computes the mean of what the
# layer computes in the networks. No step is training: there are no labels and no gradients.

# %%
steps = {
    "mean of the weights": {"method": None, "correct": None},
    "aligned": {"correct": None},
    "fitted, not aligned": {"method": None},
    "aligned and fitted": {},
}
for name, settings in steps.items():
    pair, every = (
        compact.merge(model, some, inputs=inputs, **settings).params for some in (networks[:2], networks)
    )
    print(f"{name:20} two networks {accuracy(pair):.3f}, all four {accuracy(every):.3f}")

# %% [markdown]
# The plain mean has lost most of what the networks knew, the more so the more networks are averaged.
# Alignment brings back nearly all of it, and the fit the rest. For this small network the fit does as well
# without alignment; further down, and in
# [the study of published ResNet-20s](../results/merging/cifar10_resnet20/README.md), it does not.
#
# ## The line between two networks
#
# The mean is the middle of the straight line between two networks. The **barrier** is how far the loss rises
# on that line above the straight line between the losses of its ends. `compact.merge` gives the aligned
# networks, stacked, so their line can be drawn beside that of the networks as trained. With `barrier` it
# judges the corrected networks of the line itself.

# %%
merged = compact.merge(model, networks[:2], inputs=inputs, barrier=test)
aligned = [tree.take(merged.aligned, index) for index in range(2)]
curves = {
    "as trained": evaluate.barrier(model.apply, *networks[:2], test),
    "aligned": evaluate.barrier(model.apply, *aligned, test),
    "aligned and fitted": tree.take(merged.barrier, 0),
}
plot.barrier(curves, loss="test loss (nats)", error="test error (share of images)")

# %% [markdown]
# The legend has the height of each barrier. What is called aligned has the same two networks at its ends as
# what was trained: they compute the same, and only the way between them is another.
#
# ## Back to PyTorch
#
# `like` is one of the files that came in: names, order and dtypes are then those of PyTorch's network.

# %%
everything = compact.merge(model, networks, inputs=inputs).params
path = folder / "merged.safetensors"
io.to_torch(model, everything, layers, like=paths[0], path=path)
again = io.from_torch(model, path, layers)
print("the same network:", accuracy(again) == accuracy(everything))

# %% [markdown]
# ## With BatchNorm
#
# BatchNorm divides what a unit computes by its **running statistics**, a mean and a variance that were
# averaged in training. Units of the mean network vary less than those of the networks: contributions that
# do not agree cancel. Statistics of the networks are then too large, and every layer passes on too little.


# %%
class Normed(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        for units in (32, 32):
            x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(nn.Dense(units)(x))
            x = nn.relu(x)
        return nn.Dense(10)(x)


normed = models.wrap(Normed(), digits.train.inputs[:2])
members = train(jax.random.key(1), density.target(normed, digits.train)).posterior
for correct in (None, "statistics", "repair", "regression"):
    for method in (None, "activations"):
        params = compact.merge(normed, members, inputs=inputs, method=method, correct=correct).params
        print("aligned" if method else "as trained", correct, f"{accuracy(params, normed):.3f}")

# %% [markdown]
# - `None` keeps the mean of the old statistics.
# - `"statistics"` measures them anew on the inputs, layer by layer.
# - `"repair"` (REPAIR, Jordan and others 2022) also gives every unit, normed or not, the mean and the
#   standard deviation that it has in the networks on average.
# - `"regression"` is the fit from above, with new statistics.
#
# Look at the lines "as trained" first: without alignment no correction saves the mean. Among the aligned
# ones the differences are small here, as these networks are small and good.
#
# ## What can go wrong
#
# - **BatchNorm without inputs is refused.** The mean of running statistics belongs to no network. Give
#   `inputs`, or say `correct=None` and measure them yourself (`evaluate.recompute_statistics`).
# - **Inputs that are not those of training.** Statistics, correlations of units and fits are those of the
#   inputs that you give, after your own scaling of them. Some hundred from the training data will do; too
#   few leave the least squares without an answer for wide layers.
# - **Deep networks lose.** Alignment is a search, and errors add up over layers:
#   [the study](../results/merging/cifar10_resnet20/README.md) says what is left of ResNet-20s.
# - **Networks that do different things.** Trained on different classes or data they have no common units to
#   find; the mean of what they compute is then what it says, and may be nobody's wish.
# - **Layers with the same shape.** Where names and shapes leave a choice, `from_torch` refuses to guess and
#   lists the layers; give `layers`. A file of `safetensors` forgets the order of layers, one of `torch.save`
#   keeps it.
# - **The wrong program.** Weights do not tell the activation. Compare outputs of both networks on a few
#   inputs, as here `accuracy` does, before merging.
