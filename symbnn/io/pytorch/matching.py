"""Which entry of a state dict is which leaf: by a map of layers, by names, or by shapes and numbers in names.

Without a map nothing is guessed. Either the names are those of a code base that is known, or every layer is
the only one of its shapes, or layers of the same shapes have names that tell their order. Those differ in
numbers only (`fc1`, `fc2`; `layers.0`, `layers.2`), or they end alike (`bn1`, `layer1.0.bn1`) and all layers,
in the order in which PyTorch's network defines them, have the shapes that the program meets in its order.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from symbnn.io.files import ArtefactError
from symbnn.io.pytorch.families import NAMINGS, LayerMap, torch_layers
from symbnn.io.pytorch.layouts import SUFFIXES, Layout, layer_of, layers_of

Shapes = Mapping[str, tuple[int, ...]]
"""Of the entries of a state dict."""

# Counts of training steps; no function of the network reads them.
COUNTER = "num_batches_tracked"
# Of torchvision's transformers, where they belong to no layer.
SPECIAL = {"token": "class_token", "positions": "encoder.pos_embedding"}
PACKED = ("query", "key", "value")
GIVE_MAP = "give layers={'our/layer': 'its.prefix', ...}"
SHOWN = 4


class Entry(NamedTuple):
    """Where a leaf lies in a state dict: `part` is its third of a packed projection."""

    key: str
    part: int | None = None


def match(
    layouts: Mapping[str, Layout], shapes: Shapes, layers: str | LayerMap | None, *, is_ordered: bool
) -> tuple[dict[str, Entry], str]:
    """The entry of every leaf, and a prefix of wrappers (`module.`) that all keys of the state dict have.

    `is_ordered`: whether the order of the entries is that in which PyTorch's network defines them.
    """
    known = [key for key in shapes if not is_counter(key)]
    if layers is not None:
        prefix = _common_prefix(named(layouts, layers, known), known)
        found = named(layouts, layers, _without(known, prefix))
        check_fit(layouts, found, _stripped(shapes, prefix))
        return found, prefix
    for prefix in _prefixes(known):
        stripped = _stripped(shapes, prefix)
        known_codes = [naming(layers_of(layouts), list(stripped)) for naming in NAMINGS.values()]
        candidates = [(own_names(layouts), []), *(_entries(layouts, names) for names in known_codes)]
        for entries, free in candidates:
            if not free and _is_fit(layouts, entries, stripped):
                return entries, prefix
    return _by_shape(layouts, shapes, is_ordered), ""


def named(
    layouts: Mapping[str, Layout], layers: str | LayerMap, keys: Collection[str] = ()
) -> dict[str, Entry]:
    """The entry of every leaf by a map of layers (or of single leaves), or by the name of a model."""
    own = layers_of(layouts)
    if not isinstance(layers, str | Mapping):
        raise ValueError(
            f"layers is the name of a model or a map of layers; got a {type(layers).__name__}; {GIVE_MAP}"
        )
    names = torch_layers(layers, own, keys) if isinstance(layers, str) else layers
    leaves = {_bare(name) for name in layouts}
    if unknown := sorted(names.keys() - leaves - set(own)):
        raise ValueError(f"layers has {unknown[:SHOWN]}, which the model has not; its layers are {own}")
    found, free = _entries(layouts, names)
    if free:
        raise ValueError(
            f"layers {sorted(free)} of the model have no PyTorch name; the map knows {sorted(names)}"
        )
    for entry, count in Counter(found.values()).items():
        if count > 1:
            raise ValueError(f"layers maps {count} leaves to {entry.key!r}; give each a name of its own")
    return found


def own_names(layouts: Mapping[str, Layout]) -> dict[str, Entry]:
    """PyTorch's layers with the names of ours; a leaf with a name of its own keeps it."""
    found = {}
    for name in layouts:
        *path, last = _bare(name).split("/")
        found[name] = Entry(".".join([*path, SUFFIXES.get(last, last) if path else last]))
    return found


def is_counter(key: str) -> bool:
    """Whether the entry counts training steps."""
    return key.rsplit(".", 1)[-1] == COUNTER


