"""What a run keeps: draws in memory, draws in a sink, or predictions only; and how chunks are named.

A chunk of a run is a flat dict of arrays: `state/...` (the chains after the chunk, enough to go on from),
`info/...` and either `draws/...` or `predictions`. The iteration count is all there is of the random state:
the key of transition t of chain c is derived from the run's key, c and t.
"""

import dataclasses
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal
from jaxtyping import Array

from symbnn import tree
from symbnn.density import LogDensity, Target
from symbnn.inference.base import Chunk, Sink
from symbnn.programs import programs_in
from symbnn.types import Key, Params, Samples


class Storage(NamedTuple):
    """What becomes of the draws."""

    collect: str = "samples"
    """`samples`: all draws in memory at the end. `stored`: draws stay in the sink, `Fit.posterior` reads
    them on demand. `predictions`: only the mean prediction at `inputs`, in `diagnostics["predictions"]`."""
    inputs: Any = None
    dtype: Any = None
    """Of stored draws: float32 by default; float16 or bfloat16 halve the space."""


IN_MEMORY = Storage()


@dataclasses.dataclass(frozen=True)
class Stored:
    """Draws that stay in a sink: a posterior whose memory does not grow with the number of draws."""

    sink: Sink
    template: Params
    """One network: structure, shapes and dtypes."""
    indices: tuple[int, ...]
    """Chunks that hold draws, in order."""
    num_chains: int
    num_samples: int
    """Per chain."""

    def chunks(self) -> Iterator[Samples]:
        """Chunk by chunk in order of time, each with axes (chain, draw, ...)."""
        missing = self.num_samples
        for index in self.indices:
            chunk = self.sink.read(index)
            if chunk is None:
                raise ValueError(f"Chunk {index} of the stored draws is missing; run again to compute it")
            # A longer run may have added to the last chunk.
            draws = jax.tree.map(
                lambda leaf, most=missing: leaf[:, :most], unflatten("draws", chunk, self.template)
            )
            missing -= jax.tree.leaves(draws)[0].shape[1]
            yield draws
        if missing:
            raise ValueError(
                f"The stored chunks hold {self.num_samples - missing} draws of every chain, but this run has "
                f"{self.num_samples}; run it again to compute those that are missing"
            )

    def load(self, *, every: int = 1) -> Samples:
        """Each `every`-th draw of every chain in memory, chain-major."""
        kept, offset = [], 0
        for chunk in self.chunks():
            start = -offset % every
            kept.append(jax.tree.map(lambda leaf, start=start: leaf[:, start::every], chunk))
            offset += jax.tree.leaves(chunk)[0].shape[1]
        return jax.tree.map(lambda leaf: jnp.asarray(leaf.reshape(-1, *leaf.shape[2:])), join(kept))

    def sample(self, key: Key, num: int) -> Samples:
        """`num` stored networks, drawn with replacement."""
        total = self.num_chains * self.num_samples
        picks = np.asarray(jax.random.randint(key, (num,), 0, total))
        chain, draw = np.divmod(picks, self.num_samples)
        result: Samples = None
        offset = 0
        for chunk in self.chunks():
            length = jax.tree.leaves(chunk)[0].shape[1]
            here = np.flatnonzero((draw >= offset) & (draw < offset + length))
            rows = jax.tree.map(lambda leaf, h=here, o=offset: leaf[chain[h], draw[h] - o], chunk)
            if result is None:
                result = jax.tree.map(lambda leaf: np.zeros((num, *leaf.shape[1:]), leaf.dtype), rows)
            for full, part in zip(jax.tree.leaves(result), jax.tree.leaves(rows), strict=True):
                full[here] = part
            offset += length
        return jax.tree.map(jnp.asarray, result)

    def log_prob(self, params: Params) -> Array:
        """Logarithm of the share of stored networks equal to `params`."""
        hits = 0
        for chunk in self.chunks():
            same = jax.tree.map(lambda stored, leaf: stored == np.asarray(leaf), chunk, params)
            whole = [np.all(leaf.reshape(*leaf.shape[:2], -1), axis=-1) for leaf in jax.tree.leaves(same)]
            hits += int(np.sum(np.logical_and.reduce(whole)))
        return jnp.log(jnp.asarray(hits / (self.num_chains * self.num_samples), jnp.float32))


