"""Where chains run changes nothing: gradients over shards of the data, draws over devices."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import density, inference, models
from symbnn.inference import placement as chains
from symbnn.inference.chains.settings import gradient_products
from tests.inference.cases import small_network

KEY = jax.random.key(3)


def small_target():
    model, batch = small_network()
    return density.target(model, batch, chunk_size=8)


def run(placement, *, num_chains=5, **settings):
    method = inference.hmc(
        num_chains=num_chains,
        num_samples=3,
        num_burnin=2,
        step_size=0.05,
        num_steps=3,
        placement=placement,
        **settings,
    )
    return method(KEY, small_target())


@pytest.mark.parametrize("num_shards", [1, 2, 4, 8])
def test_gradient_over_shards_is_the_gradient(num_shards):
    """37 points do not divide by 2, 4 or 8; reverse mode through psum would be off by their number."""
    target = small_target()
    plan = chains.layout(1, inference.Placement(data_shards=num_shards))
    params = target.init(jax.random.key(0))

    def both(chain, shard):
        total = chains.sum_over_shards(target.log_likelihood, plan, shard)
        return jax.value_and_grad(lambda w: 2.0 * total(w) + target.log_prior(w))(chain)

    mapped = chains.map_chains(both, plan)
    stacked = chains.place_chains(plan, jax.tree.map(lambda leaf: np.asarray(leaf)[None], params))
    found = chains.fetch_chains(plan, mapped(stacked, chains.place_data(plan, target.data)))
    expected = jax.jit(jax.value_and_grad(lambda w: 2.0 * target.log_likelihood(w) + target.log_prior(w)))(
        params
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[0], b, rtol=1e-5, atol=1e-5), found, expected)


@pytest.fixture(scope="module")
def on_one_device():
    return run(inference.Placement(devices=jax.devices()[:1])).posterior.by_chain()


@pytest.mark.parametrize("num_devices", [2, 4])
def test_draws_are_the_same_bits_on_any_number_of_devices(on_one_device, num_devices):
    """Five chains: neither two nor four devices share them equally, so padding takes part."""
    draws = run(inference.Placement(devices=jax.devices()[:num_devices])).posterior.by_chain()
    jax.tree.map(np.testing.assert_array_equal, draws, on_one_device)


@pytest.mark.parametrize("num_devices", [1, 3])
def test_chains_that_are_not_vmapped_draw_the_same_to_rounding_and_the_same_bits(on_one_device, num_devices):
    def on(number):
        alone = inference.Placement(devices=jax.devices()[:number], lanes=1, vmaps_one=False)
        return run(alone).posterior.by_chain()

    draws = on(num_devices)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), draws, on_one_device)
    jax.tree.map(np.testing.assert_array_equal, draws, on(2))


@pytest.mark.slow
def test_a_chain_does_not_know_how_many_others_there_are(on_one_device):
    draws = run(inference.Placement(devices=jax.devices()[:2], lanes=1), num_chains=2).posterior.by_chain()
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[:2]), draws, on_one_device)


def test_sharded_data_draws_the_same_chain_to_rounding(on_one_device):
    placement = inference.Placement(devices=jax.devices()[:8], data_shards=4, lanes=1)
    draws = run(placement).posterior.by_chain()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), draws, on_one_device)


@pytest.mark.parametrize(
    ("num_chains", "placement", "shape", "num_rows", "lanes"),
    [
        (4, inference.Placement(), (4, 1), 4, 1),
        (5, inference.Placement(devices=jax.devices()[:4]), (3, 1), 6, 1),
        (8, inference.Placement(devices=jax.devices()[:2]), (2, 1), 8, 2),
        (3, inference.Placement(lanes=2), (2, 1), 4, 2),
        (6, inference.Placement(data_shards=4), (2, 4), 6, 1),
    ],
)
def test_layout_uses_the_devices_it_can(num_chains, placement, shape, num_rows, lanes):
    plan = chains.layout(num_chains, placement)
    assert (plan.mesh.devices.shape, plan.num_rows, plan.lanes) == (shape, num_rows, lanes)
    assert chains.local_chains(plan).tolist() == list(range(num_chains))
    rows = {"a": np.arange(num_chains * 2.0).reshape(num_chains, 2)}
    placed = chains.place_chains(plan, rows)
    assert placed["a"].shape == (num_rows, 2)
    np.testing.assert_array_equal(chains.fetch_chains(plan, placed)["a"], rows["a"])


@pytest.mark.parametrize(
    ("num_devices", "shards", "is_computed"), [(3, 1, [1, 1, 1, 1, 1, 0]), (6, 2, [1] * 6)]
)
def test_padding_is_not_computed_where_no_device_waits_for_it(num_devices, shards, is_computed):
    """Five chains on three rows of devices: the last has one chain and one copy."""
    plan = chains.layout(
        5, inference.Placement(devices=jax.devices()[:num_devices], data_shards=shards, lanes=1)
    )
    placed = chains.place_chains(plan, np.arange(5.0))
    found = chains.map_chains(lambda chain, shard: chain + 1, plan)(placed, chains.Shard(None, None))
    np.testing.assert_array_equal(np.asarray(found) > 0, np.array(is_computed, bool))
    np.testing.assert_array_equal(chains.fetch_chains(plan, found), np.arange(1.0, 6.0))


def test_a_chain_that_keeps_a_core_busy_is_not_vmapped_with_others():
    """Products of 64-32-10 on 1,297 points: 2 (64·32 + 32·10) operations a point forwards, thrice in all."""
    two = inference.Placement(devices=jax.devices()[:2])
    target = density.target(*small_network(1_297, 64, 32, 10))
    work = gradient_products(target)
    assert work.operations == 3 * 2 * 1_297 * (64 * 32 + 32 * 10)
    assert chains.layout(8, two, products=work).lanes == 1
    assert chains.layout(8, two._replace(lanes=4), products=work).lanes == 4
    assert chains.layout(8, two, products=gradient_products(small_target())).lanes == 2


@pytest.mark.parametrize(("rows", "is_tall"), [("first", True), ("last", False), ("auto", False)])
@pytest.mark.parametrize("chunk_size", [None, 300])
def test_a_chain_alone_is_vmapped_where_examples_are_rows_of_tall_matrices(rows, is_tall, chunk_size):
    model, batch = models.mlp((64,), 10, hidden=(32,), rows=rows), small_network(900, 64, 32, 10)[1]
    work = gradient_products(density.target(model, batch, chunk_size=chunk_size))
    assert work.are_tall == is_tall
    one = inference.Placement(lanes=1)
    assert chains.layout(2, one, products=work).vmaps_one == is_tall
    for given in (True, False):
        assert chains.layout(2, one._replace(vmaps_one=given), products=work).vmaps_one == given


def test_a_run_tells_its_layout_the_work_of_a_gradient(monkeypatch):
    seen, layout = [], chains.layout
    monkeypatch.setattr(chains, "layout", lambda *given, **work: seen.append(work) or layout(*given, **work))
    run(inference.Placement(devices=jax.devices()[:2]), num_chains=8)
    assert seen == [{"products": gradient_products(small_target())}]


def test_every_process_has_a_chain_before_any_has_two(monkeypatch):
    """Five chains on four devices, as if each were a process of its own."""
    monkeypatch.setattr(chains.jax, "process_count", lambda: 4)
    plan = chains.layout(5, inference.Placement(devices=jax.devices()[:4]))
    assert (plan.mesh.devices.shape, plan.num_rows) == ((4, 1), 8)
    # Two rows a device; the last chain lies in the second row of the first device.
    assert chains.positions(plan).tolist() == [0, 2, 4, 6, 1]


@dataclass
class Device:
    process_index: int


def test_processes_without_a_chain_are_refused():
    grid = np.empty((3, 1), object)
    grid[:, 0] = [Device(0), Device(1), Device(2)]
    chains._require_busy(grid, 3, "3 chains in blocks of 1")
    with pytest.raises(ValueError, match="2 chains in blocks of 1 leave 1 of 3 processes without a chain"):
        chains._require_busy(grid, 2, "2 chains in blocks of 1")


def test_padded_data_has_no_weight():
    plan = chains.layout(1, inference.Placement(data_shards=4))
    shard = chains.place_data(plan, density.Batch(np.ones((6, 2), np.float32), np.arange(6)))
    assert shard.batch.inputs.shape == (8, 2)
    np.testing.assert_array_equal(shard.weights, [1, 1, 1, 1, 1, 1, 0, 0])
    assert chains.place_data(plan, density.Batch(np.ones((8, 2)), np.arange(8))).weights is None


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        (inference.Placement(data_shards=9), "data_shards must be between 1 and .*8.*; got 9"),
        (inference.Placement(data_shards=0), "data_shards must be between 1 and .*; got 0"),
        (inference.Placement(lanes=0), "lanes must be at least 1"),
    ],
)
def test_a_mesh_that_cannot_be_is_refused(placement, message):
    with pytest.raises(ValueError, match=message):
        chains.layout(4, placement)


def test_mapped_functions_compile_once():
    plan = chains.layout(3, inference.Placement(devices=jax.devices()[:1]))
    traces = []

    def double(chain, shard, factor):
        traces.append(1)
        return chain * factor

    mapped = chains.map_chains(double, plan)
    shard = chains.Shard((), None)
    counts = []
    for factor in (2.0, 3.0):
        result = mapped(jnp.arange(3.0), shard, np.float32(factor))
        np.testing.assert_array_equal(result, factor * np.arange(3.0))
        counts.append(len(traces))
    assert counts[0] == counts[1]
