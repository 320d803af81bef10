"""Which PyTorch layer is which layer of ours: torchvision's names, and those of common CIFAR code.

A map goes from our layer (`layer1_0/conv1`) to PyTorch's prefix (`layer1.0.conv1`). Where code bases differ,
the first candidate that the state dict knows is taken.
"""

import re
from collections.abc import Callable, Collection, Mapping

from symbnn import names

LayerMap = Mapping[str, str]

# The last part of our layer -> candidates for the last part of PyTorch's.
RESNET_PARTS = {
    "norm1": ("bn1", "norm1"),
    "norm2": ("bn2", "norm2"),
    "norm3": ("bn3", "norm3"),
    "shortcut_conv": ("downsample.0", "shortcut.0"),
    "shortcut_norm": ("downsample.1", "shortcut.1"),
    "out": ("fc", "linear"),
}
# The common code for CIFAR's own residual nets.
CIFAR_PARTS = {**RESNET_PARTS, "out": ("linear", "fc")}
WIDE_PARTS = {
    "norm": ("bn1",),
    "norm1": ("bn1",),
    "norm2": ("bn2",),
    "shortcut_conv": ("convShortcut", "shortcut.0"),
    "out": ("fc", "linear"),
}
VIT_PARTS = {
    "": ("",),
    "patches": ("conv_proj",),
    "norm": ("encoder.ln",),
    "norm1": ("ln_1",),
    "norm2": ("ln_2",),
    "mlp_in": ("mlp.0", "mlp.linear_1"),
    "mlp_out": ("mlp.3", "mlp.linear_2"),
    "out": ("heads.head", "head"),
}
FAMILIES = {
    "mlp": "chain",
    "lenet": "chain",
    "optunet": "chain",
    "resnet18": "resnet",
    "resnet50": "resnet",
    "resnet20": "cifar",
    "resnet20_frn": "resnet",
    "wrn28_10": "wide",
    "vit": "vit",
    "vit_b16": "vit",
}


def torch_layers(model_name: str, layers: Collection[str], keys: Collection[str] = ()) -> dict[str, str]:
    """PyTorch prefix of each of our `layers` of a named model; `keys` decide where code bases differ."""
    family = names.lookup(FAMILIES, model_name, "model")
    return NAMINGS[family](layers, keys)


def _chain(layers: Collection[str], keys: Collection[str]) -> dict[str, str]:
    """`conv1`, `conv2`, ... keep their names; dense layers are `fc1`, `fc2`, ... in order, `out` the last."""
    dense = sorted(
        (layer for layer in layers if layer.startswith("hidden")), key=lambda name: (len(name), name)
    )
    numbered = {layer: f"fc{number}" for number, layer in enumerate([*dense, "out"], start=1)}
    return {layer: numbered.get(layer, layer) for layer in layers}


def _resnet(layer: str) -> list[str]:
    return _residual(layer, RESNET_PARTS)


def _cifar(layer: str) -> list[str]:
    return _residual(layer, CIFAR_PARTS)


def _residual(layer: str, parts: Mapping[str, tuple[str, ...]]) -> list[str]:
    *block, last = layer.split("/")
    prefix = "".join(f"{part.replace('_', '.')}." for part in block)
    return [prefix + name for name in parts.get(last, (last,))]


def _wide(layer: str) -> list[str]:
    *block, last = layer.split("/")
    prefix = "".join(re.sub(r"layer(\d+)_(\d+)", r"block\1.layer.\2.", part) for part in block)
    return [prefix + name for name in WIDE_PARTS.get(last, (last,))]


def _vit(layer: str) -> list[str]:
    first, *rest = layer.split("/")
    match = re.fullmatch(r"block(\d+)", first)
    if match is None:
        return list(VIT_PARTS.get(layer, (layer,)))
    prefix = f"encoder.layers.encoder_layer_{match[1]}."
    if rest[:1] == ["attention"]:
        return [prefix + ("self_attention.out_proj" if rest[1:] == ["out"] else "self_attention")]
    return [prefix + name for name in VIT_PARTS.get("/".join(rest), ("/".join(rest),))]


def _first_known(candidates: Callable[[str], list[str]]) -> "Naming":
    def naming(layers: Collection[str], keys: Collection[str]) -> dict[str, str]:
        return {layer: _known(candidates(layer), keys) for layer in layers}

    return naming


def _known(candidates: list[str], keys: Collection[str]) -> str:
    for candidate in candidates:
        if any(key.startswith(f"{candidate}.") for key in keys):
            return candidate
    return candidates[0]


Naming = Callable[[Collection[str], Collection[str]], dict[str, str]]
NAMINGS: dict[str, Naming] = {
    "chain": _chain,
    "cifar": _first_known(_cifar),
    "resnet": _first_known(_resnet),
    "wide": _first_known(_wide),
    "vit": _first_known(_vit),
}
"""Ways to name layers."""
