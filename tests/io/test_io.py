"""Artefacts come back bit for bit or not at all: round trips, damage of every kind, failures of the disk."""

import json
import os
import resource
import sys
import types
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec
from safetensors.numpy import save_file

from symbnn import io, models, posteriors
from symbnn.inference.base import Sink


class State(NamedTuple):
    position: dict
    count: int


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert type(x) is type(y)
        if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            assert jax.random.key_impl(x) == jax.random.key_impl(y)
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        if not isinstance(x, int | float | str):
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
        else:
            assert x == y


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
    with pytest.raises(io.ArtefactError, match=r"lacks the leaves \['position/v'\]"):
        io.load_tree(tmp_path / "state", like=State({"v": jnp.ones(2)}, 4))


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": object()}, "'a' is a object"),
        ({"a": {1: jnp.ones(1)}}, "'a' has the key 1"),
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
    with pytest.raises(io.ArtefactError, match="damaged"):
        io.load_tree(tmp_path)


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "tree"
    io.save_tree(path, {"a": jnp.zeros(4)})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(io.ArtefactError, match="previous file"):
            io.save_tree(path, {"a": jnp.ones(4096)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    same(io.load_tree(path)[0], {"a": jnp.zeros(4)})
    assert os.listdir(tmp_path) == ["tree"]


def test_a_read_only_directory_is_named(tmp_path):
    # The superuser may write anywhere but into the kernel's own file system.
    directory = Path("/proc") if os.geteuid() == 0 else tmp_path / "locked"
    if directory.parent == tmp_path:
        directory.mkdir(mode=0o500)
    with pytest.raises(io.ArtefactError, match="expected to write the file"):
        io.save_tree(directory / "tree", {"a": jnp.zeros(1)})
    with pytest.raises(io.ArtefactError, match="expected to append a line"):
        io.append_line(directory / "lines", {})


def gaussian(seed):
    mean = {"w": jax.random.normal(jax.random.key(seed), (3, 2)), "b": jnp.ones(2) * seed}
    return posteriors.DiagonalGaussian(mean, jax.tree.map(lambda leaf: jnp.abs(leaf) + 0.1, mean))


def low_rank():
    mean = gaussian(0).mean
    return posteriors.LowRankGaussian(mean, jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), mean))


POSTERIORS = {
    "Empirical": lambda: posteriors.Empirical({"w": jnp.arange(8.0).reshape(4, 2)}, num_chains=2),
    "DiagonalGaussian": lambda: gaussian(1),
    "LowRankGaussian": low_rank,
    "GaussianMixture": lambda: posteriors.mixture([gaussian(1), gaussian(2)]),
    "GaussianMixture of low rank": lambda: posteriors.mixture([low_rank(), low_rank()]),
}


@pytest.mark.parametrize("name", POSTERIORS)
def test_posteriors_come_back(tmp_path, name):
    posterior = POSTERIORS[name]()
    io.save_posterior(tmp_path / "posterior", posterior, {"seed": 1})
    loaded, metadata = io.load_posterior(tmp_path / "posterior")
    same(loaded, posterior)
    assert metadata == {"seed": 1}
    same(loaded.sample(jax.random.key(0), 3), posterior.sample(jax.random.key(0), 3))


def test_posteriors_move_to_another_device_layout(tmp_path):
    mesh = jax.make_mesh((4,), ("samples",))
    split = NamedSharding(mesh, PartitionSpec("samples"))
    samples = {"w": jax.device_put(jnp.arange(8.0).reshape(4, 2), split)}
    io.save_posterior(tmp_path / "posterior", posteriors.Empirical(samples))
    one, _ = io.load_posterior(tmp_path / "posterior", sharding=jax.devices()[3])
    many, _ = io.load_posterior(tmp_path / "posterior", sharding=split)
    assert one.samples["w"].devices() == {jax.devices()[3]}
    assert len(many.samples["w"].devices()) == 4
    np.testing.assert_array_equal(one.samples["w"], many.samples["w"])


