"""Where the library compiles, read from its source."""

import ast
from collections.abc import Iterator
from pathlib import Path

LIBRARY = Path(__file__).parents[2] / "symbnn"


def compiling(library: Path = LIBRARY) -> dict[str, str]:
    """`file:line` of every `jax.jit`, and `file:function`: what is decorated, or in which it is called."""
    return {
        f"{name}:{line}": f"{name}:{function}"
        for file in sorted(library.rglob("*.py"))
        for name in [str(file.relative_to(library))]
        for line, function in _in_source(ast.parse(file.read_text(encoding="utf-8")), "module")
    }


def _in_source(node: ast.AST, function: str) -> Iterator[tuple[int, str]]:
    """Line and function of every `jax.jit` below a node."""
    if isinstance(node, ast.Attribute) and ast.unparse(node) in ("jax.jit", "jax.pmap"):
        yield node.lineno, function
    name = node.name if isinstance(node, ast.FunctionDef) else function
    for child in ast.iter_child_nodes(node):
        yield from _in_source(child, name)
