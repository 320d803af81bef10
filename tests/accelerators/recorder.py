"""Every program that the library compiles, as it is called: `jax.jit` is replaced before symbnn is imported.

So nobody keeps a list of programs by hand: private ones and those made at run time are seen with the
arguments that the library gives them. A dry run traces and does not compute: what a program returns are ones.
"""

import functools
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

LIBRARY = Path(__file__).parents[2] / "symbnn"
COMPILE = jax.jit


class Program(NamedTuple):
    """A compiled function and the shapes that it was called with."""

    case: str
    site: str
    """Where it is compiled: `file:line` in the library."""
    name: str
    function: Any
    arguments: tuple[Any, ...]
    settings: dict[str, Any]
    """Arguments by keyword."""
    is_double: bool
    """Called where double precision is enabled."""
    is_part: bool
    """Called inside of another program, of which it is a part."""

    @property
    def num_devices(self) -> int:
        """Devices that the arguments lie on."""
        leaves = jax.tree.leaves((self.arguments, self.settings))
        placed = (
            leaf.sharding for leaf in leaves if isinstance(leaf, jax.ShapeDtypeStruct) and leaf.sharding
        )
        return max((sharding.num_devices for sharding in placed), default=1)


class Recorder:
    """What was called since the start, once for every case, function and number of devices."""

    def __init__(self) -> None:
        self.programs: dict[Any, Program] = {}
        self.case, self.is_dry = "", False

    def install(self) -> None:
        """From now on `jax.jit` makes functions that are recorded, where the library calls it."""
        assert not any(name.startswith("symbnn") for name in sys.modules), "symbnn was imported too early"
        jax.jit = self.jit

    def jit(self, function: Callable[..., Any], **options: Any) -> Any:
        """`jax.jit`, remembering who calls the result."""
        compiled, site = COMPILE(function, **options), _library_frame()
        return compiled if site is None else Recorded(self, site, _name(function), compiled)

    def note(self, program: Program) -> None:
        """Keep a program, unless the like is known."""
        like = (self.case, id(program.function), program.num_devices, program.is_double, program.is_part)
        self.programs.setdefault(like, program)


class Recorded:
    """A compiled function that tells of its calls."""

    def __init__(self, recorder: Recorder, site: str, name: str, compiled: Any) -> None:
        self.recorder, self.site, self.name, self.compiled = recorder, site, name, compiled
        functools.update_wrapper(self, compiled)

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        given = jax.tree.leaves((arguments, settings))
        is_part = any(isinstance(leaf, jax.core.Tracer) for leaf in given)
        shapes = jax.tree.map(abstract, (arguments, settings))
        place = (self.recorder.case, self.site, self.name)
        self.recorder.note(Program(*place, self.compiled, *shapes, bool(jax.config.jax_enable_x64), is_part))
        if self.recorder.is_dry and not is_part:
            return jax.tree.map(ones, self.compiled.eval_shape(*shapes[0], **shapes[1]))
        return self.compiled(*arguments, **settings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.compiled, name)


def abstract(leaf: Any) -> Any:
    """Shape, type and place of an array; anything else as it is."""
    if isinstance(leaf, jax.core.Tracer):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    if isinstance(leaf, jax.Array):
        is_placed = isinstance(leaf.sharding, jax.sharding.NamedSharding)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding if is_placed else None)
    if isinstance(leaf, np.ndarray | np.generic):
        return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))
    return leaf


def ones(shape: Any) -> jax.Array:
    """Something of this shape: finite, true, and a length that nothing divides by zero."""
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(0), shape.shape)
    return jnp.asarray(np.ones(shape.shape, shape.dtype))


def _library_frame() -> str | None:
    """File and line of the library in which `jax.jit` is called, if it is one."""
    for depth in itertools.count(2):
        frame = sys._getframe(depth)
        file = Path(frame.f_code.co_filename)
        if file.name != "functools.py":
            return f"{file.relative_to(LIBRARY)}:{frame.f_lineno}" if file.is_relative_to(LIBRARY) else None
    return None


def _name(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)
