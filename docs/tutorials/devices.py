# %% [markdown]
# # How do I run HMC on many devices, and resume a run that was stopped?
#
# Chains of Hamiltonian Monte Carlo (HMC) do not talk to one another, so they can run side by side on several
# devices. This page spreads chains over devices, shows that the draws do not change by a single bit, stops a
# run in the middle, and goes on with it.
#
# A **device** is what JAX calls one accelerator. A processor counts as one device, but JAX can cut it into
# several. That must be said first, before anything else of JAX is used. Two devices are one for each core of
# a small machine; all that follows is the same for accelerators, where this line is left out.

# %%
import jax

jax.config.update("jax_num_cpu_devices", 2)

import tempfile
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from symbnn import data, density, inference, io, models

print(jax.devices())

# %% [markdown]
# ## Chains on devices
#
# A small network on the bundled digits, and the density that is to be sampled: a likelihood and a Gaussian
# prior on 1,297 images. Each chain starts at a network that was trained for a while: from a draw of the
# prior, a step of fixed size is often too long at first.

# %%
digits = data.load("digits", flatten=True)
model = models.mlp(digits.input_shape, digits.num_classes, hidden=(10,))
target = density.target(model, digits.train)
key = jax.random.key(0)
trained = inference.ensemble(num_members=4, epochs=20)(key, target).posterior.samples
settings = {"num_chains": 4, "initial": trained, "num_burnin": 20, "num_samples": 60}
settings |= {"step_size": 0.01, "num_steps": 30}

# %% [markdown]
# A `Placement` says where chains run. By default they are dealt to all devices. `lanes` is the number of
# chains that one device computes together, by `jax.vmap`; such a group is a **block**, and a device works
# through its blocks one after the other. So four chains in blocks of two are two blocks, one for each of two
# devices.

# %%
everywhere = inference.Placement(lanes=2)
on_two = inference.hmc(**settings, placement=everywhere)(key, target)
print("verdict:", on_two.diagnostics["verdict"])
for name in ("chains", "acceptance", "divergences"):
    print(f"{name}:", np.round(on_two.diagnostics[name], 2))

# %% [markdown]
# The same chains on one device: it now has both blocks.

# %%
alone = inference.Placement(devices=jax.devices()[:1], lanes=2)
on_one = inference.hmc(**settings, placement=alone)(key, target)


def is_equal(first, second, num=60):
    """Whether the first `num` draws of all chains are the same, bit for bit."""
    same = jax.tree.map(
        lambda a, b: np.array_equal(a[:, :num], b[:, :num]),
        first.posterior.by_chain(),
        second.posterior.by_chain(),
    )
    return all(jax.tree.leaves(same))


print("one device and two, the same draws:", is_equal(on_one, on_two))

# %% [markdown]
# The reason is that all that is random about transition *t* of chain *c* is derived from the key, *c* and
# *t*. No device has a random state of its own.
#
# `lanes` does belong to the computation: the size of a batched matrix product may decide in which order
# numbers are added. With other lanes a chain is the same up to rounding at first, and differences grow along
# its trajectories. So fix `lanes` where runs are to be compared bit for bit. Left out, it is a number that
# suits devices and network: on accelerators, the chains of one device; on CPUs one, but for small networks.

# %% [markdown]
# ## A run that is stopped
#
# A run with a **sink** keeps what it has computed: after every chunk of `chunk_size` transitions it writes
# the draws, and the state of the chains, to a file. Here a callable that is told of progress stops the run,
# as a key press, a full disk or the end of a time limit would.

# %%
folder = Path(tempfile.mkdtemp())
kept = {**settings, "chunk_size": 10, "placement": everywhere}


def stop(event):
    """Told of every chunk; ends the run in the middle of the sampling."""
    print(f"{event.stage} {event.done} of {event.total}")
    if event.stage == "sampling" and event.done == 30:
        raise KeyboardInterrupt


try:
    inference.hmc(**kept, sink=io.ChunkStore(folder), progress=stop)(key, target)
except KeyboardInterrupt:
    print("stopped; on disk:", *sorted(path.name for path in folder.iterdir()), sep="\n  ")

