"""Programs that once fooled discovery, or were built to: whatever is found must hold in double precision."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from symbnn import symmetry


def experts(p, x, change):
    """Experts whose hidden activations are changed along the expert axis."""
    hidden = jax.nn.relu(jnp.einsum("bi,eih->ebh", x, p["a"]))
    return jnp.einsum("ebh,ehk->bk", change(hidden), p["b"])


def scanned(p, x, change):
    """Residual layers whose second weights are read in another order than their first."""

    def layer(h, w):
        return h + jax.nn.relu(h @ w[0]) @ w[1], None

    return lax.scan(layer, x, (p["a"], change(p["b"])))[0]


STACKED = {"a": (3, 2, 4), "b": (3, 4, 2)}
DENSE = {"a": (2, 4), "b": (4, 2)}
TABLE = {"t": (5,), "b": (4, 2)}

PROGRAMS = {
    "experts reversed": (STACKED, lambda p, x: experts(p, x, lambda h: h[::-1])),
    "experts accumulated": (STACKED, lambda p, x: experts(p, x, lambda h: jnp.cumsum(h, 0))),
    "experts running maximum": (STACKED, lambda p, x: experts(p, x, lambda h: lax.cummax(h, 0))),
    "experts rolled": (STACKED, lambda p, x: experts(p, x, lambda h: jnp.roll(h, 1, 0))),
    "experts sorted": (STACKED, lambda p, x: experts(p, x, lambda h: jnp.sort(h, 0))),
    "layers read backwards": (STACKED, lambda p, x: scanned(p, x, lambda b: jnp.flip(b, 0))),
    "layers rolled": (STACKED, lambda p, x: scanned(p, x, lambda b: jnp.roll(b, 1, 0))),
    "padded with ones": (
        {"a": (2, 3), "b": (5, 2)},
        lambda p, x: jnp.pad(jax.nn.relu(x @ p["a"]), ((0, 0), (0, 2)), constant_values=1.0) @ p["b"],
    ),
    "padded with a weight": (
        {"a": (2, 3), "b": (5, 2), "c": ()},
        lambda p, x: lax.pad(jax.nn.relu(x @ p["a"]), p["c"], ((0, 0, 0), (0, 2, 0))) @ p["b"],
    ),
    "one row four times": (TABLE, lambda p, x: x.sum() * (p["t"][jnp.zeros(4, int)] @ p["b"])),
    "code book": (
        TABLE | {"c": (4, 5)},
        lambda p, x: x.sum() * (p["t"][jnp.argmax(p["c"], 1)] @ p["b"]),
    ),
    "filled out of bounds": (
        {"a": (2, 3), "b": (3, 2)},
        lambda p, x: (
            jax.nn.relu(x @ p["a"]).at[jnp.array([0, 7, 1])].get(mode="fill", fill_value=1.0) @ p["b"]
        ),
    ),
    "shift rounded to an integer": (
        DENSE | {"v": (4,)},
        lambda p, x: ((x @ p["a"]) * (p["v"] + jnp.full(4, 2.5).astype(int).astype(x.dtype))) @ p["b"],
    ),
    "one over zero": (
        DENSE,
        lambda p, x: jnp.arctan(jnp.where(x[:, :1] > 0, x @ p["a"], jnp.ones(()) / jnp.zeros(()))) @ p["b"],
    ),
    "quantised": (DENSE, lambda p, x: lax.reduce_precision(jax.nn.relu(x @ p["a"]), 8, 3) @ p["b"]),
    "eight bits": (
        DENSE,
        lambda p, x: jax.nn.relu(x @ p["a"]).astype(jnp.float8_e4m3fn).astype(x.dtype) @ p["b"],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_invented(name):
    shapes, apply = PROGRAMS[name]
    keys = jax.random.split(jax.random.key(0), len(shapes) + 1)
    params = {
        leaf: jax.random.normal(key, shape) for (leaf, shape), key in zip(shapes.items(), keys, strict=False)
    }
    inputs = jax.random.normal(keys[-1], (3, 2))
    spec = symmetry.discover(apply, params, inputs)
    if spec.groups:
        symmetry.verify(spec, apply, params, inputs, keys[-1], float64=True).raise_if_broken()


def test_what_is_true_is_still_found():
    """The guards do not cost the plain cases: experts and scanned layers vary, zero padding rescales."""

    def find(shapes, apply):
        params = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
        return symmetry.discover(apply, params, jax.ShapeDtypeStruct((3, 2), jnp.float32))

    plain = find(STACKED, lambda p, x: experts(p, x, lambda h: h))
    assert [(g.size, len(g.over), g.num_scales) for g in plain.groups] == [(3, 0, 0), (4, 1, 1)]
    layers = find(STACKED, lambda p, x: scanned(p, x, lambda b: b))
    assert [(g.size, len(g.over), g.num_scales) for g in layers.groups] == [(4, 1, 1)]
    padded = find(
        {"a": (2, 3), "b": (5, 2)}, lambda p, x: jnp.pad(jax.nn.relu(x @ p["a"]), ((0, 0), (0, 2))) @ p["b"]
    )
    assert (3, 1) in [(g.size, g.num_scales) for g in padded.groups]
