"""Posteriors over networks of every kind come back, bit for bit: as plain trees, or as the user's class."""

import json
import os
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx
from safetensors import safe_open

from symbnn import io, posteriors, tree
from symbnn.io import trees
from tests.io.network_files import NETWORKS, fingerprints, make, paths, samples, summary
from tests.io.same import same
from tests.models.wrapping.networks import KEY, EquinoxNormed, NnxMLP, NnxNormed

ROOT = Path(__file__).parents[2]
EVERY_KIND = pytest.mark.parametrize("kind", NETWORKS)
LIKE = {
    "nnx": lambda: NnxMLP(nnx.Rngs(9)),
    "equinox": lambda: eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(9)),
}


def test_another_process_reads_the_same_bits_in_the_same_classes(tmp_path):
    """And would go on with the runs of wrapped networks: it knows them by the same fingerprint."""
    expected = {"fingerprints": fingerprints()}
    for kind in NETWORKS:
        made = make(kind)
        for path, posterior in zip(paths(tmp_path, kind), made, strict=True):
            io.save_posterior(path, posterior)
        expected[kind] = [summary(posterior) for posterior in made]
    command = [sys.executable, "-m", "tests.io.network_files", str(tmp_path)]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout.splitlines()[-1]) == expected


@EVERY_KIND
def test_the_class_is_that_of_like(kind, tmp_path):
    """A network, its shapes, or as many samples; a module in place of its arrays."""
    networks = samples(kind)
    io.save_posterior(tmp_path / "kept", posteriors.Empirical(networks, num_chains=3), {"kind": kind})
    one = NETWORKS[kind](KEY)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), one)
    for like in (one, shapes, networks, *(make_like() for name, make_like in LIKE.items() if name == kind)):
        posterior, metadata = io.load_posterior(tmp_path / "kept", like)
        same(posterior.samples, networks)
        assert (posterior.num_chains, metadata) == (3, {"kind": kind})
        same(posterior.sample(KEY, 2), posteriors.Empirical(networks).sample(KEY, 2))


@EVERY_KIND
def test_without_like_containers_are_plain(kind, tmp_path):
    networks = samples(kind)
    io.save_posterior(tmp_path / "kept", posteriors.Empirical(networks))
    plain = io.load_posterior(tmp_path / "kept")[0].samples
    for name, leaf in tree.named_leaves(networks).items():
        np.testing.assert_array_equal(tree.named_leaves(plain)[name], leaf)
    nodes = [plain]
    while nodes:
        node = nodes.pop()
        assert type(node) in (dict, list, tuple, type(None)) or isinstance(node, jax.Array)
        if isinstance(node, dict | list | tuple):
            nodes += node.values() if isinstance(node, dict) else node


@pytest.mark.parametrize("kind", ["nnx", "equinox", "list of tuples"])
def test_every_law_takes_the_class(kind, tmp_path):
    _, law = make(kind)
    free = posteriors.DiagonalGaussian(tree.named_leaves(law.mean), tree.named_leaves(law.std))
    factors = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), law.mean)
    laws = [
        law,
        posteriors.LowRankGaussian(law.mean, factors, law.std),
        posteriors.mixture([law, law]),
        # All leaves are free: their dict has the names of a network, and stays a dict.
        posteriors.FixedLeaves(law.mean, free),
    ]
    for each in laws:
        io.save_posterior(tmp_path / "kept", each)
        same(io.load_posterior(tmp_path / "kept", NETWORKS[kind](KEY))[0], each)


@pytest.mark.parametrize("kind", [*NETWORKS, "nnx module", "equinox module and state"])
def test_trees_too(kind, tmp_path):
    make_state = eqx.nn.make_with_state(EquinoxNormed)
    makers = {
        **NETWORKS,
        "nnx module": lambda key: NnxNormed(nnx.Rngs(key)),
        "equinox module and state": make_state,
    }
    kept, like = makers[kind](KEY), makers[kind](jax.random.key(9))
    io.save_tree(tmp_path / "tree", eqx.filter(kept, eqx.is_array) if "module and" in kind else kept)
    found = io.load_tree(tmp_path / "tree", like=like)[0]
    assert type(found) is type(kept)
    assert jax.tree.structure(found) == jax.tree.structure(kept)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(kept), strict=True):
        same(one, other)


