"""How groups and indices are named and ordered."""

from tests.symmetry.cases import CASES, discovered


def test_names_follow_the_producing_layer():
    spec = discovered(CASES["transformer"]())
    assert [group.name for group in spec.groups] == [
        "patch", "heads.blocks", "heads.units", "heads.units[1]", "up"
    ]  # fmt: skip


def test_scanned_layers_become_an_index():
    spec = discovered(CASES["scanned_layers"]())
    assert [index.size for index in spec.indices] == [4]
    assert spec.groups[-1].over == (spec.indices[0].name,)
