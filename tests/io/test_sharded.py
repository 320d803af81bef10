"""States that are spread over devices move to another layout."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from symbnn import io, posteriors
from tests.io.same import same


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