def test_a_tree_is_no_posterior(tmp_path):
    io.save_tree(tmp_path / "tree", {"a": jnp.ones(1)})
    with pytest.raises(io.ArtefactError, match="expected a posterior; found another tree"):
        io.load_posterior(tmp_path / "tree")
    io.save_posterior(tmp_path / "own", Flat())
    with pytest.raises(io.ArtefactError, match="found 'Flat'"):
        io.load_posterior(tmp_path / "own")
    assert io.load_posterior(tmp_path / "own", classes=[Flat])[0] == Flat()


class Flat(NamedTuple):
    width: float = 1.0

    def sample(self, key, num):
        return {"w": jax.random.uniform(key, (num,), maxval=self.width)}

    def log_prob(self, params):
        return -jnp.log(self.width)


CHUNK = {"draws/w": np.arange(6, dtype=np.float32).reshape(2, 3), "state/step": np.asarray(3, np.int32)}
FINGERPRINT = {"method": "hmc", "key": "0:0"}


def test_chunks_come_back_in_another_process(tmp_path):
    store = io.ChunkStore(tmp_path / "chunks")
    assert isinstance(store, Sink)
    store.open(FINGERPRINT)
    assert store.read(0) is None
    store.write(0, CHUNK)
    again = io.ChunkStore(tmp_path / "chunks")
    again.open(FINGERPRINT)
    same(again.read(0), CHUNK)
    assert again.read(1) is None
    assert list(again.indices()) == [0]


def test_chunks_of_another_run_are_refused(tmp_path):
    io.ChunkStore(tmp_path).open(FINGERPRINT)
    with pytest.raises(io.ArtefactError, match="its key is '0:0', but this run has '0:1'"):
        io.ChunkStore(tmp_path).open(FINGERPRINT | {"key": "0:1"})
    with pytest.raises(io.ArtefactError, match="its method is 'hmc', but this run has None"):
        io.ChunkStore(tmp_path).open({"key": "0:0"})


def test_damaged_chunks_are_named(tmp_path):
    store = io.ChunkStore(tmp_path)
    store.open(FINGERPRINT)
    store.write(0, CHUNK)
    store.write(1, CHUNK)
    zero, one = sorted(tmp_path.glob("chunk-*"))
    os.replace(zero, one)
    with pytest.raises(io.ArtefactError, match=r"chunk-000001.*expected chunk 1; found chunk 0"):
        store.read(1)
    one.write_bytes(one.read_bytes()[:-1])
    with pytest.raises(io.ArtefactError, match=r"chunk-000001.*damaged"):
        store.read(1)
    (tmp_path / "manifest.json").write_text('{"finger')
    with pytest.raises(io.ArtefactError, match=r"manifest\.json: expected a manifest"):
        store.open(FINGERPRINT)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(io.ArtefactError, match="expected the manifest of the chunks"):
        store.open(FINGERPRINT)


def test_what_a_killed_process_left_is_swept_away(tmp_path):
    io.ChunkStore(tmp_path).open(FINGERPRINT)
    (tmp_path / ".chunk-000000.safetensors.00000000.part").write_bytes(b"half")
    store = io.ChunkStore(tmp_path)
    store.open(FINGERPRINT)
    assert store.read(0) is None
    assert os.listdir(tmp_path) == ["manifest.json"]