def check_storage(storage: Storage, sink: Sink | None) -> None:
    """`ValueError` where the settings do not fit together."""
    if storage.collect not in ("samples", "stored", "predictions"):
        raise ValueError(f"collect must be 'samples', 'stored' or 'predictions'; got {storage.collect!r}")
    if storage.collect == "stored" and sink is None:
        raise ValueError("collect='stored' keeps the draws in a sink: add sink=io.ChunkStore(directory)")
    if (storage.collect == "predictions") != (storage.inputs is not None):
        raise ValueError("Storage: collect='predictions' and inputs must be given together")
    if storage.dtype is not None and not jnp.issubdtype(storage.dtype, jnp.floating):
        raise ValueError(f"Draws are stored as floating-point numbers; got dtype {storage.dtype}")


def read_whole(sink: Sink, index: int, damaged: list[str]) -> Chunk | None:
    """Chunk `index` if it is there and whole; a damaged one is told, added to `damaged`, and to be redone."""
    try:
        return sink.read(index)
    except ValueError as error:
        damaged.append(str(error))
        warnings.warn(f"Chunk {index} is computed again: {error}", RuntimeWarning, stacklevel=5)
        return None


def flatten(prefix: str, value: Any) -> Chunk:
    """Leaves of a tree on the host, named `prefix/path`."""
    return {_path(prefix, name): np.asarray(leaf) for name, leaf in tree.named_leaves(value).items()}


def unflatten(prefix: str, chunk: Chunk, template: Any) -> Any:
    """The tree of `template`'s structure from the arrays named `prefix/...`."""
    return tree.map_named(lambda name, leaf: chunk[_path(prefix, name)], template)


def _path(prefix: str, name: str) -> str:
    """Without a slash where there is nothing on one side: weights that are one array have no name."""
    return "/".join(part for part in (prefix, name) if part)


def join(chunks: list[Samples]) -> Samples:
    """Chunks (chain, draw, ...) one after the other, on the host."""
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *chunks)


def fingerprint(key: Key, target: Target, settings: Mapping[str, str]) -> dict[str, str]:
    """What a stored run must agree in to be gone on with: key, data, density, settings, JAX version."""
    shapes = jax.eval_shape(target.init, jax.random.key(0))
    if isinstance(target.log_density, LogDensity) and target.data is not None:
        program = program_checksum(target.log_density.log_likelihood, shapes, target.data)
    else:
        program = program_checksum(target.log_density, shapes)
    return {
        "key": checksum(jax.random.key_data(key)),
        "data": ", ".join(checksum(leaf) for leaf in jax.tree.leaves(target.data)) or "none",
        "network": program,
        "likelihood": "none" if target.likelihood is None else target.likelihood.name,
        "prior": "none" if target.prior is None else target.prior.name,
        "temperature": repr(target.temperature),
        "jax": jax.__version__,
        **settings,
    }


def program_checksum(function: Callable[..., Any], *arguments: Any) -> str:
    """What `function` computes for arguments of these shapes: the same in every process."""
    closed = jax.make_jaxpr(function)(*arguments)
    # Functions print with their address in this process, which is not part of what they compute.
    text = re.sub(r"0x[0-9a-f]+", "", str(closed))
    # Arrays it closes over print as variables, and numbers with few digits.
    known = [text, *(checksum(constant) for constant in _constants(closed))]
    return f"{zlib.crc32(chr(10).join(known).encode()):08x}"


def _constants(program: Any) -> Iterator[Any]:
    """Arrays and numbers in a jaxpr, those of jaxprs inside it too: an inner `jit` keeps its own."""
    yield from getattr(program, "consts", ())
    jaxpr = getattr(program, "jaxpr", program)
    yield from (atom.val for atom in jaxpr.outvars if isinstance(atom, Literal))
    for equation in jaxpr.eqns:
        yield from (atom.val for atom in equation.invars if isinstance(atom, Literal))
        for inner in programs_in(equation):
            yield from _constants(inner)


def checksum(values: Any) -> str:
    """Type, shape and CRC32 of an array."""
    array = np.asarray(values)
    return f"{array.dtype}{list(array.shape)}:{zlib.crc32(np.ascontiguousarray(array).tobytes()):08x}"