def check_fit(layouts: Mapping[str, Layout], entries: Mapping[str, Entry], shapes: Shapes) -> None:
    """`ArtefactError` unless the state dict has exactly the entries, in PyTorch's shapes."""
    known, wanted = {key for key in shapes if not is_counter(key)}, {entry.key for entry in entries.values()}
    if known != wanted:
        missing, unknown = sorted(wanted - known)[:SHOWN], sorted(known - wanted)[:SHOWN]
        raise ArtefactError(
            f"state dict: missing {missing}, unknown {unknown}; "
            "is it of this model, with these settings? Give a map of layers if only the names differ"
        )
    for name, entry in entries.items():
        expected = _torch_shape(layouts[name], entry)
        if _wide(shapes[entry.key]) != _wide(expected):
            raise ArtefactError(
                f"state dict: {entry.key!r} has shape {tuple(shapes[entry.key])}; {name!r} needs "
                f"{layouts[name].leaf_shape}, in PyTorch {expected}; is it of this model?"
            )


def _is_fit(layouts: Mapping[str, Layout], entries: Mapping[str, Entry], shapes: Shapes) -> bool:
    try:
        check_fit(layouts, entries, shapes)
    except ArtefactError:
        return False
    return True


def _entries(layouts: Mapping[str, Layout], names: LayerMap) -> tuple[dict[str, Entry], list[str]]:
    """The entry of every leaf, and the layers, or leaves unlike any of PyTorch's, that the map leaves out."""
    found: dict[str, Entry] = {}
    free: dict[str, None] = {}
    for name, layout in layouts.items():
        bare, layer = _bare(name), layer_of(name)
        parent, _, last = layer.rpartition("/")
        if bare in names and bare != layer:
            found[name] = Entry(names[bare])
        elif not layer and bare in SPECIAL:
            found[name] = Entry(SPECIAL[bare])
        elif layer not in names or layout.suffix is None:
            free[bare if layout.suffix is None or not layer else layer] = None
        elif parent and last in PACKED and len({names.get(f"{parent}/{part}") for part in PACKED}) == 1:
            found[name] = Entry(f"{names[layer]}.in_proj_{layout.suffix}", PACKED.index(last))
        else:
            found[name] = Entry(f"{names[layer]}.{layout.suffix}" if names[layer] else layout.suffix)
    return found, list(free)


def _by_shape(layouts: Mapping[str, Layout], shapes: Shapes, is_ordered: bool) -> dict[str, Entry]:
    """Layers that are the only ones of their shapes, or whose names tell their order."""
    own = {name: (layer_of(name), layout.suffix, layout.shape) for name, layout in layouts.items()}
    other = {key: _torch_place(key, shapes[key]) for key in shapes if not is_counter(key)}
    ours, theirs = _units(own), _units(other)
    if ours is None or theirs is None:
        # Layers that are no folders: every leaf is a layer of its own.
        ours, theirs = (
            [_Unit(name, {suffix: (name, shape)}) for name, (_, suffix, shape) in side.items()]
            for side in (own, other)
        )
    kinds = dict.fromkeys(unit.kind for unit in (*ours, *theirs))
    sides = [([u for u in ours if u.kind == kind], [u for u in theirs if u.kind == kind]) for kind in kinds]
    if different := [(one, two) for one, two in sides if len(one) != len(two)]:
        raise _other_architecture(different)
    is_same_order = is_ordered and [unit.kind for unit in ours] == [unit.kind for unit in theirs]
    found = {}
    for one, two in sides:
        for unit, match in zip(one, _in_order(one, two, is_ordered, is_same_order), strict=True):
            found.update({name: Entry(match.leaves[suffix][0]) for suffix, (name, _) in unit.leaves.items()})
    return found


def _torch_place(key: str, shape: tuple[int, ...]) -> tuple[str, str | None, tuple[int, ...]]:
    layer, _, last = key.rpartition(".")
    return layer, last if last in SUFFIXES.values() else None, shape


class _Unit(NamedTuple):
    """A layer: its leaves by PyTorch's name for them, with shapes."""

    name: str
    leaves: dict[str | None, tuple[str, tuple[int, ...]]]

    @property
    def kind(self) -> tuple[Any, ...]:
        """What layers must have in common to stand for each other."""
        return tuple(sorted((str(suffix), *_wide(shape)) for suffix, (_, shape) in self.leaves.items()))