# %% [markdown]
# The same call goes on. Chunks that are on disk are read (`replayed`), the others computed.


# %%
def watch(event):
    """Say of every chunk where it comes from."""
    source = "read" if event.replayed else "computed"
    print(f"{event.stage} {event.done} of {event.total}: {source}")


run = inference.hmc(**kept, sink=io.ChunkStore(folder), progress=watch)
resumed = run(key, target)
print("resumed and never stopped, the same draws:", is_equal(resumed, on_two))

# %% [markdown]
# The logarithm of the density along the chains. Broad and pale: the run that was never stopped. Thin: the one
# that was stopped at the dotted line. They coincide.

# %%
figure, panel = plt.subplots(figsize=(7, 3))
for fit, width, opacity in ((on_two, 5, 0.3), (resumed, 1, 1)):
    for chain, curve in enumerate(fit.diagnostics["log_density"]):
        style = {"color": f"C{chain}", "linewidth": width, "alpha": opacity}
        panel.plot(np.arange(1, 61), curve, **style)
panel.axvline(30.5, color="black", linestyle=":")
panel.set(xlabel="draw", ylabel="log-density")
figure

# %% [markdown]
# A run may go on elsewhere: what two devices began, one can finish. And it may become longer, because the
# number of draws is no part of what a chunk depends on.

# %%
changed = {**kept, "num_samples": 70, "placement": alone}
run = inference.hmc(**changed, sink=io.ChunkStore(folder), progress=watch)
longer = run(key, target)
print("its first 60 draws, the same:", is_equal(longer, on_two))

# %% [markdown]
# A directory belongs to one run. A call with another step size, other data or another key is refused and
# told what differs, so that draws of two runs are never mixed.

# %%
try:
    changed = {**kept, "step_size": 0.02}
    inference.hmc(**changed, sink=io.ChunkStore(folder))(key, target)
except ValueError as error:
    print(textwrap.fill(str(error).replace(str(folder), "FOLDER"), 72))

# %% [markdown]
# ## Several hosts
#
# On a cluster the same program is started once for each accelerator. `distributed.start` calls
# `jax.distributed.initialize`, and must come before there are arrays. On Slurm, Open MPI, Kubernetes and TPU
# pods JAX finds the other processes itself; elsewhere give the address of the first process, their number,
# and which one this is. Each process keeps its own chains, in a directory of its own.
#
# ```python
# import jax
# from symbnn import inference, io
#
# inference.distributed.start()
# sink = io.ChunkStore(folder / f"process{jax.process_index()}")
# # The same call everywhere.
# fit = inference.hmc(num_chains=64, ..., sink=sink)(key, target)
# # All chains on every process, if they fit into memory.
# fit = inference.distributed.gather(fit)
# ```
#
# For Slurm, two nodes of four accelerators, one process for each. The array is five jobs, one after the
# other: each goes on where the one before it ran out of time.
#
# ```sh
# #!/bin/sh
# #SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4
# #SBATCH --time=04:00:00 --array=1-5%1
# srun python run.py
# ```
#
# ## What can go wrong
#
# - **The number of devices is fixed when JAX starts.** `jax_num_cpu_devices` after the first array, or after
#   `import symbnn`, is an error: put it first.
# - **More devices than cores do not help.** They share the cores. More devices than blocks leave some idle:
#   with `lanes=4` four chains are one block, and run on one device.
# - **Chunks that are too long lose work.** What was computed since the last chunk is computed again. Without
#   `chunk_size` a chunk is meant to take half a minute, and has at most 50 draws.
# - **A resumed run is refused.** Key, data, network, prior, method, burn-in, chunk size, lanes and the
#   version of JAX must be those of the first call; the message names what differs. Keep the call in a script.
# - **Other processes, other directories.** A directory holds the chains of one process. A run of eight
#   processes goes on with eight; the number of devices inside a process may change.
# - **`data_shards` changes the bits.** With it several devices share the data of one chain, and sums are
#   formed in another order.
# - **A damaged file** is found by its checksum; its chunk is computed again, with a warning.
# - **Many chains do not make a short run long.** Every chain needs its own burn-in, and the figure above says
#   nothing about convergence. Use `diagnostics.function_space`.
