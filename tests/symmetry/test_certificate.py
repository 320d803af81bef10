"""The certificate: counts that one derives by hand, and what a spec with gaps is told."""

import math

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from symbnn import symmetry
from tests.symmetry.cases import CASES, draw, inputs
from tests.symmetry.discovery.test_kinds import LINEAR, rms_stream


def certified(apply, shapes, x):
    params = draw(shapes)
    return symmetry.completeness(symmetry.discover(apply, params, x), apply, params, x)


def rms(gain, x, epsilon):
    return x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + epsilon) * gain


def block(p, x, epsilon):
    """RMSNorm, two heads, SwiGLU: 832 parameters."""
    x = x @ p["in"]
    h = rms(p["norm1"], x, epsilon)
    q, k, v = (jnp.einsum("btd,dhc->bthc", h, p[name]) for name in ("query", "key", "value"))
    weights = jax.nn.softmax(jnp.einsum("bqhc,bkhc->bhqk", q, k) / 2)
    x = x + jnp.einsum("bhqk,bkhc,hcd->bqd", weights, v, p["out"])
    h = rms(p["norm2"], x, epsilon)
    x = x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]
    return rms(p["norm3"], x, epsilon) @ p["head"]


def network(name):
    case = CASES[name]() if name in CASES else LINEAR[name]
    return case.apply, case.shapes, inputs(case.input_shape)


BLOCK = {"in": (13, 8), "gate": (8, 16), "up": (8, 16), "down": (16, 8), "head": (8, 8), "out": (2, 4, 8)}
BLOCK |= dict.fromkeys(("norm1", "norm2", "norm3"), (8,))
BLOCK |= dict.fromkeys(("query", "key", "value"), (8, 2, 4))


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "total"), [(0.0, 133), (1e-3, 132)])
def test_the_block_has_as_many_dimensions_as_one_counts(epsilon, total):
    """GL(4) four times: QK and VO of two heads; three gains of 8; 16 units of SwiGLU; O(8); a global scale.

    That scale, of everything that writes to the stream, exists only without ε and is nobody's group.
    """
    assert sum(math.prod(shape) for shape in BLOCK.values()) == 832
    result = certified(lambda p, x: block(p, x, epsilon), BLOCK, inputs((2, 6, 13)))
    assert (result.found, result.total) == (4 * 16 + 3 * 8 + 16 + 28, total)
    assert result.missing == total - 132
    if result.missing:
        # It lies in what writes to the stream.
        assert sum(result.leaves.get(name, 0) for name in ("in", "down", "out", "value")) > 0.7


def low_rank(p, x):
    return jax.nn.relu(x @ p["down"] @ p["up"]) @ p["out"]


LOW_RANK = low_rank, {"down": (5, 2), "up": (2, 6), "out": (6, 2)}, inputs((4, 5))
# With as many inputs as units: a stream that inputs do not fill has directions that nothing reads.
COUNTED = {
    "a scale for every unit": (*network("mlp_relu"), 4),
    "GL(2) and six scales": (*LOW_RANK, 4 + 6),
    "O(6)": (rms_stream, {"in": (7, 6), "up": (6, 5), "down": (5, 6), "out": (6, 2)}, inputs((4, 7)), 15),
    "O(5) less what the inputs do not fill": (*network("tied linear autoencoder"), 9),
}


@pytest.mark.parametrize("name", COUNTED)
def test_small_networks_are_complete(name):
    *asked, total = COUNTED[name]
    result = certified(*asked)
    assert (result.found, result.total) == (total, total), result
    assert str(result) == f"all {total} dimensions of symmetry are found"


def test_what_a_spec_leaves_out_is_located():
    """Without its matrices a layer of rank two lacks what GL(2) has beyond two scales."""
    apply, shapes, x = LOW_RANK
    params = draw(shapes)
    spec = symmetry.discover(apply, params, x)
    result = symmetry.completeness(spec.permutations_only(), apply, params, x)
    assert (result.found, result.total, result.missing) == (8, 10, 2)
    assert sum(result.leaves.get(name, 0) for name in ("down", "up")) > 1.5
    assert sum(result.leaves.values()) == pytest.approx(2)
    assert "8 of 10 dimensions of symmetry are found; the rest lies in" in str(result)
    nothing = symmetry.completeness(symmetry.from_axes({}, params), apply, params, x)
    assert (nothing.found, nothing.total) == (0, 10)


def test_weights_that_nothing_reads_are_named():
    def apply(p, x):
        scores = (x @ p["query"]) @ (x @ p["key"] + p["bias"]).swapaxes(1, 2)
        return jax.nn.softmax(scores) @ x

    shapes = {"query": (3, 2), "key": (3, 2), "bias": (2,), "spare": (4,)}
    result = certified(apply, shapes, inputs((2, 5, 3)))
    assert result.missing == 4
    assert result.leaves == {"spare": pytest.approx(4)}


def test_a_wrong_spec_is_refused():
    apply, shapes, x = network("mlp_tanh")
    params = draw(shapes)
    relu = network("mlp_relu")
    wrong = symmetry.discover(relu[0], params, x)
    with pytest.raises(ValueError, match="the spec's own action changes the outputs"):
        symmetry.completeness(wrong, apply, params, x)


def test_large_networks_are_refused():
    params = {"in": jnp.ones((100, 50))}
    spec = symmetry.from_axes({}, params)
    with pytest.raises(ValueError, match="has 5000 parameters; completeness takes at most 4000"):
        symmetry.completeness(spec, lambda p, x: x @ p["in"], params, inputs((2, 100)))


def test_complex_weights_are_refused():
    params = {"in": jnp.ones((3, 2), complex)}
    with pytest.raises(ValueError, match="needs real weights"):
        symmetry.completeness(
            symmetry.from_axes({}, params), lambda p, x: (x @ p["in"]).real, params, inputs((2, 3))
        )


def test_inputs_that_are_all_one_number_are_refused():
    """No data are like these: a kernel that reads zeros would be called free."""
    params = draw({"in": (3, 4), "out": (4, 2)})
    apply = lambda p, x: jax.nn.relu(x @ p["in"]) @ p["out"]  # noqa: E731
    spec = symmetry.discover(apply, params, jnp.zeros((8, 3)))
    with pytest.raises(ValueError, match=r"all one number.*jax.random.normal\(key, \(8, 3\)\)"):
        symmetry.completeness(spec, apply, params, jnp.zeros((8, 3)))