def test_lines_outlive_a_torn_one(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    io.append_line(path, {"step": 0, "nll": jnp.float32(0.5), "counts": np.arange(2), "file": tmp_path})
    io.append_line(path, {"step": 1, "nll": float("nan")})
    with path.open("a") as file:
        file.write('{"step": 2, "nl')
    assert [record["step"] for record in io.read_lines(path)] == [0, 1]
    io.append_line(path, {"step": 3})
    records = io.read_lines(path)
    assert [record["step"] for record in records] == [0, 1, 3]
    assert records[0] == {"step": 0, "nll": 0.5, "counts": [0, 1], "file": str(tmp_path)}
    assert path.read_text().count("\n") == 3


def test_torn_lines_longer_than_a_block_are_cut(tmp_path):
    path = tmp_path / "metrics.jsonl"
    io.append_line(path, {"step": 0, "text": "x" * 9000})
    with path.open("a") as file:
        file.write("y" * 10_000)
    io.append_line(path, {"step": 1})
    assert [record["step"] for record in io.read_lines(path)] == [0, 1]


def test_damaged_and_missing_lines_are_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps({"a": 1}) + "\n{oops\n{}\n")
    with pytest.raises(io.ArtefactError, match="expected JSON in line 2"):
        io.read_lines(path)
    with pytest.raises(io.ArtefactError, match=r"nothing\.jsonl"):
        io.read_lines(tmp_path / "nothing.jsonl")


PORTABLE = {
    "mlp": lambda: models.mlp((6,), 3, hidden=(5, 4)),
    "lenet": lambda: models.lenet((16, 20, 1), 3, width=0.5),
    "optunet": lambda: models.optunet((18, 18, 1), 3),
    "resnet18": lambda: models.resnet18((8, 8, 3), 3, width=1 / 16),
    "vit": lambda: models.vit((8, 8, 3), 3, dimension=6, depth=1, num_heads=2, mlp_units=5),
}


def numbered(model):
    """Every weight of the network is another number, so no exchange goes unseen."""
    shapes, offset = jax.eval_shape(model.init, jax.random.key(0)), 0
    leaves = []
    for leaf in jax.tree.leaves(shapes):
        leaves.append(jnp.arange(offset, offset + leaf.size, dtype=jnp.float32).reshape(leaf.shape))
        offset += leaf.size
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)


@pytest.mark.parametrize("name", PORTABLE)
def test_weights_go_to_pytorch_and_back(tmp_path, name):
    model = PORTABLE[name]()
    params = numbered(model)
    io.save_safetensors(tmp_path / "weights", io.to_torch(model, params, name))
    same(io.from_torch(model, io.load_safetensors(tmp_path / "weights"), name), params)


def test_dense_layers_are_transposed_for_pytorch():
    model = models.mlp((6,), 3, hidden=(5,))
    params = numbered(model)
    exported = io.to_torch(model, params, {"hidden": "a", "out": "b.c"})
    assert exported.keys() == {"a.weight", "a.bias", "b.c.weight", "b.c.bias"}
    np.testing.assert_array_equal(exported["a.weight"], params["hidden"]["kernel"].T)


def test_foreign_state_dicts_are_named(tmp_path):
    model = models.mlp((6,), 3, hidden=(5,))
    state = io.to_torch(model, numbered(model), "mlp")
    with pytest.raises(io.ArtefactError, match=r"missing \['fc2.bias'\], unknown \['extra'\]"):
        io.from_torch(model, {key: state[key] for key in state if key != "fc2.bias"} | {"extra": 1}, "mlp")
    with pytest.raises(
        io.ArtefactError, match=r"'fc1.weight' has shape \(5, 7\); 'hidden/kernel' needs \(6, 5\)"
    ):
        io.from_torch(model, state | {"fc1.weight": np.zeros((5, 7), np.float32)}, "mlp")
    with pytest.raises(ValueError, match=r"layers \['out'\] of the model have no PyTorch name"):
        io.from_torch(model, state, {"hidden": "fc1"})
    with pytest.raises(ValueError, match="did you mean 'mlp'"):
        io.from_torch(model, state, "mpl")
    (tmp_path / "broken").write_bytes(b"not safetensors")
    with pytest.raises(io.ArtefactError, match="broken: expected a whole safetensors file"):
        io.load_safetensors(tmp_path / "broken")


