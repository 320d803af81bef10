"""Files as `torch.save` writes them, byte by byte and without PyTorch, so that any place can be wrong."""

import struct
import zipfile

MAGIC = 0x1950A86A20F9469CFC6C
ORDERED_DICT = b"ccollections\nOrderedDict\n)R"


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(value: int) -> bytes:
    encoded = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(encoded)]) + encoded


def named(full_name: str) -> bytes:
    module, _, name = full_name.rpartition(".")
    return f"c{module}\n{name}\n".encode()


def tuple_of(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def call(full_name: str, *arguments: bytes) -> bytes:
    return named(full_name) + tuple_of(*arguments) + b"R"


def dict_of(entries: dict[str, bytes]) -> bytes:
    return b"}(" + b"".join(text(key) + value for key, value in entries.items()) + b"u"


def storage(key="0", kind="torch.FloatStorage", length=6, *view: bytes, tag="storage") -> bytes:
    return tuple_of(text(tag), named(kind), text(key), text("cpu"), number(length), *view) + b"Q"


def sizes(*values: int) -> bytes:
    return tuple_of(*map(number, values))


def tensor(row=None, offset=0, shape=(2, 3), strides=(3, 1)) -> bytes:
    row = storage() if row is None else row
    rest = (number(offset), sizes(*shape), sizes(*strides), b"\x89", ORDERED_DICT)
    return call("torch._utils._rebuild_tensor_v2", row, *rest)


def pickled(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


def zipped(path, body, rows=None, *, byteorder=b"little", compression=zipfile.ZIP_STORED):
    """A file of PyTorch since 1.6; `body` may be a whole pickle or only what is inside."""
    rows = {"0": struct.pack("<6f", *range(6))} if rows is None else rows
    content = body if body.startswith(b"\x80") else pickled(body)
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("weights/data.pkl", content)
        archive.writestr("weights/byteorder", byteorder)
        for key, row in rows.items():
            archive.writestr(f"weights/data/{key}", row)
    return path


def legacy(path, body, rows=None, *, lengths=None):
    """A file of PyTorch before 1.6: five pickles, then rows of numbers behind their lengths."""
    rows = {"0": struct.pack("<6f", *range(6))} if rows is None else rows
    lengths = lengths or {key: len(row) // 4 for key, row in rows.items()}
    parts = [pickled(number(MAGIC)), pickled(number(1001)), pickled(dict_of({"little_endian": b"\x88"}))]
    parts += [body if body.startswith(b"\x80") else pickled(body)]
    parts += [pickled(b"](" + b"".join(map(text, rows)) + b"e")]
    parts += [struct.pack("<q", lengths[key]) + row for key, row in rows.items()]
    path.write_bytes(b"".join(parts))
    return path
