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
# Reading is one call. Which layer is which is found by names and shapes. PyTorch keeps the weights of a layer
# as (outputs, inputs), JAX's libraries as (inputs, outputs); which axis is which is read off the model's
# program.

# %%
paths = sorted(folder.glob("*.safetensors"))
networks = [io.from_torch(model, path) for path in paths]


def accuracy(params, model=model):
    """Share of test images on which a network is right."""
    return float(evaluate.accuracy(jax.nn.softmax(model.apply(params, test[0])), test[1]))


for path, network in zip(paths, networks, strict=True):
    print(path.name, f"{accuracy(network):.3f}")

# %% [markdown]
# ## One network out of four
#
# Unit 5 of one network has nothing to do with unit 5 of another: hidden units may be relabelled without any
# change of what the network computes, and units with ReLU may be scaled. `compact.merge` first brings units
# to one scale and relabels those of each network so that they fit those of the first. It compares units by
# what they compute on some hundred training inputs; labels are not needed. It then averages the weights, and
# may **correct** the mean. The default, `"regression"`, goes through the layers and fits each by least
# squares, so that on these inputs it computes the mean of what the layer computes in the networks. No step is
# training: there are no labels and no gradients.

# %%
steps = {
    "mean of the weights": {"method": None, "correct": None},
    "aligned": {"correct": None},
    "fitted, not aligned": {"method": None},
    "aligned and fitted": {},
}
for name, settings in steps.items():
    pair = compact.merge(model, networks[:2], inputs=inputs, **settings).params
    every = compact.merge(model, networks, inputs=inputs, **settings).params
    print(f"{name:20} two networks {accuracy(pair):.3f}, all four {accuracy(every):.3f}")

# %% [markdown]
# The plain mean loses much of what the networks knew, and the more the more networks are averaged. Alignment
# brings back most of it, and the fit the rest: compare with the networks themselves, above. For this small
# network the fit does well without alignment, too; with BatchNorm, below, and for
# [published ResNet-20s](../results/merging/cifar10_resnet20/README.md) it needs it.
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
    "aligned and fitted": merged.barrier,
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
io.to_torch(model, everything, like=paths[0], path=path)
again = io.from_torch(model, path)
print("the same network:", accuracy(again) == accuracy(everything))

# %% [markdown]
# ## With BatchNorm
#
# BatchNorm brings what a unit computes to mean zero and variance one. Once trained, it does so by **running
# statistics**, a mean and a variance that were averaged in training. Units of a mean network vary less than
# those of the networks, as contributions that do not agree cancel. By the statistics of the networks they are
# then divided by too much, and every layer passes on too little.


# %%
class Normed(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        for units in (32, 32):
            x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(nn.Dense(units)(x))
            x = nn.relu(x)
        return nn.Dense(10)(x)


# %%
normed = models.wrap(Normed(), digits.train.inputs[:2])
members = train(jax.random.key(1), density.target(normed, digits.train)).posterior
own = [accuracy(tree.take(members.samples, index), normed) for index in range(4)]
print("the networks:", *(f"{each:.3f}" for each in own))
for correct in (None, "statistics", "repair", "regression"):
    found = []
    for method in (None, "activations"):
        settings = {"inputs": inputs, "method": method, "correct": correct}
        found.append(accuracy(compact.merge(normed, members, **settings).params, normed))
    print(f"{correct!s:10} not aligned {found[0]:.3f}, aligned {found[1]:.3f}")

# %% [markdown]
# - `None` keeps the mean of the old statistics.
# - `"statistics"` measures them anew on the inputs, layer by layer.
# - `"repair"` (REPAIR, Jordan and others 2022) also gives every unit, normed or not, the mean and the
#   standard deviation that it has in the networks on average.
# - `"regression"` is the fit from above, with new statistics.
#
# Without alignment every correction falls short of what it reaches with it; the fit comes nearest. With
# alignment, new statistics already make up for nearly everything that the mean lost. These networks have two
# hidden layers; in twenty, the corrections differ far more.
#
# ## What can go wrong
#
# - **BatchNorm without inputs is refused.** The mean of the running statistics is that of no network. Give
#   `inputs`; or say `correct=None`, which keeps that mean.
# - **Inputs that are not those of training.** Matching, statistics and fits hold for the inputs that you
#   give, scaled as in training. Some hundred from the training data will do; with a few, layers are fitted to
#   them and to nothing else.
# - **Deep networks lose.** Alignment is a search, and errors add up over layers:
#   [the study](../results/merging/cifar10_resnet20/README.md) says what is left of ResNet-20s.
# - **Networks that do different things.** If they were trained for different classes or on different data,
#   their units may have nothing in common that could be matched.
# - **Layers with the same shape.** Numbers in names, as here, are taken for the order of layers. Where names
#   and shapes leave a choice, `from_torch` refuses to guess; give it `layers`, as `to_torch` above.
# - **The wrong program.** Weights do not tell the activation. Compare outputs of both networks on a few
#   inputs, as here `accuracy` does, before merging.
