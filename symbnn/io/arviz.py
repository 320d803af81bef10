"""Samples for ArviZ: its plots, summaries and file format, for whoever works with them.

`interop.from_arviz` is the inverse; what ArviZ has no place for goes along as a note (`arviz_note`).
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from symbnn import chains, tree
from symbnn.io import arviz_note

# Our names of statistics of draws -> those of ArviZ's schema.
STATISTICS = {
    "log_density": "lp",
    "acceptance": "acceptance_rate",
    "is_divergent": "diverging",
    "num_steps": "n_steps",
}


def to_arviz(
    samples: Any,
    num_chains: int | None = None,
    diagnostics: Mapping[str, Any] | None = None,
    *,
    separator: str | None = None,
) -> Any:
    """ArviZ data of samples; leaves keep their names (`hidden/kernel`).

    Of the diagnostics, arrays `(chains, draws, ...)` and trees of them become sample statistics. The rest
    says nothing about single draws: short entries go into the note, long ones are left out.

    Args:
        samples: An `Empirical`, a `Fit` with its diagnostics, or networks in chain-major order.
        num_chains: Chains of networks that are given alone; by default one.
        diagnostics: By default those of the `Fit`.
        separator: Between the parts of a name: by default `"/"`, in data trees (ArviZ 1) `"."`. Files take no
            `"/"` either: give `"."` before `to_netcdf`.
    """
    if diagnostics is None:
        diagnostics = samples.diagnostics if chains.keeper(samples) is not samples else {}
    samples, known = chains.unpack(samples, num_chains)
    num_chains = 1 if known is None else known
    chains.check_numbers(samples, "ArviZ holds numbers")
    by_chain = tree.by_chain(samples, num_chains)
    shape = (num_chains, tree.num_samples(samples) // num_chains)
    _check_log_density(diagnostics, shape)
    try:
        import arviz
    except ImportError as error:
        raise ImportError("to_arviz needs ArviZ; install it with: pip install arviz") from error
    is_tree = int(arviz.__version__.split(".")[0]) >= 1
    separator = separator or ("." if is_tree else "/")
    posterior, names = _variables(by_chain, separator)
    statistics, kept = _statistics(diagnostics, shape, separator)
    if is_tree:
        data = arviz.from_dict({"posterior": posterior, "sample_stats": statistics})
    else:
        data = arviz.from_dict(posterior=posterior, sample_stats=statistics or None)
    rest = {name: value for name, value in diagnostics.items() if name not in kept}
    note = arviz_note.written(shape, separator, (samples, names), kept, rest)
    getattr(data["posterior"], "attrs", {})[arviz_note.ATTRIBUTE] = note
    return data


def _variables(values: Any, separator: str, name: str = "") -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(arrays by variable, variables by leaf) of a tree, or of the statistic of that name."""
    paths = jax.tree_util.tree_leaves_with_path(values)
    leaves = {tree.path_name(path): leaf for path, leaf in paths}
    names = {leaf: "/".join(part for part in (name, leaf) if part).replace("/", separator) for leaf in leaves}
    names = {leaf: variable or "array" for leaf, variable in names.items()}
    if len(set(names.values())) < len(paths):
        raise ValueError(f"two leaves get the same name; avoid {separator!r} in the keys of the tree")
    for variable in {"chain", "draw"} & set(names.values()):
        raise ValueError(f"a leaf is called {variable!r}, as a dimension of ArviZ's is; rename it")
    return {names[leaf]: np.asarray(array) for leaf, array in leaves.items()}, names


def _statistics(
    diagnostics: Mapping[str, Any], shape: tuple[int, int], separator: str
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(arrays by variable, (value, variable of each leaf) by name) of what has numbers for every draw."""
    statistics: dict[str, np.ndarray] = {}
    kept: dict[str, Any] = {}
    for name, value in diagnostics.items():
        leaves = jax.tree.leaves(value)
        if not leaves or not all(_is_per_draw(leaf, shape) for leaf in leaves):
            continue
        schema = STATISTICS.get(name, name)
        arrays, names = _variables(value, separator, name if schema in statistics else schema)
        statistics |= arrays
        kept[name] = (value, names)
    return statistics, kept


def _is_per_draw(leaf: Any, shape: tuple[int, int]) -> bool:
    is_number = hasattr(leaf, "dtype") and not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return is_number and leaf.shape[:2] == shape


def _check_log_density(diagnostics: Mapping[str, Any], shape: tuple[int, int]) -> None:
    """`ValueError` if the diagnostics speak of other chains than the samples."""
    found = np.shape(diagnostics.get("log_density", np.empty(shape)))
    if len(found) == 2 and found != shape:
        raise ValueError(
            f"the samples are {shape[0]} chains of {shape[1]} draws, but log_density of the diagnostics has "
            f"{found[0]} chains of {found[1]}: give the num_chains of the samples, or a posteriors.Empirical"
        )
