"""Running chains: a loop on the host over compiled chunks, from which a stopped run goes on.

The key of transition t of chain c is derived from (key, c, t), so a chunk needs nothing but the chains
after the chunk before it: a missing or damaged chunk is computed again, bit for bit, and no other.
"""

import contextlib
import time
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import tree
from symbnn.density import LogDensity, Target, refuse_batch_statistics, require_network
from symbnn.inference import placement
from symbnn.inference.base import Chunk, Fit, MemberStart, ProgressCallback
from symbnn.inference.chains import distributed, programs, report
from symbnn.inference.chains.adaptation import Tuner
from symbnn.inference.chains.kernels import Kernel
from symbnn.inference.chains.settings import (
    Run,
    Work,
    check_initial,
    default_chunk_size,
    fingerprint_entries,
    gradient_products,
    num_draws,
    works,
)
from symbnn.inference.progress import reporting
from symbnn.inference.storage import (
    Stored,
    fingerprint,
    flatten,
    join,
    program_checksum,
    read_whole,
    unflatten,
)
from symbnn.posteriors import Empirical
from symbnn.types import Key


class Session(NamedTuple):
    """What the chunks of one run have in common."""

    settings: Run
    plan: placement.Layout
    programs: programs.Programs
    shard: placement.Shard
    key_data: np.ndarray
    begun: float
    tell: ProgressCallback | None


def run(
    key: Key,
    target: Target,
    kernel: Kernel,
    tuner: Tuner,
    settings: Run | None = None,
    *,
    name: str = "",
) -> Fit:
    """Burn-in, then draws, of all chains.

    Args:
        key: Everything random derives from it, the index of a chain and that of its transition.
        target: What is sampled.
        kernel: How a chain starts and makes one transition.
        tuner: How the burn-in sets step size, masses and length; `adaptation.fixed` leaves them alone.
        settings: Number of chains and draws and the like, see `Run` (default: `Run()`).
        name: The kernel in words, for the message that a sink belongs to another run. A stopped run is
            recognised by what start, kernel and tuner compute.

    Diagnostics, per chain: `acceptance`, `divergences`, `energy_error` (root mean square), `num_gradients`,
    `step_size`, `log_density` (chain, draw), `chains` (their indices); and `seconds`, `damaged_chunks`,
    `verdict` ("ok", or what is wrong with which chain: that is also a `RuntimeWarning`). `acceptance`,
    `divergences` and `energy_error` (NaN where every transition diverged) are those of the draws, without
    the burn-in. If every transition of every chain diverges, a `SamplingError` ends the run.
    """
    settings = Run() if settings is None else settings
    shapes = jax.eval_shape(target.init, jax.random.key(0))
    refuse_batch_statistics(shapes)
    check_initial(settings, shapes)
    _check_target(settings, target)
    plan = placement.layout(settings.num_chains, settings.placement, products=gradient_products(target))
    settings = replace(settings, chunk_size=settings.chunk_size or default_chunk_size(settings, target))
    if settings.sink is not None:
        start = program_checksum(target.init, key)
        entries = fingerprint_entries(settings, plan, name or tuner.name, start)
        entries["sampler"] = programs.sampler_checksum(key, target, kernel, tuner)
        settings.sink.open(fingerprint(key, target, entries))

    compiled = programs.build(target, kernel, tuner, plan, settings, key_impl=jax.random.key_impl(key))
    shard = placement.place_data(plan, target.data if programs.has_data_parts(target) else None)
    key_data = np.asarray(jax.random.key_data(key))
    with reporting(settings.progress) as tell:
        session = Session(settings, plan, compiled, shard, key_data, time.perf_counter(), tell)
        return _loop(session, shapes)


