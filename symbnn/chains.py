"""Draws and the chains they come from: what may be given as samples, and what must not be.

Samples are networks stacked along one axis, chain after chain. Samplers of other libraries give two axes,
`(chains, draws, ...)`, and whoever takes the first of them for the draws averages over a handful of chains
without a word. Where the shape of one network is known (a spec, a network function, another set of networks)
such a tree is told by its shapes. A tree alone is ambiguous: it is refused if it looks like chains, unless
the caller says how many chains it holds.

A set of draws that knows its chains is anything with `samples` and `num_chains`: `posteriors.Empirical`, and
what `symmetry.align` makes of one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import tree
from symbnn.types import Samples


class Draws(NamedTuple):
    """Networks along one axis, and the number of chains they come from, if that was said."""

    samples: Samples
    num_chains: int | None


def unpack(
    given: Any, num_chains: int | None = None, check: Callable[[Samples], None] | None = None
) -> Draws:
    """The networks in what was given as samples, and their chains; `ValueError` for anything else.

    Args:
        given: Stacked networks, or a posterior (or `Fit`) that keeps its networks.
        num_chains: What the caller said; it must be what a posterior says.
        check: Raises for networks of another shape. Without it nothing is known about their shape, and what
            looks like chains is refused.
    """
    kept = keeper(given)
    if not _keeps(kept):
        _refuse_laws(kept)
        kept = Draws(kept, num_chains)
        if check is None:
            refuse_grouped(kept.samples, num_chains)
    if check is not None:
        check(kept.samples)
    if num_chains is not None and kept.num_chains not in (None, num_chains):
        raise ValueError(
            f"num_chains is {num_chains}, but the {type(kept).__name__} holds {kept.num_chains} chains; "
            "leave num_chains out"
        )
    return Draws(kept.samples, num_chains if kept.num_chains is None else kept.num_chains)


def require(
    given: Any, num_chains: int | None = None, check: Callable[[Samples], None] | None = None
) -> tuple[Samples, int]:
    """As `unpack`, where the number of chains must be known."""
    samples, found = unpack(given, num_chains, check)
    if found is None:
        raise ValueError(
            "num_chains is needed: samples alone do not say how many chains they hold; give num_chains, or a "
            "posteriors.Empirical, which knows"
        )
    tree.check_chains(samples, found)
    return samples, found


def keeper(given: Any) -> Any:
    """What holds the networks: the posterior of a `Fit`, else what was given."""
    is_fit = isinstance(given, tuple) and hasattr(given, "posterior") and hasattr(given, "diagnostics")
    return given.posterior if is_fit else given


def networks(given: Any) -> Any:
    """The stacked networks of a set of draws; whatever else was given comes back as it is."""
    kept = keeper(given)
    return kept.samples if _keeps(kept) else kept


def grouped(samples: Samples) -> tuple[int, int] | None:
    """(chains, draws) that a tree may have: the two leading axes, if all leaves agree on them."""
    leading = {np.shape(leaf)[:2] for leaf in jax.tree.leaves(samples)}
    first = next(iter(leading), ())
    return (first[0], first[1]) if len(leading) == 1 and len(first) == 2 else None


def refuse_grouped(samples: Samples, num_chains: int | None = None) -> None:
    """`ValueError` for a tree that looks like `(chains, draws, ...)`, where nothing else is known about it.

    Whoever says `num_chains` is believed, except that one draw a chain is what such a tree would give. Leaves
    of a network rarely all agree on their first axis, and it is rarely longer than that of the samples; one
    leaf alone agrees with itself, and if it has one axis more it would be a single number.
    """
    leading = grouped(samples)
    if leading is None or (num_chains is not None and (num_chains == 1 or num_chains != leading[0])):
        return
    leaves = jax.tree.leaves(samples)
    if leading[1] > leading[0] and (len(leaves) > 1 or np.ndim(leaves[0]) > 2):
        raise ValueError(
            f"every leaf of the samples has shape ({leading[0]}, {leading[1]}, ...): {tree.FROM_CHAINS}; if "
            f"they are {leading[0]} networks, say so with posteriors.Empirical(samples, num_chains=1)"
        )


def flatten(samples: Samples) -> tuple[Samples, int]:
    """Samples `(chains, draws, ...)` along one axis, chain after chain, and the number of chains."""
    leaves = tree.named_leaves(samples)
    if not leaves:
        raise ValueError("samples: expected a tree of arrays (chains, draws, ...), got one without leaves")
    ungrouped = (
        "samples of one axis, chain after chain, are posteriors.Empirical(samples, num_chains=...); NumPyro "
        "groups them by get_samples(group_by_chain=True)"
    )
    first, expected = next((name, np.shape(leaf)[:2]) for name, leaf in leaves.items())
    for name, leaf in leaves.items():
        if np.ndim(leaf) < 2:
            raise ValueError(
                f"leaf {name!r} has shape {np.shape(leaf)}; expected (chains, draws, ...): {ungrouped}"
            )
        if np.shape(leaf)[:2] != expected:
            raise ValueError(
                f"leaf {name!r} has shape {np.shape(leaf)}, but leaf {first!r} begins with {expected}; all "
                f"leaves must agree on (chains, draws): {ungrouped}"
            )
    if 0 in expected:
        raise ValueError(f"samples: expected at least one chain and one draw, got {expected}")
    flat = jax.tree.map(lambda leaf: _array(leaf).reshape(-1, *np.shape(leaf)[2:]), samples)
    return flat, expected[0]


def check_numbers(samples: Samples, purpose: str) -> None:
    """`ValueError` naming a leaf that is a random key, which has no mean: Dropout of nnx keeps one."""
    for name, leaf in tree.named_leaves(samples).items():
        if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            raise ValueError(
                f"leaf {name!r} is a random key, and {purpose}; give the weights alone, of an nnx module "
                "nnx.split(module, nnx.Param, ...)"
            )


def _keeps(kept: Any) -> bool:
    """Whether it is a set of draws that knows its chains, in memory."""
    is_stored = callable(getattr(kept, "chunks", None))
    return not is_stored and hasattr(kept, "samples") and hasattr(kept, "num_chains")


def _refuse_laws(given: Any) -> None:
    """`ValueError` for a posterior that must be read or drawn from first."""
    if callable(getattr(given, "load", None)) and callable(getattr(given, "chunks", None)):
        raise ValueError("the draws are in a store; read them first: posterior.load()")
    if callable(getattr(given, "sample", None)) and callable(getattr(given, "log_prob", None)):
        raise ValueError(
            f"samples: got a {type(given).__name__}, a law; draw networks from it first: "
            "posterior.sample(key, num)"
        )


def _array(leaf: Any) -> Any:
    """Leaves on the host stay there."""
    return leaf if isinstance(leaf, jax.Array | np.ndarray) else np.asarray(leaf)
