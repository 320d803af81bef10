"""Every rule by itself.

On the axes it leaves free the primitive commutes with relabelling, on those it pins it does not; operands
that are rescaled or flipped as the exponents allow give results rescaled as the exponents say.
"""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from symbnn.symmetry.discovery.exponents import find_exponents
from symbnn.symmetry.discovery.known_values import find_known_values
from symbnn.symmetry.discovery.permutations import find_permutations
from symbnn.symmetry.discovery.roles import Roles
from symbnn.symmetry.discovery.rules import RULES
from symbnn.symmetry.discovery.unknowns import Unknown, number_unknowns
from symbnn.symmetry.program import flatten
from symbnn.symmetry.spec import Segments, atoms, word_size


def conv(groups=1, strides=(1, 1), padding=((1, 1), (1, 1)), batch_groups=1):
    return lambda x, k: lax.conv_general_dilated(
        x,
        k,
        strides,
        padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
        batch_group_count=batch_groups,
    )


def window(reducer, start, sizes, strides):
    return lambda x: lax.reduce_window(x, start, reducer, sizes, strides, "VALID")


INDICES = np.array([2, 0, 3])
SIZES = np.int32([1, 2, 3])
MESH = jax.make_mesh((1,), ("model",), axis_types=(jax.sharding.AxisType.Auto,))
SHARED = jax.shard_map(
    lambda a, b: lax.psum(jax.nn.relu(a) @ b, "model"),
    mesh=MESH,
    in_specs=(P(None, "model"), P("model", None)),
    out_specs=P(),
)

