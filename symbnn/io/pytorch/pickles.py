"""PyTorch's pickles as plain data: an interpreter that can build containers and tensors, and call nothing.

A pickle is a program. Python's own reader runs whatever function the file names; this one knows the few names
that files of weights need and refuses every other by name, before anything is done with it. There is nothing
to call: what a known name makes is written here, so not even a forged file reaches Python's functions.
"""

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from io import BufferedIOBase
from typing import Any, BinaryIO, cast

from symbnn.io.pytorch.tensors import DTYPES, STORAGES, Storage, Tensor, make_storage, make_tensor

PICKLE_BYTES = 2**24
"""Names, shapes and settings of the largest published networks take a few megabytes; a byte of a pickle can
ask for a hundred bytes of memory."""

LITERALS = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE"),
        *("BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    )
)
CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_SET": list,
    "EMPTY_DICT": dict,
}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class Refused(ValueError):
    """The file asks for a function or class that files of weights do not need; `name` is its full name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"refuses to run {name!r}")
        self.name = name


@dataclass(frozen=True)
class Name:
    """A function or class that a pickle names. Never the thing itself."""

    text: str


def read_plain(file: BufferedIOBase) -> tuple[Any, dict[str, Storage]]:
    """The data of one pickle and its storages; the file is left behind its end.

    `ValueError`, or another error of a reader, for what is no such data; `Refused` for a function.
    """
    stack = _Stack()
    for opcode, argument, _ in pickletools.genops(cast(BinaryIO, _Bounded(file))):
        if opcode.name == "STOP":
            return stack.pop(), stack.storages
        stack.do(opcode.name, argument)
    raise ValueError("the pickle has no end")


class _Stack:
    def __init__(self) -> None:
        self.items: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.storages: dict[str, Storage] = {}
        self.num_copied = 0

    def pop(self) -> Any:
        """The topmost item above the last mark."""
        if len(self.items) <= (self.marks[-1] if self.marks else 0):
            raise ValueError("the pickle takes more than it gave")
        return self.items.pop()

    def pop_mark(self) -> list[Any]:
        """All items above the last mark."""
        if not self.marks:
            raise ValueError("the pickle takes more than it gave")
        start = self.marks.pop()
        taken = self.items[start:]
        del self.items[start:]
        return taken

    def do(self, name: str, argument: Any) -> None:
        """One instruction."""
        push = self.items.append
        if name in LITERALS:
            push(argument)
        elif name in CONSTANTS:
            push(CONSTANTS[name]())
        elif name in TUPLES:
            push(tuple([self.pop() for _ in range(TUPLES[name])][::-1]))
        elif name == "MARK":
            self.marks.append(len(self.items))
        elif name in ("TUPLE", "LIST", "FROZENSET"):
            taken = self.pop_mark()
            push(taken if name == "LIST" else tuple(taken))
        elif name == "DICT":
            push(_set_items({}, self.pop_mark()))
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            parts = argument.split(" ", 1) if name == "GLOBAL" else [self.pop(), self.pop()][::-1]
            push(known_name(parts))
        elif name == "BINPERSID":
            storage = _storage(self.pop())
            push(storage)
            before = self.storages.setdefault(storage.key, storage)
            if (before.dtype, before.whole) != (storage.dtype, storage.whole):
                raise ValueError("two tensors describe one storage in different ways")
        elif name in ("REDUCE", "NEWOBJ"):
            arguments = self.pop()
            push(self.make(self.pop(), arguments))
        else:
            self.change(name, argument)

    def make(self, name: Any, arguments: Any) -> Any:
        """What a known name makes of its arguments."""
        if not isinstance(name, Name) or not isinstance(arguments, tuple) or name.text not in MAKERS:
            raise ValueError("the pickle calls something that is no function")
        # A list may be named many times and be copied each time.
        self.num_copied += sum(len(each) for each in arguments if hasattr(each, "__len__"))
        if self.num_copied > PICKLE_BYTES:
            raise ValueError("the pickle makes more than its own length")
        return MAKERS[name.text](*arguments)

    def change(self, name: str, argument: Any) -> None:
        """Instructions that push nothing new."""
        if name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            item = self.pop()
            self.items.append(item)
            self.memo[len(self.memo) if name == "MEMOIZE" else int(argument)] = item
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.items.append(self.memo[int(argument)])
        elif name in ("SETITEM", "SETITEMS"):
            pairs = self.pop_mark() if name == "SETITEMS" else [self.pop(), self.pop()][::-1]
            self.items.append(_set_items(self.pop(), pairs))
        elif name in ("APPEND", "APPENDS", "ADDITEMS"):
            taken = [self.pop()] if name == "APPEND" else self.pop_mark()
            target = self.pop()
            if not isinstance(target, list):
                raise ValueError("the pickle appends to something that is no list")
            target.extend(taken)
            self.items.append(target)
        elif name == "BUILD":
            # Attributes, such as the versions of layers on a state dict; no number of the network.
            self.pop()
            if self.items and not isinstance(self.items[-1], dict | Tensor):
                raise ValueError("the pickle sets attributes of something that has none")
        elif name in ("POP", "POP_MARK"):
            self.pop() if name == "POP" else self.pop_mark()
        elif name == "INST":
            # Refused by the name it asks for; if that is known, then as any other instruction.
            known_name(argument.split(" ", 1))
            raise ValueError("the pickle makes an instance of an old class")
        elif name not in ("PROTO", "FRAME"):
            raise ValueError(f"the pickle has an instruction {name}, which files of weights do not need")


def known_name(parts: list[Any]) -> Name:
    """The name, if files of weights need it; else `Refused`."""
    if not all(isinstance(part, str) for part in parts):
        raise ValueError("the pickle names a function by something that is no text")
    text = ".".join(parts)
    module, _, last = text.rpartition(".")
    kind = last.removesuffix("Storage")
    is_storage = module in ("torch", "torch.cuda") and last.endswith("Storage") and kind in STORAGES
    is_dtype = module == "torch" and last in DTYPES
    if not (is_storage or is_dtype or text in MAKERS or text in TYPES):
        raise Refused(text[:200])
    return Name(text)


def _set_items(target: Any, pairs: list[Any]) -> dict[Any, Any]:
    if not isinstance(target, dict) or len(pairs) % 2:
        raise ValueError("the pickle sets items of something that is no dict")
    for key, value in zip(pairs[::2], pairs[1::2], strict=True):
        # Others could be nested deeper than Python can hash.
        if not isinstance(key, str | int | float | None):
            raise ValueError(f"a dict has a key of type {type(key).__name__}")
        target[key] = value
    return target


def _storage(identity: Any) -> Storage:
    """("storage", type, key, device, length), and in old files a view."""
    tag, kind, key, _, length, *view = identity
    if tag != "storage" or not isinstance(kind, Name):
        raise ValueError("the pickle refers to something that is no storage")
    last = kind.text.rpartition(".")[2].removesuffix("Storage")
    if last not in STORAGES and last != "Untyped":
        raise ValueError(f"a storage is of type {kind.text}")
    return make_storage(key, DTYPES[STORAGES[last]] if last in STORAGES else None, length, *view[:1])


def _ordered_dict(pairs: Any = ()) -> dict[Any, Any]:
    return _set_items({}, [item for key, value in pairs for item in (key, value)])


def _counter(counts: Any = None) -> dict[Any, Any]:
    return _ordered_dict(() if counts is None else counts.items())


def _device(kind: Any, number: Any = 0) -> str:
    if not isinstance(kind, str) or not isinstance(number, int):
        raise ValueError("a device has a kind and a number")
    return kind


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> Tensor:
    return make_tensor(storage, offset, shape, strides, None)


def _tensor_with_dtype(
    storage: Any, offset: Any, shape: Any, strides: Any, gradient: Any, hooks: Any, dtype: Any, *rest: Any
) -> Tensor:
    last = dtype.text.rpartition(".")[2] if isinstance(dtype, Name) else ""
    if last not in DTYPES:
        raise ValueError("a tensor has no dtype that is known")
    return make_tensor(storage, offset, shape, strides, DTYPES[last])


def _parameter(data: Any, *rest: Any) -> Tensor:
    if not isinstance(data, Tensor):
        raise ValueError("a parameter is no tensor")
    return data


def _from_type(function: Any, kind: Any, arguments: Any, state: Any) -> Any:
    if not isinstance(function, Name) or not function.text.startswith("torch._utils."):
        raise ValueError("a tensor is made by something that is no function of tensors")
    return MAKERS[function.text](*arguments)


def _text_as_bytes(text: Any, encoding: Any = "latin1") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise ValueError("bytes are kept as text in latin1")
    return text.encode("latin1")


MAKERS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _ordered_dict,
    "collections.Counter": _counter,
    "_codecs.encode": _text_as_bytes,
    **dict.fromkeys(("builtins.set", "__builtin__.set"), lambda items=(): list(items)),
    "torch.Size": lambda sizes=(): tuple(sizes),
    "torch.device": _device,
    **dict.fromkeys(("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2"), _tensor),
    "torch._utils._rebuild_tensor_v3": _tensor_with_dtype,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._tensor._rebuild_from_type_v2": _from_type,
}
"""What the names that are known make."""

TYPES = frozenset(
    ("torch.Tensor", "torch.nn.parameter.Parameter", "torch.storage.UntypedStorage", "torch.UntypedStorage")
)


class _Bounded:
    """A file of which at most `PICKLE_BYTES` are read: instructions name lengths, and nobody else checks."""

    def __init__(self, file: BufferedIOBase) -> None:
        self._file, self._left = file, PICKLE_BYTES

    def read(self, size: int) -> bytes:
        return self._counted(size, self._file.read)

    def readline(self) -> bytes:
        return self._counted(self._left, self._file.readline, minimum=1)

    def _counted(self, size: int, read: Callable[[int], bytes], minimum: int = 0) -> bytes:
        if not minimum <= size <= self._left:
            raise ValueError(f"the pickle is longer than {PICKLE_BYTES} bytes")
        content = read(size)
        self._left -= len(content)
        return content
