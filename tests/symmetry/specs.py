"""Specs written by hand, whose groups lie inside others, twice on one leaf, or end to end."""

from fractions import Fraction

import jax.numpy as jnp
import numpy as np

from symbnn.symmetry.spec import Factor, Group, Index, Leaf, Segments, SymmetrySpec

ONE, MINUS = (Fraction(1),), (Fraction(-1),)


def everything_spec() -> SymmetrySpec:
    """Hidden units over experts; experts permute with the gate; a packed axis; segments; many exponents."""
    expert = Factor(3, "expert")
    hidden = Factor(4, "hidden", scales=ONE, signs=(1,))
    reading = Factor(4, "hidden", scales=MINUS, signs=(1,))
    other = Factor(2, "other", scales=(Fraction(1, 2), Fraction(-2)))
    return SymmetrySpec(
        groups=(
            Group("expert", 3),
            Group("hidden", 4, over=("expert",), num_scales=1, num_signs=1),
            Group("other", 2, over=("layer", "expert"), num_scales=2),
        ),
        indices=(Index("layer", 5),),
        leaves=(
            Leaf("gate", (7, 3), ((Factor(7),), (expert,))),
            Leaf("up", (3, 6, 4), ((expert,), (Factor(6),), (hidden,))),
            Leaf("packed", (12, 5), ((expert, reading), (Factor(5, "layer"),))),
            Leaf("square", (3, 5, 2, 2), ((expert,), (Factor(5, "layer"),), (other,), (other,))),
            Leaf("sum", (3, 4 + 6), ((expert,), (Segments(((hidden,), (Factor(6),))),))),
            Leaf("scalar", (), ()),
        ),
    )


def experts_spec() -> SymmetrySpec:
    """Experts that permute with their gate, hidden units inside each."""
    expert, hidden = Factor(3, "expert"), Factor(5, "hidden")
    return SymmetrySpec(
        groups=(Group("expert", 3), Group("hidden", 5, over=("expert",))),
        leaves=(
            Leaf("down", (15, 2), ((expert, hidden), (Factor(2),))),
            Leaf("gate", (4, 3), ((Factor(4),), (expert,))),
            Leaf("up", (3, 4, 5), ((expert,), (Factor(4),), (hidden,))),
        ),
    )


def recurrent_spec() -> SymmetrySpec:
    """A state that its own weights carry twice."""
    state = Factor(6, "state")
    return SymmetrySpec(
        groups=(Group("state", 6),),
        leaves=(
            Leaf("enter", (4, 6), ((Factor(4),), (state,))),
            Leaf("leave", (6, 2), ((state,), (Factor(2),))),
            Leaf("recur", (6, 6), ((state,), (state,))),
        ),
    )


def concatenated_spec() -> SymmetrySpec:
    """A reader of two layers laid end to end, and layers that each index of a scan has its own labels for."""
    left, right, deep = Factor(4, "left"), Factor(5, "right"), Factor(3, "deep")
    return SymmetrySpec(
        groups=(Group("left", 4), Group("right", 5), Group("deep", 3, over=("layer",))),
        indices=(Index("layer", 2),),
        leaves=(
            Leaf("a", (6, 4), ((Factor(6),), (left,))),
            Leaf("b", (4, 5), ((left,), (right,))),
            Leaf("both", (9, 2), ((Segments(((left,), (right,))),), (Factor(2),))),
            Leaf("stack", (2, 7, 3), ((Factor(2, "layer"),), (Factor(7),), (deep,))),
        ),
    )


def random_params(spec: SymmetrySpec, seed: int):
    random = np.random.default_rng(seed)
    return {leaf.name: jnp.asarray(random.normal(size=leaf.shape), jnp.float32) for leaf in spec.leaves}


def linear_spec() -> SymmetrySpec:
    """Heads of channels that any invertible matrix mixes, a stream that rotates, one that keeps its mean."""
    head = Factor(3, "head")
    vector, dual = Factor(4, "channel", ONE, (1,)), Factor(4, "channel", MINUS, (1,))
    stream, centred = Factor(5, "stream", signs=(1,)), Factor(6, "centred")
    return SymmetrySpec(
        groups=(
            Group("head", 3),
            Group("channel", 4, ("head",), 1, 1, "invertible"),
            Group("stream", 5, num_signs=1, kind="orthogonal"),
            Group("centred", 6, kind="orthogonal", centred=True),
        ),
        leaves=(
            Leaf("query", (5, 3, 4), ((stream,), (head,), (vector,))),
            Leaf("key", (12, 5), ((head, dual), (stream,))),
            Leaf("square", (4, 3, 4), ((dual,), (head,), (vector,))),
            Leaf("embedding", (7, 5), ((Factor(7),), (stream,))),
            Leaf("sum", (6 + 2, 5), ((Segments(((centred,), (Factor(2),))),), (stream,))),
            Leaf("gram", (6, 6), ((centred,), (centred,))),
        ),
    )
