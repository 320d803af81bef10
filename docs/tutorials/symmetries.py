# %% [markdown]
# # What symmetries does my network have?
#
# Some changes of the weights change nothing that the network computes. This page finds them for a
# perceptron, a residual network and a network with attention, reads the reasons, and measures whether any
# are missing.
#
# A **group** is a set of units that may be relabelled together. A **scale** of a group is a positive factor
# that each unit may carry on the weights that write it, if the weights that read it are divided by it. A
# **sign** is the same with −1.

# %%
import jax
import jax.numpy as jnp

from symbnn import models, symmetry, tree

key = jax.random.key(0)

# %% [markdown]
# ## A perceptron
#
# Any pure function of a tree of weights and of inputs will do. `discover` reads the function's own program
# (its jaxpr), one rule for every operation. It does not look at names.


# %%
def perceptron(params, x):
    hidden = jax.nn.relu(x @ params["first"]["kernel"] + params["first"]["bias"])
    return hidden @ params["second"]["kernel"]


params = {
    "first": {"kernel": jax.random.normal(key, (4, 5)), "bias": jnp.ones(5)},
    "second": {"kernel": jax.random.normal(key, (5, 3))},
}
x = jax.random.normal(jax.random.key(1), (8, 4))
spec = symmetry.discover(perceptron, params, x)
print(spec.explain())

# %% [markdown]
# One group of five units: `first/kernel` and `first/bias` produce them, `second/kernel` consumes them. ReLU
# passes a positive factor on, so there is one scale. It is not odd, so there is no sign. Inputs and outputs
# keep their order, because you would notice.
#
# A random element of the group moves the weights far away and leaves the outputs alone.

# %%
element = symmetry.random_element(spec, jax.random.key(2))
moved = symmetry.act(spec, element, params)
print("largest change of a weight:", f"{jnp.abs(tree.flat(moved) - tree.flat(params)).max():.2f}")
difference = perceptron(moved, x) - perceptron(params, x)
print("largest change of an output:", f"{jnp.abs(difference).max():.1e}")
print("verified:", symmetry.verify(spec, perceptron, params, x, key).ok)

# %% [markdown]
# ## Another activation, other symmetries
#
# The same network with tanh has signs instead of scales, and says why.


# %%
def odd(params, x):
    hidden = jnp.tanh(x @ params["first"]["kernel"] + params["first"]["bias"])
    return hidden @ params["second"]["kernel"]


print(symmetry.discover(odd, params, x).explain())

# %% [markdown]
# ## A residual network
#
# In a residual network the output of a block is added to its input, so both carry the same labels: the
# channels of the stream are one group for all blocks, and only the channels inside a block have a group of
# their own.
#
# This ResNet-20 pads its stream with zeros on both sides where a stage has more channels than the one
# before. So the first channels run through all stages, and those that a stage adds form two groups, one on
# each side.
#
# BatchNorm takes out the scale and the sign of what enters it. Ten convolutions write to the first
# channels, so each of them has a scale and a sign of its own; one more scale, that of the stream itself,
# passes ReLU.

# %%
resnet = models.resnet20((8, 8, 3), 10, width=0.25)
for group in resnet.spec.groups:
    print(f"{group.name:40} {group.size:3} units, {group.num_scales} scales, {group.num_signs} signs")

# %% [markdown]
# ## Attention
#
# In attention, queries and keys meet only in a scalar product. Any invertible matrix may be applied to the
# queries of a head, if its inverse is applied to the keys; likewise between values and the output. Such a
# group has the kind `invertible`: it is continuous, and much larger than a group of permutations. It varies
# over the heads, which are themselves a group that may be permuted.

# %%
gpt = models.gpt((6,), 7, dimension=4, depth=1, num_heads=2, mlp_units=5)
for group in gpt.spec.groups:
    over = f" for each of {', '.join(group.over)}" if group.over else ""
    print(f"{group.kind:12} {group.name}: {group.size}{over}")

# %% [markdown]
# ## Is anything missing?
#
# Rules can prove that a symmetry is there. They cannot prove that there is no other. `completeness`
# measures it: it counts all directions in weight space along which no output changes (the null space of the
# Jacobian), and those that the spec explains. It works in double precision and for small networks.

# %%
print("perceptron:", symmetry.completeness(spec, perceptron, params, x))
tokens = jax.random.randint(jax.random.key(3), (16, 6), 0, 7)
weights = gpt.init(key)
complete = symmetry.completeness(gpt.spec, gpt.apply, weights, tokens)
print("attention: ", complete)
print("weights of the network with attention:", tree.num_weights(weights))

# %% [markdown]
# Now a spec that was written by hand and forgets something: it names the units and no scale.

# %%
axes = {
    "first/kernel": (None, "units"),
    "first/bias": ("units",),
    "second/kernel": ("units", None),
}
written = symmetry.from_axes(axes, params)
print(symmetry.verify(written, perceptron, params, x, key).ok, "but", end=" ")
print(symmetry.completeness(written, perceptron, params, x))

# %% [markdown]
# ## What can go wrong
#
# - **An operation without a rule pins its axes.** `discover` then finds fewer symmetries, never wrong ones;
#   `explain` names the operation and the line. Teach it with `symmetry.register_rule`, and then run
#   `verify`.
# - **`verify` cannot see what is missing.** A spec without any group passes. That is what `completeness` is
#   for.
# - **`completeness` counts dimensions.** Permutations and signs have none, so it says nothing about them.
# - **It needs a generic point.** Units that are always on or always off for the given inputs are free in
#   more directions than others. It tries several points and keeps the least number; where no gap is visible
#   in the singular values it says so instead of guessing.
# - **Only a few thousand weights.** For a large network, measure a narrow one of the same architecture.
