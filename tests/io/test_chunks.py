"""Chunks of a long run: another process goes on with them, another run does not."""

import os

import numpy as np
import pytest

from symbnn import io
from symbnn.inference import Sink
from tests.io.same import same

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
