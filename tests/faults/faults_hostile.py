"""Files and options by someone who means harm: forged checksums, lying headers, paths that lead out, code.

Nothing but the library's own error may come of them: no other exception, no memory out of proportion, no file
outside the folder, and no line of code that a file brings along.
"""

import contextlib
import gzip
import hashlib
import io as streams
import json
import os
import pickle
import random
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image
from safetensors import safe_open
from safetensors.numpy import save

import configs
from experiments.harness import cli
from symbnn import data, io, sharing
from symbnn.data.folders import tiny_imagenet_val
from symbnn.posteriors import Empirical
from tests.faults import Fault
from tests.faults.faults_files import NUM_DAMAGES, Reader, attempt, tried
from tests.io.test_zoo import DESCRIPTION, HOSTILE, MODEL, archive, good
from tests.sharing.shared import make

RANDOM = np.random.default_rng(0)
NETWORKS = {"w": RANDOM.normal(size=(10, 3)).astype(np.float32)}


def faults() -> Iterator[Fault]:
    """All of them."""
    yield tried("forged descriptions of trees, checksums made anew", _forgeries, io.ArtefactError, _forged)
    yield tried("tables of shared weights", _shared, io.ArtefactError)
    yield tried("archives of checkpoints", _archive, io.ArtefactError)
    yield tried("zoos", _zoo, io.ArtefactError)
    yield tried("images in folders", _images, data.DataError)
    yield _members()
    yield _lies()
    yield _code()
    yield _paths()
    yield _options()


def _forgeries(folder: Path) -> tuple[Reader, list[Path]]:
    path = folder / "posterior.safetensors"
    network = {0: (jnp.ones(5),), 1: [jnp.ones(2)]}
    io.save_posterior(path, Empirical(jax.tree.map(lambda leaf: leaf[None], network)), {"note": "a"})

    def read() -> None:
        io.load_posterior(path)
        io.load_posterior(path, network)
        io.load_tree(path)
        io.read_metadata(path)

    return read, [path]


def _forged(content: bytes, source: random.Random) -> bytes:
    """The same arrays under a description with something exchanged, and its true checksum."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        with safe_open(file.name, framework="np") as opened:
            arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            description = json.loads(opened.metadata()["symbnn"][:-64])
    node = description
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = source.choice(keys)
        child = node[key]
        if not isinstance(child, dict | list) or not child or source.random() < 0.3:
            break
        node = child
    if isinstance(node, dict) and source.random() < 0.4:
        del node[key]
    else:
        node[key] = source.choice((None, 7, -1, 10**12, "x", [], {}, [[]], {"array": "x"}, 1e308))
    text = json.dumps(description)
    return save(arrays, metadata={"symbnn": text + hashlib.sha256(text.encode()).hexdigest()})


def _shared(folder: Path) -> tuple[Reader, list[Path]]:
    path = folder / "shared.safetensors"
    sharing.save(path, make())
    return lambda: sharing.load(path), [path]


def _networks() -> Any:
    shapes = jax.eval_shape(MODEL.init, jax.random.key(0))
    return jax.tree.map(lambda leaf: RANDOM.normal(size=(10, *leaf.shape)).astype(np.float32), shapes)


def _archive(folder: Path) -> tuple[Reader, list[Path]]:
    networks = _networks()
    path = archive(folder / "a.tgz", [good(networks, index) for index in range(3)])
    return lambda: list(io.iterate_checkpoints(path, MODEL, "optunet")), [path]


def _zoo(folder: Path) -> tuple[Reader, list[Path]]:
    zoo = io.Zoo(folder / "zoo")
    zoo.open(DESCRIPTION, num_networks=10, shard_size=4)
    for index, rows in enumerate(zoo.ranges()):
        zoo.write(index, {"w": NETWORKS["w"][rows.start : rows.stop]}, {"loss": np.arange(10.0)[rows]})

    def read() -> None:
        list(zoo.batches(3))
        zoo.metrics()
        zoo.description()

    return read, sorted((folder / "zoo").iterdir())


def _images(folder: Path) -> tuple[Reader, list[Path]]:
    for name, kind in (("a/1.png", "PNG"), ("a/2.jpg", "JPEG"), ("b/3.png", "PNG")):
        (folder / name).parent.mkdir(exist_ok=True)
        Image.fromarray(RANDOM.integers(0, 256, (12, 10, 3), np.uint8)).save(folder / name, kind)
    found = data.image_folder(folder)
    return lambda: found.read(np.arange(3), side=8), list(found.paths)


def _members() -> Fault:
    """Archives with members that lead out of the folder, are links or devices, or lie about themselves."""
    networks, survived = _networks(), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "inside"
        folder.mkdir()
        for kind in HOSTILE.values():
            path = archive(folder / "a.tgz", [good(networks, 5), kind(networks)])
            checkpoints = io.iterate_checkpoints(path, MODEL, "optunet")
            outcome = attempt(lambda checkpoints=checkpoints: list(checkpoints), io.ArtefactError)
            found = [path.name for path in Path(name).rglob("*")]
            survived += outcome == "refused" and found == ["inside", "a.tgz"]
    note = "refused by name; nothing is ever unpacked to the disk"
    return Fault("hostile members of archives", len(HOSTILE), survived, note)


def _lies() -> Fault:
    """Small files that ask for terabytes."""
    with tempfile.TemporaryDirectory() as name:
        readers = _lying_files(Path(name))
        outcomes = [attempt(read, (data.DataError, io.ArtefactError)) for read in readers]
    survived = sum(outcome == "refused" for outcome in outcomes)
    note = "idx, npz, safetensors, zoo and PNG headers that promise terabytes: refused, below 64 MiB"
    return Fault("headers that lie about sizes", len(readers), survived, note)


def _lying_files(folder: Path) -> list[Reader]:
    mnist, kmnist = folder / "mnist", folder / "kmnist"
    for place in (mnist, kmnist, folder / "zoo", folder / "images" / "a"):
        place.mkdir(parents=True)
    header = struct.pack(">IIII", 0x803, 2**31, 2**15, 2**15)
    for part in ("train", "t10k"):
        (mnist / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(header))
        (mnist / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(struct.pack(">II", 0x801, 2**31)))
        for kind in ("imgs", "labels"):
            file = streams.BytesIO()
            np.savez_compressed(file, arr_0=np.zeros(10_000_000, np.uint8))
            (kmnist / f"kmnist-{part}-{kind}.npz").write_bytes(file.getvalue())
    lie = {"w": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}
    text = json.dumps(lie).encode()
    (folder / "a.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    (folder / "b.safetensors").write_bytes(struct.pack("<Q", 2**50))
    zoo = {"description": {}, "num_networks": 10**15, "shard_size": 1, "precision": "float16", "shards": {}}
    (folder / "zoo" / "zoo.json").write_text(json.dumps(zoo))
    chunk = b"IHDR" + struct.pack(">IIBBBBB", 2**30, 2**30, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    (folder / "images" / "a" / "1.png").write_bytes(png + zlib.compress(bytes(1000)))
    return [
        lambda: data.load("mnist", data_dir=folder),
        lambda: data.load("kmnist", data_dir=folder),
        lambda: io.load_safetensors(folder / "a.safetensors"),
        lambda: io.load_safetensors(folder / "b.safetensors"),
        lambda: io.load_tree(folder / "a.safetensors"),
        lambda: io.Zoo(folder / "zoo").verify(),
        lambda: data.image_folder(folder / "images").read(np.arange(1), side=8),
    ]


class _Mark:
    """Unpickled, it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (str(self.path),)


