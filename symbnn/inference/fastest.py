"""How many chains to vmap together, by measuring: what is fastest differs between networks and machines.

On two CPU cores a perceptron 196-32-10 with 10,000 images takes a sixth longer with two lanes than with one;
8-16-10 with 300 takes a sixth less. The default (`Placement(lanes=None)`) depends on numbers alone, so that
draws do not depend on a clock; what is measured here is to be kept with the results.
"""

import math
import time

import jax
import numpy as np

from symbnn.density import Target
from symbnn.inference.base import check_count
from symbnn.inference.chains import distributed
from symbnn.inference.chains.settings import gradient_products
from symbnn.inference.hmc import hmc
from symbnn.inference.placement import EVERYWHERE, Placement, layout
from symbnn.types import Samples

OPERATIONS = 2e9
"""Of one timed chunk of all chains: some tens of milliseconds on a CPU, far above what starting it takes."""
MOST_STEPS = 200
CHUNKS = 6
STEP_SIZE = 1e-25
"""So small that no chain leaves its start, however steep its density is there."""


def fastest_placement(
    target: Target, *, num_chains: int, placement: Placement = EVERYWHERE, initial: Samples | None = None
) -> Placement:
    """`placement` with the number of lanes with which gradients of all chains take the least time here.

    Every candidate is compiled and timed on HMC's own steps, some seconds each; other samplers evaluate the
    same gradients. Candidates are one lane without `vmap` and with it, powers of two, and all chains of a
    device. Of several processes the slowest counts, so that all of them choose the same.

    All chains are timed with one number of steps. Samplers whose trajectories differ in length from chain to
    chain (`nuts`, adjusted `mclmc`, `hmc` without `num_steps`) run every lane of a block until its longest
    one ends, and want fewer lanes than are found here.

        placement = inference.fastest_placement(target, num_chains=8)
        print(placement)  # its lanes and vmaps_one draw the same again, on any number of devices
        fit = inference.hmc(num_chains=8, num_steps=20, placement=placement)(key, target)

    Args:
        target: What is to be sampled.
        num_chains: Of the run that the placement is for.
        placement: Which devices; its `lanes` and `vmaps_one` are what is replaced.
        initial: One start per chain, as of `hmc`: for targets that are not finite at draws of `init`.
    """
    check_count("num_chains", num_chains)

    def seconds(each: Placement) -> float:
        return distributed.largest(seconds_per_gradient(target, num_chains, each, initial=initial))

    return min(_candidates(num_chains, placement), key=seconds)


def seconds_per_gradient(
    target: Target, num_chains: int, placement: Placement, *, initial: Samples | None = None
) -> float:
    """Of one chain, the least of several chunks after the one that compiles."""
    num_steps = _num_steps(target, num_chains)
    ends: list[float] = []
    method = hmc(
        num_chains=num_chains,
        num_samples=CHUNKS,
        num_burnin=0,
        step_size=STEP_SIZE,
        num_steps=num_steps,
        initial=initial,
        chunk_size=1,
        placement=placement,
        progress=lambda _: ends.append(time.perf_counter()),
    )
    method(jax.random.key(0), target)
    return float(min(np.diff(ends))) / (num_steps * num_chains)


def _candidates(num_chains: int, placement: Placement) -> list[Placement]:
    # One lane makes the most blocks: if that is refused, so are all others, and the reason is told.
    rows = layout(num_chains, placement._replace(lanes=1)).mesh.shape["chain"]
    most = math.ceil(num_chains / rows)
    lanes = sorted({*(2**power for power in range(most.bit_length())), most})
    alone = placement._replace(lanes=1, vmaps_one=False)
    given = [alone, *(placement._replace(lanes=number, vmaps_one=True) for number in lanes)]
    return [each for each in given if _is_possible(num_chains, each)]


def _is_possible(num_chains: int, placement: Placement) -> bool:
    """Whether every process has a block: with more lanes there are fewer of them."""
    try:
        layout(num_chains, placement)
    except ValueError:
        return False
    return True


def _num_steps(target: Target, num_chains: int) -> int:
    """As many as fill a chunk with `OPERATIONS`."""
    return int(np.clip(OPERATIONS / max(gradient_products(target).operations * num_chains, 1), 1, MOST_STEPS))
