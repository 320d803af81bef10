"""Random keys that depend on names and global indices, never on the device layout or the process."""

import zlib

import jax

from symbnn.types import Key


def named(key: Key, name: str) -> Key:
    """A key for the purpose `name`. CRC32, because Python's own string hash differs per process."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def indexed(key: Key, start: int, stop: int) -> Key:
    """One key for each global index in `[start, stop)`: the same wherever the index is computed."""
    return jax.vmap(lambda index: jax.random.fold_in(key, index))(jax.numpy.arange(start, stop))