def _check_target(settings: Run, target: Target) -> None:
    """`ValueError` if the target contradicts itself or lacks parts that the settings ask for."""
    if settings.storage.collect == "predictions":
        require_network(target, "Storage(collect='predictions')")
    parts = target.log_density
    if isinstance(parts, LogDensity) and parts.log_priors and parts.temperature != target.temperature:
        raise ValueError(
            f"the target says temperature {target.temperature}, but its log_density has {parts.temperature}; "
            "make a target of another temperature with density.target(..., temperature=...)"
        )
    if settings.sink is not None and isinstance(target.init, MemberStart):
        raise ValueError(
            "multimode runs this sampler once per member, but a sink keeps one run; leave sink out, or run "
            "the sampler member by member (initial=...) with a sink for each"
        )
    if settings.initial is not None and isinstance(target.init, MemberStart):
        raise ValueError(
            "multimode starts this sampler from each of its members, but the sampler has starts of its own "
            "(initial=...); leave initial out, or give those networks as members"
        )
    if settings.placement.data_shards > 1 and not programs.has_data_parts(target):
        raise ValueError(
            "data_shards divides the data of a likelihood among devices, but this target's log_density is no "
            "sum over data; make the target with density.target(model, data), or leave data_shards at 1"
        )


def _loop(session: Session, shapes: Any) -> Fit:
    todo = works(session.settings)
    state: Any = _start(session)
    template = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), state)
    kept: list[Any] = []
    log_densities: list[np.ndarray] = []
    tallies: dict[str, list[report.Tally]] = {"burn-in": [], "sampling": []}
    damaged: list[str] = []
    step_size = np.zeros(0)
    chunk: Chunk = {}
    is_first = True
    for index, work in enumerate(todo):
        found, is_free = _read(session, index, work, damaged)
        if found is None:
            with report.noting_first(work, index) if is_first else contextlib.nullcontext():
                state, chunk = _compute(session, state, work)
            is_first = False
            if session.settings.sink is not None and is_free:
                session.settings.sink.write(index, chunk)
        else:
            state, chunk = _Parked(unflatten("state", found, template)), found
        step_size = chunk["state/tuning/step_size"]
        tallies[work.stage].append(report.tally_of(chunk))
        if work.stage == "sampling":
            kept.append(_keep(session, chunk, shapes))
            log_densities.append(chunk["info/log_density"])
        everything = report.add(tallies["burn-in"] + tallies["sampling"])
        is_last = index == len(todo) - 1
        report.require_progress(everything, step_size, is_last=is_last, everywhere=distributed.everywhere)
        report.log_chunk(session.settings, work, tallies, step_size, placement.local_chains(session.plan))
        if session.tell is not None:
            seconds = time.perf_counter() - session.begun
            session.tell(report.event(session.settings, work, chunk, seconds, replayed=found is not None))
    extra = {
        "num_gradients": everything.gradients.astype(int),
        "log_density": np.concatenate(log_densities, axis=1),
        "damaged_chunks": tuple(damaged),
        "seconds": time.perf_counter() - session.begun,
    }
    rates = report.diagnostics(
        report.add(tallies["sampling"]), step_size, placement.local_chains(session.plan)
    )
    if rates["verdict"] != "ok":
        warnings.warn(rates["verdict"], RuntimeWarning, stacklevel=4)
    return _fit(session, kept, chunk, {**rates, **extra}, shapes)


class _Parked(NamedTuple):
    """Chains on the host, read from a sink: placed on devices only if a chunk must be computed from them."""

    rows: Any


def _start(session: Session) -> Any:
    """Chains at their start; `ValueError`, on all processes, where the log-density is not finite."""
    settings, plan = session.settings, session.plan
    begin: dict[str, Any] = {"index": placement.local_chains(plan).astype(np.int32)}
    if settings.initial is not None:
        begin["params"] = tree.take(jax.tree.map(np.asarray, settings.initial), begin["index"])
    state, finite = session.programs.start(
        placement.place_chains(plan, begin), session.shard, session.key_data
    )
    bad = begin["index"][~placement.fetch_chains(plan, finite)]
    if not distributed.everywhere(bad.size == 0):
        # Of the processes that share the data of a chain, each names it.
        named = np.unique(distributed.together(bad)).tolist()
        raise ValueError(
            f"Chains {named} start where the log-density or its gradient is not finite; "
            "give other starts (initial=...)"
        )
    return state


