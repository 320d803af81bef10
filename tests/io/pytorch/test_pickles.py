"""Files of `torch.save` are read without PyTorch and without running anything, however they are forged."""

import builtins
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest

from symbnn import io
from tests.io.pytorch import forged
from tests.io.pytorch.forged import call, dict_of, named, number, sizes, storage, tensor, text, tuple_of

ROW = np.arange(6, dtype=np.float32)
CONTAINERS = {"zip": forged.zipped, "legacy": forged.legacy}


@pytest.fixture(params=CONTAINERS)
def write(request, tmp_path):
    return lambda body, *rest, **settings: CONTAINERS[request.param](
        tmp_path / "file.pt", body, *rest, **settings
    )


def test_tensors_are_views_of_storages(write):
    body = dict_of(
        {
            "whole": tensor(),
            "turned": tensor(shape=(3, 2), strides=(1, 3)),
            "part": tensor(offset=1, shape=(2, 2), strides=(3, 1)),
            "repeated": tensor(shape=(4, 2), strides=(0, 5)),
            "empty": tensor(shape=(0, 3), strides=(3, 1)),
            "number": tensor(offset=5, shape=(), strides=()),
        }
    )
    found = io.load_torch(write(body))
    matrix = ROW.reshape(2, 3)
    expected = {
        "whole": matrix,
        "turned": matrix.T,
        "part": matrix[:, 1:],
        "repeated": np.tile(ROW[[0, 5]], (4, 1)),
        "empty": np.zeros((0, 3), np.float32),
        "number": np.float32(5),
    }
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], array)


def test_old_files_may_have_parts_of_storages(tmp_path):
    view = tuple_of(text("view"), number(2), number(3))
    body = dict_of({"w": tensor(storage("0", "torch.FloatStorage", 6, view), shape=(3,), strides=(1,))})
    np.testing.assert_array_equal(io.load_torch(forged.legacy(tmp_path / "a.pth", body))["w"], ROW[2:5])
    beyond = tensor(storage("0", "torch.FloatStorage", 6, view), shape=(4,), strides=(1,))
    with pytest.raises(io.ArtefactError, match="ends at number 5 of a storage that has 5"):
        io.load_torch(forged.legacy(tmp_path / "a.pth", dict_of({"w": beyond})))


@pytest.mark.parametrize("kind", ["torch.cuda.FloatStorage", "torch.FloatStorage"])
def test_numbers_of_a_graphics_card_are_numbers(write, kind):
    np.testing.assert_array_equal(
        io.load_torch(write(dict_of({"w": tensor(storage(kind=kind))})))["w"], ROW.reshape(2, 3)
    )


def test_other_byte_orders(tmp_path):
    rows = {"0": struct.pack(">6f", *range(6))}
    path = forged.zipped(tmp_path / "a.pt", dict_of({"w": tensor()}), rows, byteorder=b"big")
    np.testing.assert_array_equal(io.load_torch(path)["w"], ROW.reshape(2, 3))


def test_wrappers_of_tensors(write):
    hooks = forged.ORDERED_DICT
    body = dict_of(
        {
            "a": call("torch._utils._rebuild_parameter", tensor(), b"\x88", hooks),
            "b": call(
                "torch._tensor._rebuild_from_type_v2",
                named("torch._utils._rebuild_tensor_v2"),
                named("torch.Tensor"),
                tuple_of(storage(), number(0), sizes(6), sizes(1), b"\x89", hooks),
                b"}",
            ),
        }
    )
    found = io.load_torch(write(body))
    np.testing.assert_array_equal(found["a"].reshape(-1), found["b"])


def test_checkpoints_give_their_weights(write):
    python2 = call("collections.OrderedDict", b"](](" + text("w") + tensor() + b"ee")
    with_versions = python2 + dict_of({"_metadata": b"}"}) + b"b"
    others = {
        "epoch": number(3),
        "best_prec1": tensor(shape=(), strides=()),
        "milestones": call("collections.Counter", b"}" + number(9) + number(1) + b"s"),
        "size": call("torch.Size", b"](" + number(2) + b"e"),
        "seen": call("__builtin__.set", b"](" + number(2) + b"e"),
        "dtype": named("torch.float16"),
        "device": call("torch.device", text("cuda"), number(1)),
        "note": call("_codecs.encode", text("abc"), text("latin1")),
        "optimizer": dict_of({"state": b"}" + number(0) + dict_of({"m": tensor()}) + b"s"}),
    }
    found = io.load_torch(write(dict_of({**others, "state_dict": with_versions})))
    np.testing.assert_array_equal(found["w"], ROW.reshape(2, 3))