def _units(places: Mapping[str, tuple[str, str | None, tuple[int, ...]]]) -> list[_Unit] | None:
    """Layers in order; what belongs to none is one itself. None if a layer has two leaves of one name."""
    units: dict[str, _Unit] = {}
    for name, (layer, suffix, shape) in places.items():
        key = name if suffix is None else layer
        unit = units.setdefault(key, _Unit(key, {}))
        if suffix in unit.leaves:
            return None
        unit.leaves[suffix] = (name, shape)
    return list(units.values())


def _in_order(ours: list[_Unit], theirs: list[_Unit], is_ordered: bool, is_same_order: bool) -> list[_Unit]:
    """Layers of a state dict, all of the same shapes, in the order of the program."""
    if len(theirs) == 1:
        return theirs
    if _are_numbered(unit.name for unit in theirs):
        by_number = sorted(theirs, key=lambda u: [int(number) for number in re.findall(r"\d+", u.name)])
        if not is_ordered or by_number == theirs:
            return by_number
    elif is_same_order and _are_numbered(unit.name.split(".")[-1] for unit in theirs):
        return theirs
    pairs = {unit.name: other.name for unit, other in zip(ours, theirs, strict=True)}
    shown = dict(list(pairs.items())[:SHOWN])
    raise ArtefactError(
        f"{len(pairs)} layers have the same shapes and names that do not tell their order; give a map of all "
        f"layers: layers={shown} if this is the order, and so on"
    )


def _are_numbered(names: Iterable[str]) -> bool:
    """Whether the names differ in numbers only."""
    return len({re.sub(r"\d+", "#", name) for name in names}) == 1


def _other_architecture(different: Sequence[tuple[list[_Unit], list[_Unit]]]) -> ArtefactError:
    """What the two have not in the same number, briefly."""
    texts = []
    for ours, theirs in different[:SHOWN]:
        leaves = (ours or theirs)[0].leaves
        kind = " and ".join(f"{suffix or 'shape'} {tuple(shape)}" for suffix, (_, shape) in leaves.items())
        counts = [f"{len(units)}{f' ({units[0].name!r})' if units else ''}" for units in (ours, theirs)]
        texts.append(f"of {kind} the model has {counts[0]}, the state dict {counts[1]}")
    more = len(different) - SHOWN
    return ArtefactError(
        f"the state dict is not of this model: {'; '.join(texts)}{f'; and {more} more' if more > 0 else ''}; "
        f"if they belong together nevertheless, {GIVE_MAP}"
    )


def _torch_shape(layout: Layout, entry: Entry) -> tuple[int, ...]:
    return layout.shape if entry.part is None else (3 * layout.shape[0], *layout.shape[1:])


def _wide(shape: Collection[int]) -> list[int]:
    """Axes of length 1 do not count."""
    return [size for size in shape if size != 1]


def _bare(name: str) -> str:
    """The leaf without the name of its collection."""
    first, _, rest = name.partition("/")
    return rest if first in ("params", "batch_stats") and rest else name


def _prefixes(keys: Collection[str]) -> list[str]:
    """Nothing, and what all keys begin with, up to each of its dots."""
    prefixes = [""]
    while keys and all("." in key for key in keys):
        first = {key.split(".", 1)[0] for key in keys}
        if len(first) > 1:
            break
        prefixes.append(f"{prefixes[-1]}{first.pop()}.")
        keys = [key.split(".", 1)[1] for key in keys]
    return prefixes


def _common_prefix(entries: Mapping[str, Entry], keys: Collection[str]) -> str:
    """The shortest prefix without which the state dict has one of the entries."""
    wanted = {entry.key for entry in entries.values()}
    return next((prefix for prefix in _prefixes(keys) if wanted & set(_without(keys, prefix))), "")


def _without(keys: Collection[str], prefix: str) -> list[str]:
    return [key.removeprefix(prefix) for key in keys]


def _stripped(shapes: Shapes, prefix: str) -> dict[str, tuple[int, ...]]:
    return {key.removeprefix(prefix): tuple(shape) for key, shape in shapes.items()}
