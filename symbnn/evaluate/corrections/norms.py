"""Where a network normalises by running statistics, and which leaves these are.

A running variance stands under a root that multiplies or divides data. The running mean has its shape and is
subtracted before that, or taken off later together with the root (folded: x · r + (b − m · r)). Either may be
used as a multiple of what is kept (Equinox makes up for the bias of the first updates).
"""

from typing import NamedTuple

from symbnn.evaluate.corrections.origins import ROOTS, Origins, Spread, spread_along
from symbnn.symmetry.program import Equation, Value

PRODUCTS, SUMS = {"mul", "div"}, {"add", "sub", "add_any"}


class Norm(NamedTuple):
    """Normalisation by running statistics."""

    mean: str
    variance: str
    normalised: Value
    """The value whose mean and variance they stand for."""
    spread: Spread
    """How the mean lies in it."""
    used_mean: tuple[Value, Spread]
    """The value, made of weights alone, in which the mean is used: itself, or a multiple (debiased)."""
    used_variance: tuple[Value, Spread]
    """Likewise for the variance: what the root is taken of."""


def find_norm(origins: Origins, chain: tuple[Equation, ...]) -> Norm | None:
    """The norm of a chain, if it has one."""
    for product, equation in enumerate(chain):
        multiplier = origins.other(equation)
        if equation.primitive not in PRODUCTS or multiplier is None:
            continue
        for variance in sorted(origins.rooted.get(multiplier, ())):
            if origins.is_own(variance, chain) and (norm := _with_mean(origins, chain, product, variance)):
                return norm
    return None


def _with_mean(origins: Origins, chain: tuple[Equation, ...], product: int, variance: str) -> Norm | None:
    """The running mean that belongs to a variance, whose root multiplies in equation `product`."""
    multiplier = origins.other(chain[product])
    root = None if multiplier is None else _under_root(origins, multiplier, variance)
    if root is None:
        return None
    for equation in reversed(chain[:product]):
        for leaf in sorted(origins.leaves_of(equation)) if equation.primitive == "sub" else ():
            if norm := _norm_by(origins, chain, equation, equation, leaf, variance, root):
                return norm
    known = origins.leaves_of(chain[product])
    for equation in chain[product + 1 :]:
        # Folded: x · r + (b − m · r). The mean is multiplied by the root here, and not before.
        for leaf in sorted(origins.leaves_of(equation) - known) if equation.primitive in SUMS else ():
            if norm := _norm_by(origins, chain, equation, chain[product], leaf, variance, root):
                return norm
    return None


def _under_root(origins: Origins, value: Value, variance: str) -> Value | None:
    """What the root of a variance is taken of."""
    equation = origins.made_by.get(value)
    having = [v for v in equation.operands if variance in origins.of(v)] if equation else []
    if equation is None or len(having) != 1:
        return None
    return having[0] if equation.primitive in ROOTS else _under_root(origins, having[0], variance)


def _norm_by(
    origins: Origins,
    chain: tuple[Equation, ...],
    equation: Equation,
    begins: Equation,
    leaf: str,
    variance: str,
    root: Value,
) -> Norm | None:
    """The norm if `leaf`, met in `equation`, is its mean; what is normalised enters at `begins`."""
    other = origins.other(equation)
    path = None if other is None else origins.path(other, leaf, PRODUCTS | SUMS | {"neg"})
    below = origins.path(root, variance, PRODUCTS | SUMS | {"max"})
    shapes = {name: value.shape for value, name in origins.names.items()}
    if path is None or below is None or shapes[leaf] != shapes[variance] or not origins.is_own(leaf, chain):
        return None
    rooted = [i for i, (e, _) in enumerate(path) if variance in origins.of(e.results[0])]
    if bool(rooted) != (equation is not begins) or (rooted and path[rooted[0]][0].primitive in SUMS):
        return None
    # Up to where the root joins, the path makes the mean itself.
    alone = path[: rooted[0]] if rooted else path
    used = path[rooted[0]][1] if rooted else other
    assert used is not None
    normalised = next(value for value in begins.operands if value in origins.data)
    return Norm(
        leaf,
        variance,
        normalised,
        spread_along(path, normalised.shape),
        (used, spread_along(alone, used.shape)),
        (root, spread_along(below, root.shape)),
    )