class Calls:
    """An object whose pickle calls a function when Python reads it."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_run(write, tmp_path, protocol):
    made = tmp_path / "made"
    hostile = Calls(os.system, f"touch {made}")
    for value in (hostile, {"state_dict": {"w": hostile}}, [hostile, (hostile,)]):
        path = write(b"\x80" + pickle.dumps(value, protocol)[1:] if protocol > 1 else pickle_text(value))
        with pytest.raises(io.ArtefactError, match=r"file.pt: .*refuses to run 'posix.system'"):
            io.load_torch(path)
    assert not made.exists()


def pickle_text(value):
    """Protocol 0 has no first byte of its own, as `write` expects."""
    return b"\x80\x00" + pickle.dumps(value, 0)


EVAL = call("builtins.eval", text("1"))
HOSTILE = {
    "builtins.eval": EVAL,
    "builtins.getattr": call("builtins.getattr", text("a"), text("upper")),
    "numpy._core.multiarray._reconstruct": named("numpy._core.multiarray._reconstruct"),
    "copyreg._reconstructor": named("copyreg._reconstructor"),
    "torch.load": call("torch.load", text("/etc/passwd")),
    "torch.storage._load_from_bytes": call("torch.storage._load_from_bytes", text("")),
    "torch._utils._rebuild_sparse_tensor": named("torch._utils._rebuild_sparse_tensor"),
    "torch._utils._rebuild_tensor_v2.__globals__": text("torch._utils")
    + text("_rebuild_tensor_v2.__globals__")
    + b"\x93",
    "collections.OrderedDict.__init__": text("collections") + text("OrderedDict.__init__") + b"\x93",
    "os.TouchStorage": named("os.TouchStorage"),
    "torch.TouchStorage": named("torch.TouchStorage"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_functions_are_refused_by_name_wherever_they_stand(write, name):
    body = HOSTILE[name]
    places = {
        "alone": body,
        "as a storage": dict_of({"w": tensor(body)}),
        "as a size": dict_of({"w": call("torch._utils._rebuild_tensor_v2", storage(), number(0), body)}),
        "as a type": dict_of({"w": tensor(tuple_of(text("storage"), body, text("0")) + b"Q")}),
        "beside weights": dict_of({"state_dict": dict_of({"w": tensor()}), "hook": body}),
        "thrown away": body + b"0" + dict_of({"w": tensor()}),
    }
    for content in places.values():
        with pytest.raises(io.ArtefactError, match=f"refuses to run '{name}'"):
            io.load_torch(write(content))


SIZES, OUTSIDE, LENGTH = "none negative", "ends at number . of a storage that has 6", "has length"
MANY = text("x" * 2**21) + b"q\x000" + (named("_codecs.encode") + b"h\x00\x85R0") * 10 + b"N"
FORGED = {
    "a negative size": (tensor(shape=(2, -3)), SIZES),
    "a negative stride": (tensor(strides=(3, -1)), SIZES),
    "a negative offset": (tensor(offset=-1), SIZES),
    "an offset outside": (tensor(offset=1), OUTSIDE),
    "a size outside": (tensor(shape=(3, 3)), OUTSIDE),
    "a stride outside": (tensor(strides=(4, 1)), OUTSIDE),
    "a size beyond memory": (tensor(shape=(2**62, 2), strides=(0, 0)), SIZES),
    "sizes beyond memory together": (tensor(shape=(2**40,) * 3, strides=(0, 0, 0)), "too big"),
    "a stride that overflows": (tensor(shape=(2, 2), strides=(2**62, 1)), SIZES),
    "more axes than arrays have": (tensor(shape=(1,) * 100, strides=(1,) * 100), "at most 32"),
    "fewer strides than sizes": (tensor(strides=(1,)), "as many sizes as strides"),
    "a longer storage": (tensor(storage(length=7)), "tensors need 28|tensors do not have so"),
    "a storage beyond memory": (tensor(storage(length=2**61)), LENGTH),
    "a negative storage": (tensor(storage(length=-1)), LENGTH),
    "an absent storage": (tensor(storage("1")), "no member 'data/1'|do not have so"),
    "a storage of another path": (tensor(storage("../data.pkl")), "no member|do not have so"),
    "no storage": (tensor(number(3)), SIZES),
    "a module of source code": (tensor(storage(tag="module")), "is no storage"),
    "a storage without type": (tensor(storage(kind="torch.Tensor")), "of type torch.Tensor"),
    "a number that is called": (number(3) + b")R", "is no function"),
    "a type that is called": (named("torch.FloatStorage") + b")R", "is no function"),
    "a type that is made": (named("torch.Tensor") + b")\x81", "is no function"),
    "attributes of a name": (named("collections.OrderedDict") + dict_of({"x": b"N"}) + b"b", "has none"),
    "a list with attributes": (b"]" + dict_of({"x": b"N"}) + b"b", "has none"),
    "items of a number": (number(3) + text("a") + b"Ns", "is no dict"),
    "an unknown memory": (b"h\x07", "KeyError"),
    "too few things": (b"t", "takes more than it gave"),
    "a registered extension": (b"\x82\x01", "instruction EXT1"),
    "an old instance": (b"(ios\nsystem\n", "refuses to run 'os.system'"),
    "a persistent name": (b"P0\n", "instruction PERSID"),
    "keys that cannot be compared": (b"})" + b"\x85" * 3000 + b"Ns", "key of type tuple"),
    "a text that does not end": (b"X\xff\xff\xff\xff", "longer than"),
    "bytes that do not end": (b"\x8e" + struct.pack("<Q", 2**62), "longer than"),
    "a name by a number": (number(1) + number(2) + b"\x93", "is no text"),
    "no end": (b"\x80\x02NNN", "ValueError"),
    "many copies": (MANY, "more than its own length"),
}


@pytest.mark.parametrize("what", FORGED)
def test_forged_descriptions_are_refused(write, what):
    body, message = FORGED[what]
    content = dict_of({"w": body}) if body.startswith(b"ctorch._utils") else body
    with pytest.raises(
        io.ArtefactError, match=rf"file.pt: expected a PyTorch state dict.*({message})"
    ) as error:
        io.load_torch(write(content))
    assert "\n" not in str(error.value)


def test_two_descriptions_of_one_storage_must_agree(write):
    other = tensor(storage(kind="torch.IntStorage"))
    with pytest.raises(io.ArtefactError, match="two tensors describe one storage in different ways"):
        io.load_torch(write(dict_of({"a": tensor(), "b": other})))


def test_memory_is_not_taken_for_what_a_pickle_only_names(write):
    # Python's own reader makes room for four thousand million entries here.
    body = dict_of({"w": tensor()}) + b"r" + struct.pack("<I", 2**32 - 1)
    np.testing.assert_array_equal(io.load_torch(write(body))["w"], ROW.reshape(2, 3))


def test_long_pickles_are_refused(write):
    with pytest.raises(io.ArtefactError, match=r"more than|longer than"):
        io.load_torch(write(text("x" * 2**24) + b"0" + dict_of({"w": tensor()})))


def test_archives_that_unpack_to_more_are_refused(tmp_path):
    rows = {"0": bytes(2**20)}
    body = dict_of({"w": tensor(storage(length=2**18))})
    path = forged.zipped(tmp_path / "a.pt", body, rows, compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 5000
    with pytest.raises(io.ArtefactError, match="compressed member"):
        io.load_torch(path)


def test_members_that_overlap_are_refused(tmp_path):
    path, size = tmp_path / "a.pt", 50_000
    rows = {str(index): bytes([index]) * size for index in range(4)}
    body = dict_of({f"w{key}": tensor(storage(key, length=size // 4)) for key in rows})
    forged.zipped(path, body, rows)
    with zipfile.ZipFile(path) as archive:
        first = archive.getinfo("weights/data/0")
    # Every entry of the directory points to the same bytes, which were written once.
    content = path.read_bytes()
    start = content.index(b"PK\x01\x02")
    directory = bytearray(content[start:])
    shift = 3 * (size + 30 + len("weights/data/0"))
    for index in range(4):
        place = directory.index(f"weights/data/{index}".encode()) - 46
        directory[place + 16 : place + 20] = struct.pack("<I", first.CRC)
        directory[place + 42 : place + 46] = struct.pack("<I", first.header_offset)
        directory[place + 46 : place + 46 + 14] = b"weights/data/" + str(index).encode()
    end = directory.rindex(b"PK\x05\x06")
    (old,) = struct.unpack("<I", directory[end + 16 : end + 20])
    directory[end + 16 : end + 20] = struct.pack("<I", old - shift)
    path.write_bytes(content[: start - shift] + bytes(directory))
    with pytest.raises(io.ArtefactError, match=r"[Oo]verlap"):
        io.load_torch(path)


def test_files_cut_anywhere_are_refused(write):
    path = write(dict_of({"w": tensor(), "v": tensor(offset=3, shape=(3,), strides=(1,))}))
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(io.ArtefactError, match=r"file.pt: expected a PyTorch state dict"):
            io.load_torch(path)


def test_damage_anywhere_gives_tensors_or_one_error(write, monkeypatch):
    def forbidden(*arguments):
        raise AssertionError("something was run")

    path = write(dict_of({"w": tensor(), "v": tensor(offset=3, shape=(3,), strides=(1,))}))
    whole, random = path.read_bytes(), np.random.default_rng(0)
    monkeypatch.setattr(os, "system", forbidden)
    monkeypatch.setattr(builtins, "eval", forbidden)
    refused = 0
    for _ in range(200):
        damaged = bytearray(whole)
        for place in random.integers(len(whole), size=random.integers(1, 4)):
            damaged[place] = random.integers(256)
        path.write_bytes(damaged)
        try:
            assert all(isinstance(array, np.ndarray) for array in io.load_torch(path).values())
        except io.ArtefactError as error:
            refused += "\n" not in str(error)
    assert refused > 50