def test_the_functions_of_a_module_come_from_like(tmp_path):
    kept, like = (eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(seed)) for seed in (0, 1))
    io.save_tree(tmp_path / "tree", eqx.filter(kept, eqx.is_array))
    found = io.load_tree(tmp_path / "tree", like=like)[0]
    assert found.activation is like.activation
    inputs = jnp.ones((2, 3))
    np.testing.assert_array_equal(jax.vmap(found)(inputs), jax.vmap(kept)(inputs))
    with pytest.raises(
        ValueError, match=r"'activation' is .* cannot be kept.*eqx.filter\(module, eqx.is_array"
    ):
        io.save_tree(tmp_path / "whole", kept)


@pytest.mark.parametrize(
    ("like", "message"),
    [
        (
            lambda: eqx.nn.MLP(3, 2, 5, 1, key=KEY),
            r"'layers/0/bias' has shape \(6, 4\); that of `like` has \(5,\)",
        ),
        (
            lambda: eqx.nn.MLP(3, 2, 4, 9, key=KEY),
            r"not in the file \['layers/2/bias', .* and 13 more, only in the file \[\]",
        ),
        (
            lambda: NnxMLP(nnx.Rngs(0)),
            r"not in the file \['layers/0/kernel', .*only in the file \['layers/0/w",
        ),
        (lambda: nn.Dense(2), "like must hold weights.*got a linen module"),
        (lambda: make("equinox")[0], "like must be a network, or posterior.samples; got a Empirical"),
        (
            lambda: tree.map_named(
                lambda name, leaf: leaf[0] if "bias" in name else leaf, samples("equinox")
            ),
            "axes but those of the samples",
        ),
    ],
)
def test_another_architecture_is_refused_in_one_line(like, message, tmp_path):
    io.save_posterior(tmp_path / "kept", make("equinox")[0])
    with pytest.raises(ValueError, match=message) as raised:
        io.load_posterior(tmp_path / "kept", like())
    assert "\n" not in str(raised.value)


def test_a_posterior_that_cannot_come_back_is_not_written(tmp_path):
    class Held(eqx.Module):
        mean: jax.Array
        transform: object = eqx.field(static=True)

        def sample(self, key, num):
            return self.mean

        def log_prob(self, params):
            return jnp.zeros(())

    held = Held(jnp.ones(2), jnp.tanh)
    with pytest.raises(ValueError, match=r"'transform' is a .*cannot be kept"):
        io.save_posterior(tmp_path / "kept", held)
    assert not list(tmp_path.iterdir())
    # As a mere tree it may: its function is there wherever `like` is.
    io.save_tree(tmp_path / "tree", held)
    assert io.load_tree(tmp_path / "tree", like=held)[0].transform is jnp.tanh


def test_posteriors_have_the_permissions_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        io.save_posterior(tmp_path / "kept", make("nnx")[0])
    finally:
        os.umask(before)
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o640


def test_files_of_the_first_format_are_read(tmp_path):
    """There all fields of a class lay side by side, and dicts had names for keys only."""
    posterior = posteriors.Empirical({"w": jnp.arange(6.0).reshape(3, 2)}, num_chains=3)
    io.save_posterior(tmp_path / "new", posterior)
    with safe_open(tmp_path / "new", framework="np") as file:
        text = file.metadata()["symbnn"][:-64]
        arrays = {"samples/w": file.get_tensor("samples/w")}
    description = json.loads(text)
    assert description["format"] == trees.FORMAT == 2
    description["format"] = 1
    root = description["tree"]
    root["fields"] |= root.pop("static")
    old = json.dumps(description)
    digest = trees.hashlib.sha256(old.encode()).hexdigest()
    trees.write_arrays(tmp_path / "old", arrays, {"symbnn": old + digest})
    same(io.load_posterior(tmp_path / "old")[0], posterior)
    description["format"] = 3
    newer = json.dumps(description)
    digest = trees.hashlib.sha256(newer.encode()).hexdigest()
    trees.write_arrays(tmp_path / "newer", arrays, {"symbnn": newer + digest})
    with pytest.raises(io.ArtefactError, match="expected format 1 or 2; found format 3 of symbnn"):
        io.load_posterior(tmp_path / "newer")
