"""What a run of chains is asked for: the settings all samplers share, and what follows from them before it.

That is the chunks it is cut into, whether the starts fit the network, and its entries in the fingerprint by
which a stopped run is recognised.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax

from symbnn import tree
from symbnn.density import Target
from symbnn.inference.base import Sink, check_count, documented
from symbnn.inference.placement import EVERYWHERE, Layout, Placement, Products, local_chains
from symbnn.inference.progress import WORDS, ShowProgress
from symbnn.inference.storage import IN_MEMORY, Storage, check_storage, checksum
from symbnn.programs import is_tall_product, operations
from symbnn.types import Samples

OPERATIONS_PER_CHUNK = 5e12
"""Default size of a chunk: half a minute on two cores, seconds on an accelerator, between two reports."""


SHARED = """num_chains: Chains, each with its own start.
        num_samples: Draws kept per chain.
        num_burnin: Transitions per chain before the first draw, in which the tuning adapts.
        thinning: Transitions per draw.
        initial: One start per chain; None is the target's `init`, for a network a draw from the prior.
        chunk_size: Draws per compiled chunk, so per report and per stored file; None is half a minute's.
        placement: Which devices the chains run on, and whether they share one chain's data.
        storage: What becomes of the draws: kept in memory, left in the sink, or averaged into predictions.
        (progress)
        sink: Where chunks are kept (`io.ChunkStore(directory)`), from which a stopped run goes on.

    Diagnostics are those of `inference.driver.run`.""".replace("(progress)", WORDS)


sampler = documented("(settings of all samplers)", SHARED)
"""Decorates a sampler (or `Run`) whose docstring lists the settings that all samplers share."""


@sampler
@dataclass(frozen=True, eq=False, kw_only=True)
class Run:
    """Settings that all samplers share; checked when it is made.

    Args:
        (settings of all samplers)
    """

    num_chains: int = 4
    num_samples: int = 1000
    num_burnin: int = 100
    thinning: int = 1
    chunk_size: int | None = None
    initial: Samples | None = None
    placement: Placement = EVERYWHERE
    storage: Storage = IN_MEMORY
    progress: ShowProgress = "auto"
    sink: Sink | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Run":
        """From the arguments of a sampler, which has others too."""
        return cls(**{field.name: settings[field.name] for field in fields(cls)})

    def __post_init__(self) -> None:
        least = {"num_chains": 1, "num_samples": 1, "num_burnin": 0, "thinning": 1, "chunk_size": 1}
        for name, smallest in least.items():
            if (value := getattr(self, name)) is not None:
                check_count(name, value, least=smallest)
        check_storage(self.storage, self.sink)


def check_positive(**values: float | int | None) -> None:
    """`ValueError` naming the first that is given and not a positive finite number."""
    for name, value in values.items():
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be positive and finite; got {value}")


class Work(NamedTuple):
    """One chunk of a run: transitions `start` to `stop` of every chain."""

    stage: str
    start: int
    stop: int


def works(settings: Run) -> list[Work]:
    """The chunks of a run, in order."""
    size = (settings.chunk_size or 1) * settings.thinning
    burnin, end = settings.num_burnin, settings.num_burnin + settings.num_samples * settings.thinning
    return [
        *(Work("burn-in", start, min(start + size, burnin)) for start in range(0, burnin, size)),
        *(Work("sampling", start, min(start + size, end)) for start in range(burnin, end, size)),
    ]


def num_draws(settings: Run, work: Work) -> int:
    """Draws of a chunk; in the burn-in, as many as its transitions would make."""
    return math.ceil((work.stop - work.start) / settings.thinning)


def default_chunk_size(settings: Run, target: Target) -> int:
    """Draws of about `OPERATIONS_PER_CHUNK` at a hundred gradients a transition; at most 50.

    It does not depend on the number of draws, so that a longer run goes on from the chunks of a shorter one.
    """
    num_weights = tree.num_weights(jax.eval_shape(target.init, jax.random.key(0)))
    per_draw = 600.0 * num_weights * (target.num_data or 1) * settings.thinning * settings.num_chains
    return int(min(50, max(1, OPERATIONS_PER_CHUNK // per_draw)))


def gradient_products(target: Target) -> Products:
    """The products of one gradient of all data."""
    shapes: Any = jax.eval_shape(target.init, jax.random.key(0))
    program = jax.make_jaxpr(target.log_density)(shapes).jaxpr
    forwards, in_tall = operations(program), operations(program, is_tall_product)
    # Forwards and, twice as long, backwards.
    return Products(3 * forwards, are_tall=in_tall > forwards / 2)


def check_initial(settings: Run, shapes: Any) -> None:
    """`ValueError` naming the leaf of `initial` that is not one network per chain."""
    if settings.initial is None:
        return
    tree.check_same_shapes("initial", settings.initial, shapes, num_leading=1)
    expected = tree.named_leaves(shapes)
    for name, leaf in tree.named_leaves(settings.initial).items():
        shape = (settings.num_chains, *expected[name].shape)
        if leaf.shape != shape or leaf.dtype != expected[name].dtype:
            raise ValueError(
                f"initial leaf {name!r} must be {shape} of {expected[name].dtype}, one network per chain; "
                f"got {leaf.shape} of {leaf.dtype}"
            )


def fingerprint_entries(settings: Run, plan: Layout, name: str, start: str) -> dict[str, str]:
    """What a stored run must agree in, besides key, data and density: all that changes a chunk.

    `start` is that of the target, where no `initial` is given. Not `num_samples`: a longer run goes on from
    the chunks of a shorter one.
    """
    initial = [checksum(leaf) for leaf in jax.tree.leaves(settings.initial)]
    inputs = settings.storage.inputs
    return {
        "method": name,
        "burn-in": str(settings.num_burnin),
        "thinning": str(settings.thinning),
        "chunk_size": str(settings.chunk_size),
        "chains": f"{settings.num_chains}, here {local_chains(plan).tolist()}",
        "lanes": str(plan.lanes) + ("" if plan.lanes > 1 or plan.vmaps_one else ", not vmapped"),
        "data_shards": str(plan.mesh.shape["data"]),
        "kept": f"{'predictions' if inputs is not None else 'draws'} as {settings.storage.dtype}",
        "inputs": "none" if inputs is None else checksum(inputs),
        "initial": ", ".join(initial) or start,
    }