def spread(num_devices):
    mesh = jax.make_mesh((num_devices,), ("chains",), devices=jax.devices()[:num_devices])
    return NamedSharding(mesh, PartitionSpec("chains"))


def sampler_state():
    return {"position": jax.device_put(jnp.arange(16.0), spread(8)), "key": jax.random.key(3)}


def test_sharded_states_move_to_another_number_of_devices(tmp_path):
    state = sampler_state()
    io.save_sharded(tmp_path / "step1", state)
    like = {
        "position": jax.ShapeDtypeStruct((16,), jnp.float32, sharding=spread(2)),
        "key": jax.random.key(0),
    }
    loaded = io.load_sharded(tmp_path / "step1", like)
    same(loaded, state)
    assert len(loaded["position"].devices()) == 2
    with pytest.raises(io.ArtefactError, match="expected a new directory"):
        io.save_sharded(tmp_path / "step1", state)


def test_draws_on_many_devices_are_read_back_on_another_layout(tmp_path):
    """As they were, and with their chains, on as many devices as the template says."""
    samples = {"out": {"kernel": jnp.arange(48.0).reshape(8, 6)}, "bias": jnp.arange(8.0)}
    posterior = posteriors.Empirical(jax.device_put(samples, spread(8)), num_chains=4)
    io.save_sharded(tmp_path / "draws", posterior)

    def on_two(leaf):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=spread(2))

    loaded = io.load_sharded(tmp_path / "draws", jax.tree.map(on_two, posterior))
    assert isinstance(loaded, posteriors.Empirical)
    assert loaded.num_chains == 4
    assert {len(leaf.devices()) for leaf in jax.tree.leaves(loaded)} == {2}
    same(loaded.samples, samples)


def test_wrong_and_missing_sharded_states_are_named(tmp_path):
    state = sampler_state()
    io.save_sharded(tmp_path / "step1", state)
    with pytest.raises(io.ArtefactError, match=r"leaf 'position' of shape \(15,\); found \(16,\)"):
        io.load_sharded(tmp_path / "step1", state | {"position": jnp.zeros(15)})
    with pytest.raises(io.ArtefactError, match="leaf 'momentum' of shape"):
        io.load_sharded(tmp_path / "step1", state | {"momentum": jnp.zeros(16)})
    with pytest.raises(io.ArtefactError, match="step2: expected a checkpoint; found nothing"):
        io.load_sharded(tmp_path / "step2", state)
    for path in (tmp_path / "step1").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(io.ArtefactError, match="step1: expected a whole checkpoint"):
        io.load_sharded(tmp_path / "step1", state)


def test_arviz_sees_chains_draws_and_statistics():
    samples = {"w": jnp.arange(24.0).reshape(6, 4), "b": jnp.arange(6.0)}
    lp = np.arange(6.0).reshape(2, 3)
    exported = io.to_arviz(samples, 2, {"log_density": lp, "step_size": np.ones(2), "seconds": 1.0})
    assert exported.posterior["w"].shape == (2, 3, 4)
    np.testing.assert_array_equal(exported.posterior["b"].values, lp)
    np.testing.assert_array_equal(exported.sample_stats["lp"].values, lp)
    assert list(exported.sample_stats.data_vars) == ["lp"]
    with pytest.raises(ValueError, match="6 samples do not divide into 4 chains"):
        io.to_arviz(samples, 4)


def test_without_arviz_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match="pip install arviz"):
        io.to_arviz({"w": jnp.ones(2)})


def test_arviz_from_version_one_on_takes_groups(monkeypatch):
    newer = types.SimpleNamespace(__version__="1.0.0", from_dict=lambda groups: groups)
    monkeypatch.setitem(sys.modules, "arviz", newer)
    groups = io.to_arviz({"w": jnp.arange(4.0)}, 2, {"log_density": np.zeros((2, 2))})
    assert groups["posterior"]["w"].shape == (2, 2)
    assert list(groups["sample_stats"]) == ["lp"]