# primitive: (function, operand shapes, free axes of operands, pinned axes of operands)
# An axis is "free" if its class is unpinned; classes are counted once.
OPS = {
    "add": (jnp.add, [(3, 4), (3, 4)], 2, 0),
    "add broadcast": (lambda a, b: a + b, [(3, 4), (1, 4)], 2, 0),
    "mul": (jnp.multiply, [(3, 4), (4,)], 2, 0),
    "div": (jnp.divide, [(3, 4), (3, 4)], 2, 0),
    "sub": (jnp.subtract, [(3, 4), (3, 4)], 2, 0),
    "max": (jnp.maximum, [(3, 4), (3, 4)], 2, 0),
    "min": (jnp.minimum, [(3, 4), (3, 4)], 2, 0),
    "relu": (jax.nn.relu, [(3, 4)], 2, 0),
    "max with a half": (lambda a: jnp.maximum(a, 0.5), [(3, 4)], 2, 0),
    "pow": (lambda a: jnp.power(jnp.abs(a), 1.5), [(3, 4)], 2, 0),
    "pow of arrays": (lambda a, b: jnp.power(jnp.abs(a), b), [(3, 4), (3, 4)], 2, 0),
    "integer_pow": (lambda a: a**3, [(3, 4)], 2, 0),
    "square": (jnp.square, [(3, 4)], 2, 0),
    "sqrt": (lambda a: jnp.sqrt(jnp.abs(a)), [(3, 4)], 2, 0),
    "rsqrt": (lambda a: lax.rsqrt(jnp.abs(a)), [(3, 4)], 2, 0),
    "cbrt": (jnp.cbrt, [(3, 4)], 2, 0),
    "neg": (jnp.negative, [(3, 4)], 2, 0),
    "abs": (jnp.abs, [(3, 4)], 2, 0),
    "sign": (jnp.sign, [(3, 4)], 2, 0),
    "floor": (jnp.floor, [(3, 4)], 2, 0),
    "exp": (jnp.exp, [(3, 4)], 2, 0),
    "log1p": (lambda a: jnp.log1p(jnp.abs(a)), [(3, 4)], 2, 0),
    "tanh": (jnp.tanh, [(3, 4)], 2, 0),
    "logistic": (jax.nn.sigmoid, [(3, 4)], 2, 0),
    "sin": (jnp.sin, [(3, 4)], 2, 0),
    "cos": (jnp.cos, [(3, 4)], 2, 0),
    "erf": (lax.erf, [(3, 4)], 2, 0),
    "gt": (lambda a, b: (a > b).astype(jnp.float32), [(3, 4), (3, 4)], 2, 0),
    "eq": (lambda a, b: (a == b).astype(jnp.float32), [(3, 4), (3, 4)], 2, 0),
    "is_finite": (lambda a: jnp.isfinite(a).astype(jnp.float32), [(3, 4)], 2, 0),
    "select_n": (lambda a, b, c: jnp.where(a > 0, b, c), [(3, 4), (3, 4), (3, 4)], 2, 0),
    "select nan": (lambda a, b: jnp.where(a.sum() > -99, b, jnp.nan), [(2,), (3, 4)], 3, 0),
    "clamp": (lambda a: jnp.clip(a, -0.5, 0.5), [(3, 4)], 2, 0),
    "convert_element_type": (lambda a: a.astype(jnp.float16).astype(jnp.float32), [(3, 4)], 2, 0),
    "convert to integer": (lambda a: (9 * a).astype(jnp.int32), [(3, 4)], 2, 0),
    "stop_gradient": (lax.stop_gradient, [(3, 4)], 2, 0),
    "optimization_barrier": (lambda a, b: lax.optimization_barrier((a, b)), [(3, 4), (4, 3)], 4, 0),
    "transpose": (jnp.transpose, [(3, 4)], 2, 0),
    "squeeze": (lambda a: lax.squeeze(a, (1,)), [(3, 1, 4)], 2, 0),
    "broadcast_in_dim": (lambda a: lax.broadcast_in_dim(a, (5, 3, 4), (1, 2)), [(3, 4)], 2, 0),
    "broadcast from one": (lambda a: lax.broadcast_in_dim(a, (5, 4), (0, 1)), [(1, 4)], 1, 0),
    "reshape merge": (lambda a: a.reshape(12), [(3, 4)], 2, 0),
    "reshape split": (lambda a: a.reshape(3, 4), [(12,)], 2, 0),
    "reshape incompatible": (lambda a: a.reshape(3, 2), [(2, 3)], 0, 2),
    "reshape transposing": (lambda a: lax.reshape(a, (12, 2), (2, 0, 1)), [(3, 2, 4)], 3, 0),
    "concatenate": (lambda a, b: jnp.concatenate([a, b], 1), [(3, 4), (3, 2)], 3, 0),
    "concatenate empty": (lambda a, b: jnp.concatenate([a, b], 1), [(3, 4), (3, 0)], 4, 0),
    "split": (lambda a: jnp.split(a, 2, 1), [(3, 6)], 3, 0),
    "slice": (lambda a: a[:, 1:3], [(3, 5)], 3, 0),
    "strided slice": (lambda a: lax.slice(a, (0, 0), (3, 6), (1, 2)), [(3, 6)], 1, 1),
    "pad": (lambda a: jnp.pad(a, ((0, 0), (1, 2))), [(3, 4)], 2, 0),
    "interior pad": (lambda a: lax.pad(a, 0.0, [(0, 0, 0), (0, 0, 1)]), [(3, 4)], 1, 1),
    "tile": (lambda a: jnp.tile(a, (2, 3)), [(3, 4)], 2, 0),
    "stack": (lambda a, b: jnp.stack([a, b], 1), [(3, 4), (3, 4)], 2, 0),
    "unstack": (lambda a: jnp.unstack(a, axis=1), [(3, 2, 4)], 2, 1),
    "rev": (lambda a: jnp.flip(a, 1), [(3, 4)], 1, 1),
    "roll": (lambda a: jnp.roll(a, 1, 1) + a, [(3, 4)], 1, 0),
    "matmul": (jnp.matmul, [(3, 4), (4, 5)], 3, 0),
    "batched matmul": (jnp.matmul, [(2, 3, 4), (2, 4, 5)], 4, 0),
    "convolution": (conv(), [(2, 4, 5, 3), (3, 3, 3, 4)], 3, 4),
    "grouped convolution": (conv(groups=2), [(2, 4, 5, 6), (3, 3, 3, 4)], 4, 4),
    "depthwise convolution": (conv(groups=3), [(2, 4, 5, 3), (3, 3, 1, 6)], 3, 4),
    "pointwise convolution": (conv(padding="VALID"), [(2, 4, 5, 3), (1, 1, 3, 4)], 5, 0),
    "strided convolution": (conv(strides=(2, 2), padding="VALID"), [(2, 4, 5, 3), (1, 1, 3, 4)], 3, 2),
    "reduce_sum": (lambda a: a.sum(1), [(3, 4)], 2, 0),
    "reduce_max": (lambda a: a.max(0), [(3, 4)], 2, 0),
    "reduce_prod": (lambda a: a.prod(1), [(3, 4)], 2, 0),
    "argmax": (lambda a: jnp.argmax(a, 1), [(3, 4)], 1, 1),
    "cumsum": (lambda a: jnp.cumsum(a, 1), [(3, 4)], 1, 1),
    "cummax": (lambda a: lax.cummax(a, 1), [(3, 4)], 1, 1),
    "cumprod": (lambda a: jnp.cumprod(a, 1), [(3, 4)], 1, 1),
    "max pool": (window(lax.max, -jnp.inf, (1, 2), (1, 2)), [(3, 4)], 1, 1),
    "sum pool of all": (window(lax.add, 0.0, (1, 4), (1, 1)), [(3, 4)], 2, 0),
    "sort": (lambda a: jnp.sort(a, 1), [(3, 4)], 2, 0),
    "argsort": (lambda a: jnp.argsort(a, 1), [(3, 4)], 1, 1),
    "top_k values": (lambda a: lax.top_k(a, 2)[0], [(3, 4)], 2, 0),
    "top_k indices": (lambda a: lax.top_k(a, 2)[1], [(3, 4)], 1, 1),
    "iota": (lambda a: a + lax.broadcasted_iota(jnp.float32, (3, 4), 1), [(3, 4)], 1, 1),
    "constant": (lambda a: a * np.float32([1, 2, 3, 4]), [(3, 4)], 1, 1),
    "uniform constant": (lambda a: a * np.full((3, 4), 2, np.float32), [(3, 4)], 2, 0),
    "gather rows": (lambda a: a[INDICES], [(5, 4)], 1, 1),
    "gather columns": (lambda a: a[:, INDICES], [(3, 5)], 1, 1),
    "take_along_axis": (lambda a: jnp.take_along_axis(a, jnp.argsort(a, 1), 1), [(3, 4)], 1, 1),
    "dynamic_slice": (lambda a: lax.dynamic_slice(a, (0, jnp.int32(1)), (3, 2)), [(3, 4)], 1, 1),
    "dynamic_update_slice": (lambda a, b: lax.dynamic_update_slice(a, b, (0, 1)), [(3, 4), (3, 2)], 1, 2),
    "scatter-add": (lambda a, b: jnp.asarray(a).at[INDICES].add(b), [(5, 4), (3, 4)], 1, 2),
    "scatter": (lambda a, b: jnp.asarray(a).at[INDICES].set(b), [(5, 4), (3, 4)], 1, 2),
    "scatter-max": (lambda a, b: jnp.asarray(a).at[INDICES].max(b), [(5, 4), (3, 4)], 1, 2),
    "scatter-mul": (lambda a, b: jnp.asarray(a).at[INDICES].multiply(b), [(5, 4), (3, 4)], 1, 2),
    "segment_max": (lambda a: jax.nn.relu(jax.ops.segment_max(a, INDICES, 4)), [(3, 4)], 1, 1),
    "fft": (lambda a: jnp.fft.fft(a).real, [(3, 4)], 1, 1),
    "rfft of rows": (lambda a: jnp.fft.irfft(jnp.fft.rfft(a, axis=0) * 1j, axis=0), [(6, 4)], 1, 1),
    "fft of both": (lambda a: jnp.fft.fft2(a).imag, [(2, 3, 4)], 1, 2),
    "psum": (jax.vmap(lambda a: a - lax.pmean(a, "batch"), axis_name="batch"), [(3, 4)], 2, 0),
    "pmax": (jax.vmap(lambda a: lax.pmax(a, "batch"), axis_name="batch"), [(3, 4)], 2, 0),
    "shard_map": (SHARED, [(3, 4), (4, 2)], 3, 0),
    "ragged_dot": (lambda a, b: lax.ragged_dot(a, b, SIZES), [(6, 4), (3, 4, 5)], 2, 2),
    "batch groups": (conv(batch_groups=2), [(2, 4, 5, 3), (3, 3, 3, 4)], 0, 8),
    "cond": (lambda a: lax.cond(a.sum() > 0, lambda a: 2 * a, lambda a: a, a), [(3, 4)], 2, 0),
    "scan": (lambda a, b: lax.scan(lambda c, x: (c + x, c * x), b, a), [(3, 4), (4,)], 1, 1),
    "map": (lambda a: lax.map(jnp.tanh, a), [(3, 4)], 2, 0),
    "while": (lambda a: lax.fori_loop(0, 3, lambda i, a: a * 0.5, a), [(3, 4)], 2, 0),
    "remat": (lambda a: jax.checkpoint(jnp.tanh)(a), [(3, 4)], 2, 0),
}  # fmt: skip
# Pins that are not needed: the rule knows less than is true.
INCOMPLETE = {"batch groups", "reshape incompatible", "scan", "take_along_axis"}