def _read(session: Session, index: int, work: Work, damaged: list[str]) -> tuple[Chunk | None, bool]:
    """(the stored chunk if it is whole and fits, on every process; whether another may take its place).

    A damaged one is named and redone. That of a longer run, which only the last can be, is cut to the draws
    of this one, and its place is not free: the longer run still needs it.
    """
    sink = session.settings.sink
    if sink is None:
        return None, False
    chunk, wanted = read_whole(sink, index, damaged), num_draws(session.settings, work)
    stored = 0 if chunk is None else chunk["info/transitions"].shape[1]
    # Predictions are a sum over the chunk, which cannot be cut.
    fits = stored == wanted if session.settings.storage.collect == "predictions" else stored >= wanted
    agreed = distributed.everywhere(fits)
    if chunk is None or not agreed:
        return None, stored <= wanted
    return {name: _first(name, array, wanted) for name, array in chunk.items()}, False


def _first(name: str, array: np.ndarray, num: int) -> np.ndarray:
    """An array of a chunk with `num` draws; the chains after it have none."""
    return array[:, :num] if name.split("/")[0] in ("info", "draws") else array


def _compute(session: Session, state: Any, work: Work) -> tuple[Any, Chunk]:
    """(chains after the chunk on the devices, the chunk on the host)."""
    plan = session.plan
    if isinstance(state, _Parked):
        state = placement.place_chains(plan, state.rows)
    number, is_burnin = np.int32(work.stop - work.start), np.bool_(work.stage == "burn-in")
    window = programs.Window(np.int32(work.start), number, is_burnin)
    inputs = () if session.settings.storage.inputs is None else np.asarray(session.settings.storage.inputs)
    state, totals, kept = session.programs.advance(state, session.shard, session.key_data, window, inputs)
    host = placement.fetch_chains(plan, {"state": state, "info": totals})
    num = num_draws(session.settings, work)
    host["info"] = jax.tree.map(lambda leaf: leaf[:, :num], host["info"])
    if session.settings.storage.collect == "predictions":
        host["predictions"] = placement.fetch_chains(plan, kept)
    elif work.stage == "sampling":
        host["draws"] = jax.tree.map(lambda leaf: leaf[:, :num], placement.fetch_chains(plan, kept))
    return state, flatten("", host)


def _keep(session: Session, chunk: Chunk, shapes: Any) -> Any:
    """What stays in memory of a chunk."""
    collect = session.settings.storage.collect
    if collect == "samples":
        return unflatten("draws", chunk, shapes)
    return chunk["predictions"].astype(np.float64).sum(0) if collect == "predictions" else None


def _fit(session: Session, kept: list[Any], last: Chunk, diagnostics: dict[str, Any], shapes: Any) -> Fit:
    settings = session.settings
    num_here = len(diagnostics["chains"])
    if settings.storage.collect == "samples":
        return Fit(jax.tree.map(jnp.asarray, Empirical.from_chains(join(kept))), diagnostics)
    if settings.storage.collect == "stored":
        assert settings.sink is not None
        indices = tuple(i for i, work in enumerate(works(settings)) if work.stage == "sampling")
        dtype = settings.storage.dtype
        template = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, dtype or s.dtype), shapes)
        return Fit(Stored(settings.sink, template, indices, num_here, settings.num_samples), diagnostics)
    mean = sum(kept) / (num_here * settings.num_samples)
    final = jax.tree.map(lambda leaf: leaf[:, None], unflatten("state/sampler/position", last, shapes))
    posterior = jax.tree.map(jnp.asarray, Empirical.from_chains(final))
    return Fit(posterior, {**diagnostics, "predictions": mean.astype(np.float32)})