def _code() -> Fault:
    """Pickles under the name of every format: none of them may be loaded."""
    with tempfile.TemporaryDirectory() as name:
        folder, mark = Path(name), Path(name) / "mark"
        plain = pickle.dumps(_Mark(mark))
        file = streams.BytesIO()
        np.savez(file, arr_0=np.array([_Mark(mark)], dtype=object))
        (folder / "kmnist").mkdir()
        (folder / "chunks").mkdir()
        for part in ("train", "test"):
            for kind in ("imgs", "labels"):
                (folder / "kmnist" / f"kmnist-{part}-{kind}.npz").write_bytes(file.getvalue())
        for path in ("a.safetensors", "a.tgz", "chunks/manifest.json", "zoo.json"):
            (folder / path).write_bytes(plain)
        readers: list[Reader] = [
            lambda: data.load("kmnist", data_dir=folder),
            lambda: io.load_tree(folder / "a.safetensors"),
            lambda: io.load_posterior(folder / "a.safetensors"),
            lambda: io.load_safetensors(folder / "a.safetensors"),
            lambda: sharing.load(folder / "a.safetensors"),
            lambda: list(io.iterate_checkpoints(folder / "a.tgz", MODEL, "optunet")),
            lambda: io.ChunkStore(folder / "chunks").open({}),
            lambda: io.Zoo(folder).verify(),
        ]
        survived = 0
        for read in readers:
            survived += attempt(read, (data.DataError, io.ArtefactError)) == "refused"
            survived -= mark.exists()
    return Fault("pickles in place of files", len(readers), survived, "none is unpickled")


def _paths() -> Fault:
    """A table of images that names files outside its folder."""
    names = ("../secret.png", "/etc/secret.png", "a/../../../secret.png", "..", "")
    survived = 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "val").mkdir()
        (root / "wnids.txt").write_text("n01\n")
        for name in names:
            (root / "val" / "val_annotations.txt").write_text(f"{name}\tn01\t0\t0\t1\t1\n")
            survived += attempt(lambda: tiny_imagenet_val(root), data.DataError) == "refused"
    return Fault("paths that lead out of a data set", len(names), survived, "refused by line")


def _options() -> Fault:
    """Options of every study with values that nobody means."""
    source, survived = random.Random("options"), 0
    numbers = ("nan", "-inf", "1e400", "-1", "10" * 40, "0x10")
    values = (*numbers, "", "None", "🙂", "../../etc", "\x00", "[]", "--seed")
    studies = list(configs.STUDIES)
    for _ in range(NUM_DAMAGES):
        study = source.choice(studies)
        options = _flat(configs.STUDIES[study].configs["debug"][1])
        arguments = [f"--{source.choice(options)}", source.choice(values)]
        survived += _is_told(study, arguments)
    note = "parsed and checked: accepted, or told in one line"
    return Fault("options of the command line", NUM_DAMAGES, survived, note)


def _flat(config: Any, prefix: str = "") -> list[str]:
    names = []
    for name, value in vars(config).items():
        option = prefix + name.replace("_", "-")
        names += _flat(value, f"{option}.") if hasattr(value, "__dataclass_fields__") else [option]
    return names


def _is_told(study: str, arguments: list[str]) -> bool:
    """What the command line does with its options before a study begins."""
    said = streams.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parsed = cli._parse(study, "debug", arguments)
        if parsed is None:
            return said.getvalue().startswith("error: ") and said.getvalue().count("\n") == 1
        configs.check(parsed.config)
    except ValueError as error:
        return "\n" not in str(error)
    except Exception:
        return False
    return True