class Analysis:
    """The words of one operation whose outputs are not pinned."""

    def __init__(self, function, shapes):
        random = np.random.default_rng(0)
        self.function = function
        self.arrays = [np.float32(random.normal(size=shape)) for shape in shapes]
        self.program = flatten(jax.make_jaxpr(function)(*self.arrays))
        self.known = find_known_values(self.program)
        unpinned = self.program._replace(outputs=[])
        self.permutations = find_permutations(unpinned, len(shapes), self.known)

    def words(self, values):
        return [self.permutations.words[value] for value in values]

    def classes(self):
        found = {
            atom: None for words in self.words(self.program.inputs) for word in words for atom in atoms(word)
        }
        return [atom for atom in found if not atom.causes], [atom for atom in found if atom.causes]

    def commutes(self, permutations):
        """Whether f(g · operands) = g · f(operands), for one permutation per class."""
        moved = [
            relabelled(array, words, permutations)
            for array, words in zip(self.arrays, self.words(self.program.inputs), strict=True)
        ]
        before, after = (jax.tree.leaves(self.function(*arrays)) for arrays in (self.arrays, moved))
        expected = [
            relabelled(np.asarray(array), words, permutations)
            for array, words in zip(before, self.words(self.program.outputs), strict=True)
        ]
        return all(np.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(after, expected, strict=True))


