# %% [markdown]
# # Are my chains converged?
#
# You have drawn the weights of a Bayesian neural network with several chains. R-hat of the weights is
# terrible. Is the sampler at fault, or the question?
#
# This page draws with NumPyro, computes R-hat of the raw weights, of the aligned weights and of the
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

from symbnn import data, diagnostics, interop, plot, symmetry

# %% [markdown]
# ## A network in NumPyro
#
# The data are 442 patients of scikit-learn's diabetes set: ten measurements each, and the progress of the
# disease after a year. The network has one hidden layer of four units. Nothing here knows symbnn.

# %%
diabetes = data.load("diabetes")
inputs, targets = jnp.asarray(diabetes.train.inputs), jnp.asarray(diabetes.train.targets)
inputs = (inputs - inputs.mean(0)) / inputs.std(0)
targets = (targets - targets.mean(0)) / targets.std(0)
units = 4


def apply(params, x):
    """The network as a pure function of its weights."""
    return jnp.tanh(x @ params["w"] + params["b"]) @ params["v"]


def regression(x, y):
    params = {
        "w": numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1], units]).to_event(2)),
        "b": numpyro.sample("b", dist.Normal(0, 1).expand([units]).to_event(1)),
        "v": numpyro.sample("v", dist.Normal(0, 1).expand([units, 1]).to_event(2)),
    }
    numpyro.sample("y", dist.Normal(apply(params, x), 0.7).to_event(2), obs=y)


def draw(num_warmup, num_samples, depth):
    kernel = NUTS(regression, max_tree_depth=depth)
    mcmc = MCMC(
        kernel,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), inputs, targets)
    return interop.from_numpyro(mcmc).posterior


long = draw(num_warmup=200, num_samples=200, depth=6)
print("chains:", long.num_chains, " draws of all of them:", len(long.samples["v"]))

# %% [markdown]
# ## R-hat of the raw weights
#
# `weight_space` computes R-hat of every single weight and summarises them.


# %%
def show(name, summary):
    print(f"{name:28} median {summary.median_rhat:.3f}   largest {summary.max_rhat:.3f}")


show("weights, raw", diagnostics.weight_space(long))

# %% [markdown]
# Two chains may have found the same function and number its units differently: unit 0 of one is unit 2 of
# the other. And tanh is odd: a unit whose incoming and outgoing weights all change sign computes the same
# function. R-hat of one weight sees chains that disagree. `discover` finds both symmetries in the program
# of `apply`.

# %%
one = jax.tree.map(lambda leaf: leaf[0], long.samples)
spec = symmetry.discover(apply, one, inputs[:4])
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
plot.trace(long, aligned)

# %% [markdown]
# ## What the network computes
#
# Predictions know nothing of labels. Their R-hat is the test that counts, with or without alignment.


# %%
def function_space(posterior):
    """R-hat of the outputs on 50 patients; for a regression, all outputs count as they are."""
    return diagnostics.function_space(apply, posterior, inputs[:50], quantity=lambda outputs: outputs)


show("function space", function_space(long))
print(diagnostics.verdict(function_space(long), num_chains=4))

# %% [markdown]
# ## Why a low R-hat of aligned weights certifies nothing
#
# Now chains that have surely not converged: five steps of warm-up and short trajectories. Their draws are
# relabelled **at random**, every draw for itself. This is no alignment at all; it only destroys what told
# the chains apart.

# %%
short = draw(num_warmup=5, num_samples=200, depth=2)
show("function space", function_space(short))
show("weights, raw", diagnostics.weight_space(short))
show("weights, aligned", diagnostics.weight_space(symmetry.align(spec, short, reference="mean")))
show("weights, random labels", diagnostics.relabelling_control(spec, short, jax.random.key(1)))

# %% [markdown]
# Random labels look best of all, on chains that function space refuses. Relabelling mixes the units, so
# every weight of every chain gets the law of a randomly chosen unit, whatever the chain did. An alignment
# that jumps between labellings from draw to draw does a little of the same.
#
# So read the three numbers together. Raw weights far from 1 and function space near 1: the chains agree and
# only the labels differ. Function space far from 1: the chains have not converged, and no alignment repairs
# that.
#
# ## What can go wrong
#
# - **Judging by aligned weights alone.** Print `relabelling_control` beside them. If random labels score as
#   well as your alignment, the score says nothing.
# - **One chain.** R-hat then compares the two halves of one chain, and cannot see modes that it never
#   visited.
# - **Samples shaped `(chains, draws, ...)`.** NumPyro and BlackJAX give two leading axes. Bring them in by
#   `interop.from_numpyro`, `interop.from_blackjax` or `posteriors.Empirical.from_chains`; a bare tree that
#   looks like chains is refused.
# - **Scales of ReLU units.** Alignment relabels; it does not rescale. For ReLU networks `symmetry.balance`
#   or `symmetry.normalise` removes the scales first.
# - **Few inputs in function space.** Chains can agree on fifty inputs and differ elsewhere. Choose inputs
#   that you care about.
