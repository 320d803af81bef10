# %% [markdown]
# # Are my chains converged?
#
# You have drawn the weights of a Bayesian neural network with several chains, and R-hat of the weights is
# too large. Is the sampler at fault, or the question?
#
# This page draws with NumPyro. It computes R-hat of the raw weights, of the aligned weights and of the
# predictions, and shows a control that everybody who aligns should run.
#
# **R-hat** compares the variance between chains with the variance within them. It is 1 when all chains draw
# from the same law, and larger when they do not. Here it is the rank-normalised R-hat of Vehtari et al.
# (2021); their limit is 1.01.

# %%
import jax
import jax.numpy as jnp
import numpyro
from numpyro import distributions as dist
from numpyro.infer import MCMC, NUTS

from symbnn import data, diagnostics, interop, plot, symmetry, tree

# %% [markdown]
# ## A network in NumPyro
#
# The data are the 442 patients of scikit-learn's diabetes set, nine tenths of them for training: ten
# measurements each, and the progress of the disease after a year. The network has one hidden layer. Nothing
# here knows symbnn.

# %%
diabetes = data.load("diabetes")
inputs, targets = jnp.asarray(diabetes.train.inputs), jnp.asarray(diabetes.train.targets)
inputs = (inputs - inputs.mean(0)) / inputs.std(0)
targets = (targets - targets.mean(0)) / targets.std(0)


def apply(params, x):
    """The network as a pure function of its weights."""
    return jnp.tanh(x @ params["w"] + params["b"]) @ params["v"]


def regression(units, x, y):
    """A standard normal prior of every weight, and noise of standard deviation 0.7."""
    shapes = {"w": (x.shape[1], units), "b": (units,), "v": (units, 1)}
    params = {
        name: numpyro.sample(name, dist.Normal().expand(shape).to_event()) for name, shape in shapes.items()
    }
    numpyro.sample("y", dist.Normal(apply(params, x), 0.7).to_event(), obs=y)


# %% [markdown]
# Four chains, each from a start of its own. `from_numpyro` takes what NumPyro has drawn and remembers which
# draw belongs to which chain. The first network has four hidden units.


# %%
def draw(units, *, num_warmup, num_samples, depth):
    sampler = MCMC(
        NUTS(regression, max_tree_depth=depth),
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    sampler.run(jax.random.key(0), units, inputs, targets)
    return interop.from_numpyro(sampler).posterior


long = draw(4, num_warmup=200, num_samples=500, depth=6)
print("chains:", long.num_chains, " draws of all of them:", tree.num_samples(long.samples))

# %% [markdown]
# ## R-hat of the raw weights
#
# `weight_space` computes R-hat of every single weight and summarises them.


# %%
def show(name, summary):
    print(f"{name:24} median {summary.median_rhat:.3f}   largest {summary.max_rhat:.3f}")


show("weights, raw", diagnostics.weight_space(long))

# %% [markdown]
# This is above 1.01, and for some weights far above. But two chains may have found the same function and
# number its units differently: unit 0 of one is unit 2 of the other. And tanh is odd: a unit whose incoming
# and outgoing weights all change sign computes the same function. R-hat of a single weight then sees chains
# that disagree. `discover` finds both symmetries in the program of `apply`.

# %%
spec = symmetry.discover(apply, tree.take(long.samples, 0), inputs[:4])
print(spec.explain())

# %% [markdown]
# ## R-hat of the aligned weights
#
# `align` relabels the units of every draw, and turns their signs, so that they fit the mean of the other
# draws. The function that a draw computes does not change.

# %%
aligned = symmetry.align(spec, long, reference="mean")
show("weights, raw", diagnostics.weight_space(long))
show("weights, aligned", diagnostics.weight_space(aligned))
plot.trace(long, aligned, which=3)

# %% [markdown]
# Left, the worst weight of each array as it was drawn: where a chain jumps for long, it has exchanged two
# units or turned one. Right, the same place in the same draws, aligned.
#
# ## What the network computes
#
# Predictions know nothing of labels. Their R-hat is the test that counts, with or without alignment.
# `verdict` says in words what it means, and also looks at the **effective draws**: how many independent
# draws would tell as much.


# %%
def function_space(posterior):
    """R-hat of the outputs for 50 patients; in a regression the likelihood sees the outputs as they are."""
    return diagnostics.function_space(apply, posterior, inputs[:50], quantity=lambda outputs: outputs)


show("function space", function_space(long))
print(diagnostics.verdict(function_space(long), num_chains=4))

# %% [markdown]
# So these chains agree about the function, and labels and signs were most of what set their weights apart.
#
# ## Why a low R-hat of aligned weights certifies nothing
#
# Now chains that have surely not converged: twenty steps of warm-up and very short trajectories. The network
# is wider, with 32 units.
#
# The last line below is a control. The units of every draw are relabelled and turned **at random**, every
# draw for itself. This is no alignment at all; it only destroys what told the chains apart.

# %%
short = draw(32, num_warmup=20, num_samples=200, depth=2)
wide = symmetry.discover(apply, tree.take(short.samples, 0), inputs[:4])
show("function space", function_space(short))
show("weights, raw", diagnostics.weight_space(short))
show("weights, aligned", diagnostics.weight_space(symmetry.align(wide, short, reference="mean")))
show("weights, random labels", diagnostics.relabelling_control(wide, short, jax.random.key(1)))

# %% [markdown]
# Random labels look by far the best, on chains that function space refuses. In the median they look almost
# converged. The reason: every weight of every chain now follows the law of a randomly chosen unit. With many
# units these laws are nearly the same for all chains, whatever the chains did. An alignment that jumps
# between labellings from draw to draw does a little of the same.
#
# So read the numbers together:
#
# - Raw weights far from 1 and function space near 1: the chains agree, only the labels differ.
# - Function space far from 1: the chains have not converged, and no alignment repairs that.
#
# ## What can go wrong
#
# - **Judging by aligned weights alone.** Print `relabelling_control` beside them. If random labels score as
#   well as your alignment, the score says nothing.
# - **One chain.** R-hat then compares the two halves of one chain, and cannot see modes that it never
#   visited.
# - **Samples shaped `(chains, draws, ...)`.** NumPyro and BlackJAX give two leading axes. Bring them in by
#   `interop.from_numpyro`, `interop.from_blackjax` or `posteriors.Empirical.from_chains`.
# - **Scales of ReLU units.** Alignment relabels; it does not rescale. For ReLU networks `symmetry.balance`
#   or `symmetry.normalise` removes the scales first.
# - **Few inputs in function space.** Chains can agree on fifty inputs and differ elsewhere. Choose inputs
#   that you care about.
# - **Chains that all miss the same mode.** R-hat compares chains with one another. It cannot see what none
#   of them found.
