"""Trees come back bit for bit or not at all: round trips, and damage of every kind."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from symbnn import io
from tests.io.same import same


class State(NamedTuple):
    position: dict
    count: int


def everything():
    return {
        "hidden": {"kernel": jnp.arange(6.0).reshape(2, 3), "bias": jnp.asarray([jnp.nan, -0.0])},
        "half": jnp.asarray([1.5, 2.5], jnp.bfloat16),
        "list": [jnp.asarray(3, jnp.int32), np.float64(0.1), np.zeros((0, 4), np.float16)],
        "tuple": (np.asarray([True, False]), None, 7, 0.1, "text"),
        "key": jax.random.key(3),
        "keys": jax.random.split(jax.random.key(0, impl="rbg"), 2),
        "strided": np.arange(12, dtype=np.int64).reshape(3, 4).T,
    }


def test_trees_come_back_as_they_were(tmp_path):
    io.save_tree(tmp_path / "new" / "tree", everything(), {"seed": 1, "note": "ü"})
    tree, metadata = io.load_tree(tmp_path / "new" / "tree")
    tree["list"][1] = np.float64(tree["list"][1])
    same(tree, everything())
    assert metadata == {"seed": 1, "note": "ü"} == io.read_metadata(tmp_path / "new" / "tree")


def test_the_same_tree_makes_the_same_bytes(tmp_path):
    tree = {name: jnp.arange(3.0) for name in "dbca"}
    written = []
    for index in range(8):
        io.save_tree(tmp_path / str(index), tree, {"one": 1, "two": 2})
        written.append((tmp_path / str(index)).read_bytes())
    assert len(set(written)) == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "uint32", "bool", "complex64"])
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_bit_pattern_survives(tmp_path, dtype, data):
    shape = tuple(data.draw(st.lists(st.integers(0, 3), max_size=3)))
    size = int(np.prod(shape)) * jnp.dtype(dtype).itemsize
    raw = bytearray(data.draw(st.binary(min_size=size, max_size=size)))
    if dtype == "bool":
        raw = bytearray(byte & 1 for byte in raw)
    array = np.frombuffer(bytes(raw), jnp.dtype(dtype)).reshape(shape)
    io.save_tree(tmp_path / "tree", {"a": array})
    same(io.load_tree(tmp_path / "tree")[0], {"a": array})


def test_wide_floats_need_wide_floats_to_be_read(tmp_path):
    with jax.enable_x64(True):
        tree = {"a": jnp.asarray([0.1], jnp.float64)}
        io.save_tree(tmp_path / "tree", tree)
        same(io.load_tree(tmp_path / "tree")[0], tree)
    with pytest.raises(io.ArtefactError, match="enable_x64"):
        io.load_tree(tmp_path / "tree")


def test_own_containers_come_back_through_a_template_or_by_class(tmp_path):
    state = State({"w": jnp.ones(2)}, 4)
    io.save_tree(tmp_path / "state", state)
    same(io.load_tree(tmp_path / "state", like=state)[0], state)
    same(io.load_tree(tmp_path / "state", classes=[State])[0], state)
    assert io.load_tree(tmp_path / "state")[0].keys() == {"position", "count"}
    with pytest.raises(io.ArtefactError, match=r"'position/w' is \(\(2,\).*expected \(\(3,\)"):
        io.load_tree(tmp_path / "state", like=State({"w": jnp.ones(3)}, 4))
    with pytest.raises(
        io.ArtefactError, match=r"not in the file \['position/v'\], only in the file \['position/w'\]"
    ):
        io.load_tree(tmp_path / "state", like=State({"v": jnp.ones(2)}, 4))


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": object()}, "'a' is a object"),
        ({"a": {1: jnp.ones(1), "1": {"b": jnp.ones(1)}}}, "'a' has two keys of one name"),
        ({"a/b": jnp.ones(1), "a": {"b": jnp.ones(1)}}, "two leaves are called 'a/b'"),
        ({"a": np.ones(1, np.complex128)}, "'a' has dtype complex128"),
        ({"a": np.asarray(["x"])}, "'a' has dtype str"),
    ],
)
def test_what_cannot_be_kept_is_named(tmp_path, tree, message):
    with pytest.raises(ValueError, match=message):
        io.save_tree(tmp_path / "tree", tree)
    assert list(tmp_path.iterdir()) == []


def test_a_flipped_bit_in_any_byte_and_any_cut_are_found(tmp_path):
    path = tmp_path / "tree"
    io.save_tree(path, {"a": jnp.arange(3.0), "key": jax.random.key(0), "n": 3}, {"seed": 0})
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(
            whole[:position] + bytes([whole[position] ^ (1 << position % 8)]) + whole[position + 1 :]
        )
        with pytest.raises(io.ArtefactError, match=str(path)):
            io.load_tree(path)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(io.ArtefactError, match=str(path)):
            io.load_tree(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(io.ArtefactError, match="damaged"):
        io.load_tree(path)


def test_foreign_and_missing_files_are_named(tmp_path):
    save_file({"a": np.ones(2, np.float32)}, tmp_path / "foreign")
    with pytest.raises(io.ArtefactError, match="foreign: expected a tree written by symbnn"):
        io.load_tree(tmp_path / "foreign")
    with pytest.raises(io.ArtefactError, match="missing: expected a file; found nothing"):
        io.load_tree(tmp_path / "missing")
    with pytest.raises(io.ArtefactError, match="expected a file; found a folder; name the file in it"):
        io.load_tree(tmp_path)
