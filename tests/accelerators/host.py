"""What goes through the host, by file of the library, with the reason; and how such places are found."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.accelerators.sites import LIBRARY

HOST = {
    "compact/mixture.py": "k-means of a few hundred networks, in coordinates of their Gram matrix",
    "data/archives.py": "reads MATLAB's files",
    "data/bundled.py": "the data that scikit-learn brings",
    "data/uci.py": "the published split of a table",
    "diagnostics/exchangeability.py": "one p-value from counts",
    "plot/chains.py": "ranks for a figure",
    "sharing/ellipses.py": "neighbours of some thousand components in the plane, by a k-d tree",
    "sharing/kmeans.py": "determinants of 2x2 covariances",
    "sharing/merge.py": "neighbours of some thousand components in the plane, by a k-d tree",
    "sharing/refine.py": "factors of 2x2 covariances",
    "sharing/sweeps.py": "factors of 2x2 covariances; sums over weights are made on the device",
    "sharing/wasserstein.py": "roots of 2x2 covariances",
    "symmetry/alignment/gauge.py": "whether a matrix that was found can be inverted",
    "symmetry/alignment/search/assignment.py": "exact assignments, which accelerators solve no faster",
    "symmetry/certificate.py": "ranks of a Jacobian in double precision",
    "symmetry/gauges/folding.py": "pseudo-inverses of matrices with an entry for every gain",
    "symmetry/gauges/mass.py": "a linear program that tells whether a minimum exists, once for every spec",
    "symmetry/gauges/minimum.py": "conjugate gradients of a large network, whose products the device makes",
}
"""Never inside of a compiled program: the host calls these between programs."""

NOT_LOWERED = {
    "command/merge.py:_judge": "the user's own network, as it is",
    "inference/training/epochs.py:_value": "traced to see whether a step convolves, and never run",
}
"""Compiled functions that no case calls."""

SOLVERS = ("scipy", "sklearn")
CALLBACKS = ("pure_callback", "io_callback", "debug_callback")


def through_host(library: Path = LIBRARY) -> set[str]:
    """Files that import a solver of the host, use NumPy's linear algebra, or call back from a program."""
    return {
        str(file.relative_to(library))
        for file in library.rglob("*.py")
        if any(_is_host(node) for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    }


def _is_host(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        name = ast.unparse(node)
        return name.startswith("np.linalg.") or name.startswith("jax.debug.") or node.attr in CALLBACKS
    return any(module.split(".")[0] in SOLVERS for module in _imported(node))


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom) and not node.level:
        yield node.module or ""
