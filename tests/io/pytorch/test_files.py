"""What PyTorch writes is read without it, what is written without it PyTorch reads; other files are named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import io, models

SAFE = {
    "fc.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "fc.bias": np.float32([1, 2]),
    "bn.num_batches_tracked": np.array(7, np.int64),
}


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def tensors(torch):
    """One of every kind that state dicts have: views, shared storages, empty, all common dtypes."""
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(4, 6, generator=generator)
    kinds = (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8)
    return {
        "base": base,
        "turned": base.T,
        "part": base[1:, 2:5],
        "stepped": base[::2, ::3],
        "repeated": base[:1].expand(5, 6),
        "empty": torch.zeros(0, 3),
        "number": torch.tensor(3.5),
        "bool": torch.tensor([True, False]),
        "bytes": torch.arange(3, dtype=torch.uint8),
        "complex": torch.view_as_complex(base.reshape(4, 3, 2).clone()),
        "parameter": torch.nn.Parameter(base[0]),
        "images": torch.randn(2, 3, 4, 5, generator=generator).to(memory_format=torch.channels_last),
        **{str(kind): (10 * base).to(kind) for kind in kinds},
    }


def as_numpy(torch, tensor):
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.float().numpy().astype(jnp.bfloat16)
    return tensor.numpy()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("is_zip", [True, False])
def test_everything_pytorch_writes_is_read(torch, tmp_path, is_zip, protocol):
    state = tensors(torch)
    checkpoint = {"epoch": 3, "state_dict": state, "optimizer": {"state": {0: {"m": torch.ones(3)}}}}
    for name, value in (("plain.pt", state), ("checkpoint.pth", checkpoint)):
        path = tmp_path / name
        torch.save(value, path, _use_new_zipfile_serialization=is_zip, pickle_protocol=protocol)
        found = io.load_torch(path)
        assert list(found) == list(state)
        for key, tensor in state.items():
            expected = as_numpy(torch, tensor)
            assert (found[key].dtype, found[key].shape) == (expected.dtype, expected.shape), key
            np.testing.assert_array_equal(found[key], expected, err_msg=key)


def test_dtypes_that_only_new_files_have(torch, tmp_path):
    state = {"a": torch.tensor([1, 2]).to(torch.uint16), "b": torch.randn(5).to(torch.float8_e4m3fn)}
    torch.save(state, tmp_path / "a.pt")
    found = io.load_torch(tmp_path / "a.pt")
    np.testing.assert_array_equal(found["a"], np.uint16([1, 2]))
    np.testing.assert_array_equal(found["b"].astype(np.float32), state["b"].float().numpy())


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".th", ".bin", ".safetensors"])
def test_what_is_written_comes_back(tmp_path, suffix):
    arrays = {**SAFE, "half": np.float16([1, 2]), "brain": np.ones(3, jnp.bfloat16)}
    arrays |= {
        "turned": np.arange(6, dtype=np.float64).reshape(2, 3).T,
        "empty": np.zeros((0, 2), np.float32),
    }
    io.save_torch(tmp_path / f"a{suffix}", arrays)
    found = io.load_torch(tmp_path / f"a{suffix}")
    assert found.keys() == arrays.keys()
    for key, array in arrays.items():
        assert (found[key].dtype, found[key].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[key], array)


@pytest.mark.parametrize("is_mapped", [False, True])
def test_what_is_written_pytorch_reads(torch, tmp_path, is_mapped):
    io.save_torch(tmp_path / "a.pt", SAFE)
    found = torch.load(tmp_path / "a.pt", weights_only=True, mmap=is_mapped)
    assert list(found) == list(SAFE)
    for key, array in SAFE.items():
        np.testing.assert_array_equal(found[key].numpy(), array)
        assert found[key].numpy().dtype == array.dtype
    module = torch.nn.Linear(3, 2)
    module.load_state_dict({"weight": found["fc.weight"], "bias": found["fc.bias"]}, strict=True)


def test_the_same_weights_make_the_same_file(tmp_path):
    for name in ("a.pt", "b.pth"):
        io.save_torch(tmp_path / name, SAFE)
    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "b.pth").read_bytes()


def test_content_decides_and_not_the_suffix(tmp_path):
    io.save_safetensors(tmp_path / "renamed.pth", SAFE)
    np.testing.assert_array_equal(io.load_torch(tmp_path / "renamed.pth")["fc.bias"], SAFE["fc.bias"])


def test_files_of_other_kinds_are_named(tmp_path):
    for name, content, message in (
        ("empty.pt", b"", "found an empty file"),
        ("page.pt", b"\n<!DOCTYPE html><html>", "found a web page; the download failed"),
        ("lfs.pth", b"version https://git-lfs.github.com/spec/v1\noid ...", "found a pointer of Git LFS"),
        ("array.npy", b"\x93NUMPY", "found other bytes"),
        ("pickle.pt", b"\x80\x04K\x01.", "found a pickle of another program"),
        ("old.pt", bytes(257) + b"ustar", "found a tar archive"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(io.ArtefactError, match=f"{name}: expected a PyTorch state dict.*{message}"):
            io.load_torch(tmp_path / name)


def test_zip_archives_of_other_programs_are_named(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.ones(3))
    with pytest.raises(io.ArtefactError, match="found ValueError: a zip archive of another program"):
        io.load_torch(tmp_path / "a.npz")


@pytest.mark.parametrize("read", [io.load_torch, io.load_safetensors])
def test_paths_that_are_no_files_are_named(tmp_path, read):
    with pytest.raises(io.ArtefactError, match="found a folder; give the path of the file itself"):
        read(tmp_path)
    with pytest.raises(io.ArtefactError, match=r"absent: expected a PyTorch state dict.*found nothing"):
        read(tmp_path / "absent")
    with pytest.raises(ValueError, match="expected the path of a file; got a dict; a state dict in memory"):
        read(SAFE)


def test_a_file_of_torch_save_is_no_safetensors_file(tmp_path):
    io.save_torch(tmp_path / "a.pth", SAFE)
    with pytest.raises(io.ArtefactError, match=r"found a file of torch.save; read it with io.load_torch"):
        io.load_safetensors(tmp_path / "a.pth")


def test_whole_networks_are_refused(torch, tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    for is_zip in (True, False):
        torch.save(module, tmp_path / "whole.pt", _use_new_zipfile_serialization=is_zip)
        with pytest.raises(
            io.ArtefactError, match=r"found a whole network .*save model.state_dict\(\) instead"
        ):
            io.load_torch(tmp_path / "whole.pt")


class Own:
    """A class of the user's, as in a checkpoint with its configuration."""


