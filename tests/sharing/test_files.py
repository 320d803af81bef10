"""Size and file of shared weights."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import io, models, sharing
from symbnn.sharing import Layout, SharedWeights, layout_of
from symbnn.sharing.files import coded, decoded
from symbnn.sharing.layout import remainder
from tests.sharing.shared import ELLIPSES, MODEL, OUTLIERS, make


def test_size_by_the_papers_count_and_in_bytes():
    size = sharing.size_of(make())
    assert size.paper_count == 2 + 2 + 2 * 3
    assert size.paper_count_blended == 2 + 2 * 2 + 2 * 3
    fixed = 4 * (5 + 3)
    ellipses = 2 * (2 * 1 + 4)
    assert size.bytes == 35 + 4 * (2 * 2 + 5 * 3) + ellipses + fixed
    assert size.pair_bytes == 8 * 35 + fixed
    labels = np.arange(35) % 3
    labels[OUTLIERS] = 3
    labels[ELLIPSES] = 4
    shares = np.bincount(labels) / 35
    bits = -35 * np.sum(shares * np.log2(shares))
    assert size.entropy_coded_bytes == size.bytes - 35 + int(np.ceil(bits / 8))


def test_the_file_gives_the_same_networks_back(tmp_path):
    path = tmp_path / "shared.safetensors"
    none = {
        "outlier_indices": jnp.zeros(0, jnp.uint32),
        "outlier_means": jnp.zeros(0),
        "outlier_stds": jnp.zeros(0),
        "ellipse_indices": jnp.zeros(0, jnp.uint32),
        "ellipse_components": jnp.zeros((0, 2), jnp.uint8),
        "ellipse_weights": jnp.zeros((0, 2)),
    }
    for changes in ({}, {"sampling": "first_coord"}, {"noise": "sign", "blending": "mixture"}, none):
        shared = make(**changes)
        sharing.save(path, shared, {"note": "kept"})
        again, metadata = sharing.load(path, model=MODEL)
        assert metadata == {"note": "kept"}
        assert again.labels.dtype == np.uint8
        for a, b in zip(
            *(jax.tree.leaves(s.sample(jax.random.key(5), 2)) for s in (shared, again)), strict=True
        ):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("num_components", "label_bytes"), [(254, 1), (255, 1), (256, 1), (257, 2)])
def test_labels_take_the_smallest_type_and_outliers_are_marked(tmp_path, num_components, label_bytes):
    shared = make(
        means=jnp.ones((num_components, 2)),
        factors=jnp.ones((num_components, 3)),
        labels=jnp.full((35,), num_components - 1, jnp.uint16),
    )
    path = tmp_path / "shared.safetensors"
    sharing.save(path, shared)
    again, _ = sharing.load(path)
    assert again.labels.dtype.itemsize == again.ellipse_components.dtype.itemsize == label_bytes
    np.testing.assert_array_equal(again.outlier_indices, OUTLIERS)
    np.testing.assert_array_equal(again.ellipse_indices, ELLIPSES)
    plain = [i for i in range(35) if i not in OUTLIERS + ELLIPSES]
    np.testing.assert_array_equal(np.asarray(again.labels)[plain], num_components - 1)


@pytest.mark.parametrize(("num_components", "kind"), [(40, np.uint8), (300, np.uint16), (70_000, np.uint32)])
def test_coded_labels_come_back_and_take_hardly_more_than_their_entropy(num_components, kind):
    random = np.random.default_rng(0)
    labels = np.clip(random.normal(num_components / 2, num_components / 10, 50_000), 0, num_components - 1)
    labels = labels.astype(kind)
    stored = coded(labels)
    np.testing.assert_array_equal(decoded(stored, [len(labels)], kind), labels)
    if kind == np.uint8:
        shares = np.bincount(labels) / len(labels)
        bits = -np.sum(shares[shares > 0] * np.log2(shares[shares > 0]))
        # A Huffman code of these shares stays within 0.1 bits of their entropy.
        assert bits <= 8 * len(stored) / len(labels) <= bits + 0.1


def test_coded_floats_come_back_to_the_last_bit_and_take_less_where_their_size_is_alike():
    random = np.random.default_rng(0)
    stds = (0.02 + 1e-3 * random.normal(size=5000)).astype(np.float32)
    odd = np.array([np.nan, np.inf, -0.0, 1e-45, 3.4e38], np.float32)
    for values in (stds, odd, np.zeros(0, np.float32)):
        again = decoded(coded(values), [len(values)], np.float32)
        np.testing.assert_array_equal(again.view(np.uint32), values.view(np.uint32))
    assert len(coded(stds)) < 0.8 * stds.nbytes


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.float32])
def test_parts_of_different_kind_have_codes_of_their_own_and_come_back_joined(kind):
    random = np.random.default_rng(0)
    parts = [
        random.integers(low, low + 4, size=size).astype(kind)
        for low, size in ((0, 9000), (90, 0), (50, 9000))
    ]
    stored = coded(*parts)
    np.testing.assert_array_equal(decoded(stored, [len(part) for part in parts], kind), np.concatenate(parts))
    if kind == np.uint8:
        assert len(stored) < 0.75 * len(coded(np.concatenate(parts)))


def test_labels_that_are_too_many_too_few_or_no_code_are_refused():
    stored = coded(np.zeros(1000, np.uint8))
    for count in (999, 1001):
        with pytest.raises(ValueError, match=f"{count} of them need {count}"):
            decoded(stored, [count], np.uint8)
    with pytest.raises(ValueError, match="cannot be read"):
        decoded(np.arange(50, dtype=np.uint8), [50], np.uint8)


def test_a_file_of_many_weights_is_small(tmp_path):
    model = models.mlp((200,), 3, hidden=(100,))
    params = model.init(jax.random.key(0))
    layout = layout_of(params)
    shared = make(
        labels=jnp.zeros((layout.num_weights,), jnp.uint8), layout=layout, fixed=remainder(layout, params)
    )
    sharing.save(tmp_path / "shared.safetensors", shared)
    # A header of names and checksums, the same for any number of weights.
    assert os.path.getsize(tmp_path / "shared.safetensors") < sharing.size_of(shared).bytes + 4000


def test_it_is_kept_like_any_posterior_too(tmp_path):
    io.save_posterior(tmp_path / "posterior", make())
    again, _ = io.load_posterior(tmp_path / "posterior", classes=(SharedWeights, Layout))
    assert again.layout == make().layout
    for a, b in zip(*(jax.tree.leaves(s.sample(jax.random.key(5), 2)) for s in (make(), again)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_weights_out_of_order_are_not_written(tmp_path):
    with pytest.raises(ValueError, match="ellipse_indices do not rise"):
        sharing.save(tmp_path / "shared", make(ellipse_indices=jnp.array(ELLIPSES[::-1], jnp.uint32)))


def test_damaged_foreign_and_wrong_files_are_named(tmp_path):
    path = tmp_path / "shared.safetensors"
    sharing.save(path, make())
    with pytest.raises(io.ArtefactError, match=r"leaf 'hidden/bias' of shape \(7,\).*another model"):
        sharing.load(path, model=models.mlp((4,), 3, hidden=(7,)))
    content = path.read_bytes()
    path.write_bytes(content[:-40])
    with pytest.raises(io.ArtefactError, match="damaged"):
        sharing.load(path)
    flipped = bytearray(content)
    flipped[-1] ^= 1
    path.write_bytes(bytes(flipped))
    with pytest.raises(io.ArtefactError, match="sha256"):
        sharing.load(path)
    io.save_tree(path, {"points": np.zeros(3)}, {"stage": "stochastic"})
    with pytest.raises(io.ArtefactError, match="expected a file of shared weights; found another tree"):
        sharing.load(path)
    with pytest.raises(io.ArtefactError, match="expected a file; found nothing"):
        sharing.load(tmp_path / "absent")
