"""The diagram of a spec: every axis of every leaf once, in the order of layers, coloured by its group."""

import collections

import jax
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from symbnn import models, plot, symmetry
from symbnn.plot.group_rows import rows_of
from tests.symmetry.cases import CASES, discovered


def boxes(figure):
    """Rectangles of cells with the group that they name."""
    patches = [patch for patch in figure.axes[0].patches if patch.get_gid()]
    assert all(isinstance(patch, Rectangle) for patch in patches)
    return [(*patch.get_gid().rsplit(":", 1), patch) for patch in patches]


def words(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def factors(spec):
    return [(leaf.name, factor.group or "") for leaf in spec.leaves for _, factor in leaf.factors()]


KINDS = (
    "lenet",
    "grouped_conv",
    "dense_net",
    "u_net",
    "tied_autoencoder_tanh",
    "experts",
    "scanned_layers",
    "indexed_layers",
    "tuples_and_lists",
    "transformer",
    "gru",
    "packed_heads",
)
MLP = models.mlp((6,), 3, hidden=(5, 4)).spec


def test_every_factor_is_a_cell_and_a_group_has_one_colour():
    found = boxes(plot.groups(MLP))
    assert collections.Counter((leaf, group) for leaf, group, _ in found) == collections.Counter(factors(MLP))
    faces = {(group, to_hex(patch.get_facecolor())) for _, group, patch in found}
    assert len(faces) == 3
    assert ("", "#ffffff") in faces


def test_rows_follow_the_layers():
    names = [row.name for row in rows_of(MLP)]
    assert names == [
        f"{layer}/{leaf}" for layer in ("hidden0", "hidden1", "out") for leaf in ("kernel", "bias")
    ]
    tops = {leaf: patch.get_y() for leaf, _, patch in boxes(plot.groups(MLP))}
    assert sorted(tops, key=tops.get) == names


def test_the_tenth_layer_comes_after_the_second():
    deep = models.mlp((6,), 3, hidden=(4,) * 11).spec
    layers = list(dict.fromkeys(row.layer for row in rows_of(deep)))
    assert layers == [*(f"hidden{number}" for number in range(11)), "out"]


def test_a_residual_network_starts_at_its_stem_and_ends_at_its_outputs():
    layers = list(dict.fromkeys(row.layer for row in rows_of(models.resnet18((32, 32, 3), 10).spec)))
    assert layers[:3] == ["conv1", "norm1", "layer1_0/conv1"]
    assert layers[-1] == "out"
    blocks = [layer.partition("/")[0] for layer in layers if "/" in layer]
    assert list(dict.fromkeys(blocks)) == [
        f"layer{stage}_{block}" for stage in (1, 2, 3, 4) for block in (0, 1)
    ]
    assert len(dict.fromkeys(blocks)) == sum(a != b for a, b in zip(["", *blocks], blocks, strict=False))


def test_sizes_and_generators_are_written():
    found = words(plot.groups(MLP))
    assert "hidden0: 5 units; 1 scale, no signs" in found
    assert "5 × 4" in found
    assert {"→ hidden0", "hidden0 →", "$s$", "$1/s$"} <= set(found)
    assert any(text.startswith("s: multiplied by") for text in found)
    odd = words(plot.groups(models.mlp((6,), 3, hidden=(5,), activation="tanh").spec))
    assert "±" in odd
    assert not any(text.startswith("s:") for text in odd)


def test_a_spec_written_by_hand_says_what_it_writes_by_the_last_axis():
    params = {"a": jax.ShapeDtypeStruct((3, 4), float), "b": jax.ShapeDtypeStruct((4, 2), float)}
    spec = symmetry.from_axes({"a": (None, "h"), "b": ("h", None)}, params)
    assert {"→ h", "h →"} <= set(words(plot.groups(spec)))
    assert [row.name for row in rows_of(spec)] == ["a", "b"]


def test_a_network_without_symmetries_is_drawn_too():
    spec = symmetry.from_axes(
        {}, {"kernel": jax.ShapeDtypeStruct((3, 2), float), "scale": jax.ShapeDtypeStruct((), float)}
    )
    figure = plot.groups(spec)
    assert "no symmetries found" in words(figure)
    assert "a number" in words(figure)
    assert {group for _, group, _ in boxes(figure)} == {""}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_network_has_its_factors_in_the_diagram(name):
    """Products, segments, slices, groups that vary over others: as many cells as there are factors."""
    spec = discovered(CASES[name]())
    figure = plot.groups(spec)
    drawn = collections.Counter((leaf.partition("[")[0], group) for leaf, group, _ in boxes(figure))
    assert drawn == collections.Counter((leaf.partition("[")[0], group) for leaf, group in factors(spec))
    assert sum(group.name in " ".join(words(figure)) for group in spec.groups) == len(spec.groups)


@pytest.mark.parametrize(
    "spec", [MLP, models.vit((8, 8, 3), 10, dimension=8, depth=1).spec], ids=["mlp", "vit"]
)
def test_words_stay_in_their_cells(spec):
    figure = plot.groups(spec)
    figure.draw_without_rendering()
    cells = [patch.get_window_extent() for _, _, patch in boxes(figure)]
    texts = [text for text in figure.axes[0].texts if text.get_fontsize() == 8 and text.get_text()]
    for text in texts:
        extent = text.get_window_extent()
        middle = 0.5 * (extent.y0 + extent.y1)
        for cell in cells:
            if cell.y0 < middle < cell.y1 and cell.x0 < extent.x1 and extent.x0 < cell.x1:
                assert text.get_text() in "×·+" or (cell.x0 < extent.x0 and extent.x1 < cell.x1), (
                    text.get_text()
                )


@pytest.mark.parametrize("spec", [{"a": (None, "h")}, None, symmetry.SymmetrySpec((), ())])
def test_what_is_no_spec_is_refused(spec):
    with pytest.raises(ValueError, match=r"spec: expected a (SymmetrySpec|network with weights)"):
        plot.groups(spec)