def test_objects_beside_the_weights_are_refused(torch, tmp_path):
    torch.save({"state_dict": {"w": torch.ones(2)}, "config": Own()}, tmp_path / "a.pt")
    with pytest.raises(io.ArtefactError, match=r"refuses to run '.*Own'.*save model.state_dict\(\) instead"):
        io.load_torch(tmp_path / "a.pt")
    torch.save({"state_dict": {"w": torch.ones(2)}, "best": np.float64(3)}, tmp_path / "a.pt")
    with pytest.raises(io.ArtefactError, match=r"refuses to run 'numpy"):
        io.load_torch(tmp_path / "a.pt")


def test_checkpoints_without_weights_or_with_several(torch, tmp_path):
    path, state = tmp_path / "a.pt", torch.nn.Linear(2, 2).state_dict()
    optimiser = {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 0.1, "params": [0]}]}
    for value, message in (
        (
            {"optimizer": optimiser, "epoch": 1},
            "no state dict in a dict",
        ),
        ([state], "no state dict in a list"),
        (torch.ones(2), "no state dict in one tensor"),
        ({"weight": torch.ones(2), "epoch": 3}, r"values at \['epoch'\] that are no tensors"),
        ({}, "no state dict in a dict"),
    ):
        torch.save(value, path)
        with pytest.raises(io.ArtefactError, match=rf"a.pt: expected a PyTorch state dict.*found {message}"):
            io.load_torch(path)
    torch.save({"teacher": state, "student": {"w": torch.ones(2)}}, path)
    with pytest.raises(io.ArtefactError, match=r"several state dicts, \['student', 'teacher'\]; choose one"):
        io.load_torch(path)
    assert io.load_torch(path, entry="student").keys() == {"w"}
    with pytest.raises(io.ArtefactError, match="found no state dict at 'pupil'"):
        io.load_torch(path, entry="pupil")
    torch.save({"model": state, "ema": {"w": torch.ones(2)}}, path)
    assert io.load_torch(path).keys() == state.keys()


def test_what_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"a.npz: weights are written to files that end in .pt, .pth"):
        io.save_torch(tmp_path / "a.npz", SAFE)
    with pytest.raises(ValueError, match="'w' has dtype <U1; PyTorch's files hold"):
        io.save_torch(tmp_path / "a.pt", {"w": np.array(["a"])})
    assert list(tmp_path.iterdir()) == []
    model = models.mlp((2,), 2)
    with pytest.raises(ValueError, match=r"a.npz: weights are written"):
        io.to_torch(model, model.init(jax.random.key(0)), path=tmp_path / "a.npz")
