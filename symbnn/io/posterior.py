"""Posteriors on disk: what was fitted on one machine is sampled from on another."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from symbnn import names, posteriors
from symbnn.io.files import problem
from symbnn.io.trees import load_tree, read_metadata, save_tree
from symbnn.posteriors import Posterior

KNOWN: tuple[type, ...] = (
    posteriors.DiagonalGaussian,
    posteriors.DroppedUnits,
    posteriors.Empirical,
    posteriors.FixedLeaves,
    posteriors.GaussianMixture,
    posteriors.LowRankGaussian,
    posteriors.LowRankPrecision,
    posteriors.Reading,
    posteriors.Units,
)
FIELD = "posterior"


def save_posterior(path: str | Path, posterior: Posterior, metadata: Mapping[str, Any] | None = None) -> None:
    """Write a posterior in place of `path`, with JSON `metadata`."""
    save_tree(path, posterior, {FIELD: type(posterior).__name__, "user": dict(metadata or {})})


def load_posterior(
    path: str | Path, *, sharding: Any = None, classes: Iterable[type] = ()
) -> tuple[Any, dict[str, Any]]:
    """The posterior and the metadata that `save_posterior` wrote.

    The file may come from another device layout: arrays go to `sharding`, by default to the default device.
    `classes` are posteriors besides those of `symbnn.posteriors`.
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
    return posterior, stored["user"]
