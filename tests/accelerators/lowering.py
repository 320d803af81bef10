"""A program lowered for an accelerator that is not there, and what in it could only run on a CPU."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from symbnn.programs import programs_in
from tests.accelerators.recorder import COMPILE, Program

PLATFORMS = ("cuda", "tpu")
# Everything else that is called by name belongs to another platform, or to nobody.
KNOWN = {
    "cuda": r"cusolver_\w+|cublas_\w+|cu_\w+|cuhybrid_\w+|cudnn\w*|__cudnn\w*|TopK|mhlo\.\w+",
    "tpu": r"Eigh|Qr|Qdwh\w*|LuDecomposition|ProductOfElementaryHouseholderReflectors|TopK|mhlo\.\w+",
}
MESH_SHAPE = (4, 2)
"""Of the simulated mesh: chains, and the data of each."""


class Lowered(NamedTuple):
    """What became of a program."""

    case: str
    name: str
    site: str
    platform: str
    num_devices: int
    problem: str
    """Empty if it can run there."""
    targets: tuple[str, ...]
    """What it calls by name."""
    is_double: bool


def lower(program: Program, platform: str) -> Lowered:
    """The program for one platform, on the devices that its arguments lie on."""
    targets, is_double, num_devices = (), False, program.num_devices
    back = sorted(name for name in done_by(program) if "callback" in name or name.startswith("debug"))
    with jax.enable_x64(program.is_double):
        try:
            text, num_devices = exported(program, platform)
        except (NotImplementedError, ValueError, TypeError) as error:
            problem = f"{type(error).__name__}: {error}"[:300]
        else:
            targets = called(text)
            problem, is_double = foreign(targets, platform), "f64>" in text
    problem = f"calls back to the host: {back}; {problem}" if back else problem
    place = (program.case, program.name, program.site)
    return Lowered(*place, platform, num_devices, problem, targets, is_double)


def exported(program: Program, platform: str) -> tuple[str, int]:
    """(module in words, its number of devices)."""
    leaves, structure = jax.tree.flatten((program.arguments, program.settings))
    is_array = [isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves]

    def of_arrays(*arrays: Any) -> Any:
        """Settings are closed over: `jax.export` takes a static argument with a `shape` for an array."""
        given = iter(arrays)
        whole = [next(given) if is_one else leaf for leaf, is_one in zip(leaves, is_array, strict=True)]
        arguments, settings = jax.tree.unflatten(structure, whole)
        return program.function(*arguments, **settings)

    arrays = [leaf for leaf, is_one in zip(leaves, is_array, strict=True) if is_one]
    module = jax.export.export(COMPILE(of_arrays), platforms=[platform])(*arrays)
    return module.mlir_module(), module.nr_devices


def called(text: str) -> tuple[str, ...]:
    """Names of the custom calls of a module, without those that say how arrays lie on devices."""
    names = set(re.findall(r'custom_call @"?([\w.]+)', text)) | set(
        re.findall(r'call_target_name = "([\w.]+)"', text)
    )
    return tuple(sorted(name for name in names if not re.fullmatch(r"Sharding|SPMD\w+|.*[Ss]hardy.*", name)))


def foreign(targets: tuple[str, ...], platform: str) -> str:
    """What the platform does not have, in words; empty if it has all."""
    unknown = [name for name in targets if not re.fullmatch(KNOWN[platform], name)]
    return f"calls {', '.join(unknown)}, which {platform} does not have" if unknown else ""


def on_mesh(program: Program, devices: list[Any]) -> Program:
    """The same with its arguments on a mesh: split along the first axis where that divides, else copied."""
    mesh = Mesh(np.array(devices).reshape(MESH_SHAPE), ("chain", "data"))

    def placed(leaf: Any) -> Any:
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        is_split = leaf.ndim > 0 and leaf.shape[0] > 0 and leaf.shape[0] % MESH_SHAPE[0] == 0
        spec = PartitionSpec("chain") if is_split else PartitionSpec()
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    arguments, settings = jax.tree.map(placed, (program.arguments, program.settings))
    return program._replace(arguments=arguments, settings=settings)


def versions(program: Program, devices: list[Any]) -> Iterator[Program]:
    """As it was called, and on the mesh of eight unless it says itself on which devices it runs."""
    yield program
    if program.num_devices == 1 and "shard_map" not in done_by(program):
        yield on_mesh(program, devices)


def primitives(jaxpr: Any) -> set[str]:
    """Names of what a program does, itself and in what it calls."""
    return {equation.primitive.name for equation in jaxpr.eqns}.union(
        *(primitives(inner) for equation in jaxpr.eqns for inner in programs_in(equation))
    )


def done_by(program: Program) -> set[str]:
    """Names of what a recorded program does."""
    with jax.enable_x64(program.is_double):
        return primitives(program.function.trace(*program.arguments, **program.settings).jaxpr)