def relabelled(array, words, permutations):
    return array[np.ix_(*(positions(word, permutations) for word in words))]


def positions(word, permutations):
    """Where each place of an axis is taken from."""
    result = np.zeros(1, int)
    for factor in word:
        if isinstance(factor, Segments):
            starts = np.cumsum([0, *map(word_size, factor.words)])
            parts = [positions(inner, permutations) for inner in factor.words]
            inner = np.concatenate([start + part for start, part in zip(starts, parts, strict=False)])
        else:
            inner = permutations.get(factor, np.arange(factor.size))
        result = (result[:, None] * factor.size + inner).reshape(-1)
    return result


@pytest.mark.parametrize("name", OPS)
def test_free_axes_commute_and_pinned_ones_do_not(name):
    function, shapes, num_free, num_pinned = OPS[name]
    analysis = Analysis(function, shapes)
    free, pinned = analysis.classes()
    assert (len(free), len(pinned)) == (num_free, num_pinned)
    random = np.random.default_rng(1)
    assert analysis.commutes({atom: random.permutation(atom.size) for atom in free})
    if name not in INCOMPLETE:
        for atom in pinned:
            assert not analysis.commutes({atom: np.roll(np.arange(atom.size), 1)})


def multiplier(word, values):
    """Factor of every place of an axis."""
    result = np.ones(1)
    for factor in word:
        if isinstance(factor, Segments):
            inner = np.concatenate([multiplier(inner, values) for inner in factor.words])
        else:
            inner = values.get(factor.number) if isinstance(factor, Unknown) else None
            inner = np.ones(factor.size) if inner is None else inner
        result = (result[:, None] * inner).reshape(-1)
    return result


def rescaled(array, words, values):
    for axis, word in enumerate(words):
        shape = [1] * array.ndim
        shape[axis] = -1
        array = array * multiplier(word, values).reshape(shape)
    return array


@pytest.mark.parametrize("signs", [False, True], ids=["scale", "sign"])
@pytest.mark.parametrize("name", [name for name in OPS if name not in ("convert_element_type",)])
def test_exponents_are_true(name, signs):
    analysis = Analysis(*OPS[name][:2])
    program, known = analysis.program, analysis.known
    outputs = [value for value in program.outputs if value not in known]
    unknowns = number_unknowns(analysis.permutations, program.inputs, known, [])
    system = find_exponents(unknowns, known, Roles({}, {}, {}, []), {}, signs=signs)
    random = np.random.default_rng(2)
    free: dict[int, np.ndarray] = {}

    def value(unknown):
        total = np.ones(unknowns.atoms[unknown].size)
        for inner, exponent in system.reduce({unknown: Fraction(1)}).items():
            if inner not in free:
                size = unknowns.atoms[unknown].size
                free[inner] = random.choice([-1.0, 1.0], size) if signs else random.uniform(0.5, 2, size)
            total = total * free[inner] ** (1 if signs else float(exponent))
        return total

    values = {unknown: value(unknown) for unknown in range(len(unknowns.atoms))}
    moved = [
        np.float32(rescaled(array, unknowns.words[leaf], values))
        for array, leaf in zip(analysis.arrays, program.inputs, strict=True)
    ]
    before, after = (jax.tree.leaves(analysis.function(*arrays)) for arrays in (analysis.arrays, moved))
    for was, now, output in zip(before, after, outputs, strict=True):
        np.testing.assert_allclose(
            now, rescaled(np.asarray(was), unknowns.words[output], values), rtol=2e-3, atol=2e-3
        )


def test_every_rule_is_tested():
    """Rules of one family share a function; each function is exercised by an operation above."""
    used = set()
    for function, shapes, *_ in OPS.values():
        analysis = Analysis(function, shapes)
        used |= {RULES[e.primitive] for e in analysis.program.equations if e.primitive in RULES}
    untested = {name for name, rule in RULES.items() if rule not in used}
    assert untested <= {"expand_dims", "bitcast_convert_type"}
