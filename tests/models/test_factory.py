"""A network by the name of the user's function: built for the data, every mistake in it told in a line."""

import jax
import jax.numpy as jnp
import pytest

from symbnn import models
from symbnn.models.factory import find, from_factory

KEY = jax.random.key(0)
SOURCE = """
import jax
import jax.numpy as jnp
from flax import linen as nn

from symbnn import models, symmetry


class Net(nn.Module):
    outputs: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.outputs)(nn.relu(nn.Dense(6)(x.reshape(x.shape[0], -1))))


def module(input_shape, num_outputs):
    return Net(num_outputs)


def model(input_shape, num_outputs, *, width=5):
    return models.mlp(input_shape, num_outputs, hidden=(width,))


def keyed(input_shape, num_outputs, key):
    assert jnp.shape(jax.random.normal(key)) == ()
    return Net(num_outputs)


def more_outputs(input_shape, num_outputs):
    return Net(num_outputs + 1)


def raising(input_shape, num_outputs):
    return jnp.zeros(3) @ jnp.zeros(4)  # line 35


def of_one(input_shape):
    return Net(3)


def number(input_shape, num_outputs):
    return 3


def raising_network(input_shape, num_outputs):
    built = models.mlp(input_shape, num_outputs, hidden=(4,))
    return built._replace(apply=lambda params, inputs: params["nowhere"])


SIZE = 3


def equinox(input_shape, num_outputs, key):
    import equinox as eqx

    return eqx.nn.MLP(input_shape[0], num_outputs, 6, 1, key=key)


def nnx(input_shape, num_outputs):
    from flax import nnx

    rngs = nnx.Rngs(0)
    first, second = nnx.Linear(input_shape[0], 6, rngs=rngs), nnx.Linear(6, num_outputs, rngs=rngs)
    return nnx.Sequential(first, nnx.relu, second)


def haiku(input_shape, num_outputs):
    import haiku as hk

    return hk.transform(lambda x: hk.nets.MLP([6, num_outputs])(x))


def two_functions(input_shape, num_outputs):
    def init(key):
        keys = jax.random.split(key)
        shapes = (*input_shape, 6), (6, num_outputs)
        return [jax.random.normal(key, shape) for key, shape in zip(keys, shapes)]

    return init, lambda params, x: jax.nn.relu(x @ params[0]) @ params[1]


def without_arguments():
    return models.mlp((7,), 3, hidden=(6,))
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The name of a module that nobody else has, in the current folder."""
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("import nonexistent_package\n")
    (tmp_path / "unfinished.py").write_text("def build(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


@pytest.mark.parametrize(
    "function",
    [*("module", "model", "keyed", "equinox", "nnx", "haiku"), "two_functions", "without_arguments"],
)
def test_what_the_function_returns_becomes_a_model_for_these_inputs(own, function):
    shape = (4, 2) if function in ("module", "keyed") else (7,)
    model = from_factory(f"{own}:{function}", shape, 3)
    assert isinstance(model, models.Model)
    params = model.init(KEY)
    assert model.apply(params, jnp.ones((5, *shape))).shape == (5, 3)
    assert [group.size for group in model.spec.groups] == [5 if function == "model" else 6]
    assert from_factory(f"{own}:{function}", shape, 3) is model
    drawn = [jax.tree.leaves(model.init(key)) for key in jax.random.split(KEY)]
    assert any(not jnp.array_equal(one, other) for one, other in zip(*drawn, strict=True))


def test_a_function_without_arguments_needs_no_shape(own):
    assert from_factory(f"{own}:without_arguments").input_shape == (7,)
    with pytest.raises(ValueError, match=r"takes \(input_shape, num_outputs\), but the shape .* not given"):
        from_factory(f"{own}:module")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("{own}", "is no module:function; write it as my_networks:build"),
        ("{own}.py:module", "is no module:function"),
        ("{own}:", "is no module:function"),
        ("{own}x:module", "no module '{own}x' in .* or on Python's path; did you mean '{own}'"),
        ("{own}:modul", "{own}.py has no function 'modul'; did you mean 'module'"),
        ("{own}:SIZE", "has a int, no function, 'SIZE'"),
        ("broken:build", r"broken cannot be imported: it raises ModuleNotFoundError.*\(broken.py, line 1\)"),
        ("unfinished:build", "unfinished cannot be imported: it raises SyntaxError.*unfinished.py, line 1"),
        ("{own}:raising", r"raising raises TypeError: .* \({own}.py, line 35\) for input_shape \(4,\) and 3"),
        ("{own}:of_one", r"takes \(input_shape\); it is called as function\(input_shape, num_outputs\)"),
        ("{own}:number", "{own}:number returned"),
        ("{own}:more_outputs", r"gives outputs of shape \(2, 4\) .* expected \(2, 3\)"),
        ("{own}:raising_network", r"network of .* raises KeyError: 'nowhere' \({own}.py, line 48\)"),
    ],
)
def test_a_mistake_is_one_line_that_says_where(own, reference, message):
    with pytest.raises(ValueError, match=message.replace("{own}", own)) as raised:
        from_factory(reference.replace("{own}", own), (4,), 3)
    assert "\n" not in str(raised.value)


def test_dotted_modules_are_found(own, tmp_path):
    (tmp_path / "package_of_one").mkdir()
    (tmp_path / "package_of_one" / "inner.py").write_text("def build(input_shape, num_outputs): pass\n")
    assert find("package_of_one.inner:build").__name__ == "build"
