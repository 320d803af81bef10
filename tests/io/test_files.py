"""Files are whole or absent, whatever the disk does, and others may read them as the user decided."""

import os
import resource
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import io
from tests.io.same import same


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


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640)])
def test_files_have_the_permissions_of_the_umask(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        io.save_tree(tmp_path / "tree", {"a": jnp.zeros(1)})
        io.save_safetensors(tmp_path / "weights", {"a": np.zeros(1, np.float32)})
        io.ChunkStore(tmp_path).open({"method": "hmc"})
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {mode}
