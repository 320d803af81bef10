"""Posteriors on disk: what was fitted on one machine is sampled from on another."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from symbnn import names, posteriors
from symbnn.io.files import problem
from symbnn.io.like import in_class_of
from symbnn.io.structure import static_fields
from symbnn.io.trees import load_tree, read_metadata, save_tree
from symbnn.posteriors import Posterior

KNOWN: tuple[type, ...] = (
    posteriors.Block,
    posteriors.DiagonalGaussian,
    posteriors.DroppedUnits,
    posteriors.Empirical,
    posteriors.FixedLeaves,
    posteriors.GaussianMixture,
    posteriors.KroneckerGaussian,
    posteriors.LowRankGaussian,
    posteriors.LowRankPrecision,
    posteriors.Reading,
    posteriors.Units,
)
FIELD = "posterior"


def save_posterior(path: str | Path, posterior: Posterior, metadata: Mapping[str, Any] | None = None) -> None:
    """Write a posterior over networks of any kind in place of `path`.

    Args:
        path: The file.
        posterior: Its networks may be any tree that JAX accepts (see `save_tree`).
        metadata: Kept beside it, as JSON.
    """
    # A posterior must come back whole, whoever reads it.
    static_fields(posterior)
    save_tree(path, posterior, {FIELD: type(posterior).__name__, "user": dict(metadata or {})})


def load_posterior(
    path: str | Path, like: Any = None, *, sharding: Any = None, classes: Iterable[type] = ()
) -> tuple[Any, dict[str, Any]]:
    """The posterior and the metadata that `save_posterior` wrote.

    The networks of the posterior are nested dicts, lists and tuples; with `like`, trees of its class.

    Args:
        path: The file.
        like: A network of the class that is wanted: an Equinox or nnx module (which gives an `nnx.State`), or
            any tree of arrays or shapes with the same leaf names. Of a module only the arrays come back.
        sharding: Where arrays go, by default the default device; the file may come from another layout.
        classes: Posteriors besides those of `symbnn.posteriors`.
    """
    path = Path(path)
    known = {cls.__name__: cls for cls in (*KNOWN, *classes)}
    name = read_metadata(path).get(FIELD)
    if not isinstance(name, str) or name not in known:
        raise problem(
            path,
            expected="a posterior",
            found=repr(name)[:100] if name else "another tree",
            advice=names.nearest(name, known) if isinstance(name, str) else "read it with `load_tree`",
        )
    posterior, stored = load_tree(path, sharding=sharding, classes=known.values())
    if not isinstance(stored.get("user"), dict):
        raise problem(path, expected="metadata", found=repr(stored)[:100], advice="save the posterior again")
    return (posterior if like is None else in_class_of(path, like, posterior)), stored["user"]
