"""Where each number of a leaf lies in PyTorch's tensor of the same layer.

| leaf | PyTorch |
|---|---|
| matrix, whichever of its axes the program contracts | (outputs, inputs) |
| matrix behind a flattened image of (height, width, channels) | inputs by channel, height, width |
| convolution kernel, in any order of axes | (outputs, inputs, height, width) |
| rows that are looked up | (rows, columns) |
| scale, bias, running mean and variance | a vector |

The program decides (`uses`), so a square matrix is turned exactly where its first axis is the input.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import tree
from symbnn.io.pytorch.axes import Digit, Places, common, in_leaf_order, size_of, torch_order
from symbnn.io.pytorch.uses import Unusable, Use, find_uses
from symbnn.models import Model
from symbnn.types import Params

Image = tuple[int, int, int] | None
"""(height, width, channels) of an image that was flattened; None: as here."""

# Leaf names of Flax, Haiku, Equinox and our own layers.
SUFFIXES = {
    **dict.fromkeys(("kernel", "weight", "w", "scale", "embedding", "embeddings", "gamma"), "weight"),
    **dict.fromkeys(("bias", "b", "offset", "beta"), "bias"),
    **dict.fromkeys(("mean", "running_mean"), "running_mean"),
    **dict.fromkeys(("var", "running_var"), "running_var"),
    "threshold": "tau",
}


class LayoutError(ValueError):
    """The program does not say where the numbers of a leaf lie in PyTorch."""


class Layout(NamedTuple):
    """How a leaf and PyTorch's tensor are turned into each other."""

    leaf_shape: tuple[int, ...]
    shape: tuple[int, ...]
    digits: tuple[Digit, ...]
    """Of the leaf, in PyTorch's order."""
    suffix: str | None
    """PyTorch's name for such a leaf, where that is known."""

    def to_torch(self, leaf: np.ndarray) -> np.ndarray:
        """PyTorch's tensor of a leaf."""
        order = list(in_leaf_order(self.digits))
        turned = leaf.reshape([self.digits[index].size for index in order])
        # A copy: PyTorch writes into the arrays it takes over.
        return np.array(turned.transpose(np.argsort(order)), order="C").reshape(self.shape)

    def from_torch(self, tensor: np.ndarray) -> np.ndarray:
        """The leaf of PyTorch's tensor."""
        turned = tensor.reshape([digit.size for digit in self.digits])
        return turned.transpose(list(in_leaf_order(self.digits))).reshape(self.leaf_shape)

    @property
    def is_turned(self) -> bool:
        """Whether PyTorch has the numbers in another order."""
        return list(in_leaf_order(self.digits)) != list(range(len(self.digits)))


def find_layouts(
    model: Model, example: Any = None, flattened: Mapping[str, Image] | None = None
) -> dict[str, Layout]:
    """Layouts of all leaves by name, in the order in which the program uses them.

    `LayoutError` names the first leaf whose layout the program does not tell. `example` is a batch of inputs,
    for models that do not know their input shape; `flattened` is by layer, as in `from_torch`.
    """
    uses, shapes = _uses(model, example)
    images = dict(flattened or {})
    unknown = sorted(images.keys() - {layer_of(name) for name in shapes})
    if unknown:
        raise ValueError(
            f"flattened has {unknown}, which are no layers of the model; it has {layers_of(shapes)}"
        )
    layouts = {}
    for name, found in uses.items():
        layer = layer_of(name)
        candidates = {_layout(name, shapes[name], use, images.get(layer), layer in images) for use in found}
        if len(candidates) > 1:
            raise LayoutError(
                f"leaf {name!r} is used in two ways, for which PyTorch's layers have different layouts"
            )
        layouts[name] = candidates.pop()
    for name in shapes:
        if name not in layouts:
            raise LayoutError(
                f"leaf {name!r} does not influence the outputs of the model, so nothing says what it is"
            )
    return layouts


def layer_of(name: str) -> str:
    """`layer1_0/norm1` for `batch_stats/layer1_0/norm1/mean`."""
    parts = name.split("/")
    return "/".join(parts[1:-1] if parts[0] in ("params", "batch_stats") else parts[:-1])


def layers_of(names: Mapping[str, Any]) -> list[str]:
    """The layers of some leaves, each once."""
    return list(dict.fromkeys(map(layer_of, names)))


def _uses(
    model: Model, example: Any
) -> tuple[dict[str, tuple[Use | Unusable, ...]], dict[str, tuple[int, ...]]]:
    if example is None and model.input_shape is None:
        raise LayoutError("the model does not know its input shape; give a batch of inputs as example=")
    if example is None:
        return _cached_uses(model)
    if not hasattr(example, "shape"):
        example = np.asarray(example)
    dtype = jax.dtypes.canonicalize_dtype(example.dtype)
    return _traced(model, jax.ShapeDtypeStruct(example.shape, dtype))


# Many checkpoints of one network are read one after the other; a model may hold weights, so few are kept.
@functools.lru_cache(maxsize=4)
def _cached_uses(model: Model) -> Any:
    assert model.input_shape is not None
    return _traced(model, jax.ShapeDtypeStruct((2, *model.input_shape), jnp.float32))


def _traced(model: Model, inputs: Any) -> Any:
    params: Params = jax.eval_shape(model.init, jax.random.key(0))
    shapes = {name: tuple(leaf.shape) for name, leaf in tree.named_leaves(params).items()}
    try:
        traced = jax.make_jaxpr(model.apply)(params, inputs)
    except TypeError as error:
        # Token numbers, say, where floats were tried.
        reason = str(error).splitlines()[0][:200]
        raise LayoutError(
            f"the model cannot be traced on {inputs} ({reason}); give a batch of its inputs as example="
        ) from error
    return find_uses(traced, list(shapes)), shapes


def _layout(name: str, shape: tuple[int, ...], use: Use | Unusable, image: Image, is_given: bool) -> Layout:
    if isinstance(use, Unusable):
        raise LayoutError(f"leaf {name!r}: {use.reason}")
    is_product = use.kind in ("matrix", "convolution")
    if is_product:
        inputs = _ordered(name, use, image, is_given)
        digits, torch_shape = (*use.outputs, *inputs, *use.window), use.shape
    else:
        digits, torch_shape = _elementwise(name, shape, use, is_given and image is None)
    num = math.prod(shape)
    if (size_of(digits), math.prod(torch_shape)) != (num, num) or len(set(digits)) != len(digits):
        raise LayoutError(
            f"leaf {name!r}: the program uses it in parts or repeatedly, as no layer of PyTorch does"
        )
    suffix = SUFFIXES.get(name.rsplit("/", 1)[-1]) or _suffix(use)
    return Layout(shape, torch_shape, digits, suffix)


def _ordered(name: str, use: Use, image: Image, is_given: bool) -> tuple[Digit, ...]:
    """The inputs of a product in PyTorch's order."""
    (reads,) = use.reads
    if is_given and use.kind == "matrix":
        if image is None:
            return use.inputs
        if size_of(use.inputs) != math.prod(image):
            raise ValueError(
                f"flattened says {image} for leaf {name!r}, which has {size_of(use.inputs)} inputs"
            )
        height, width, channels = image
        reads = (
            Places(height, "position", 0),
            Places(width, "position", 1),
            Places(channels, "channel"),
        )
    order, inputs = torch_order(reads), common(use.inputs, reads)
    if order is None or inputs is None:
        is_mixed = any(place.meaning == "mixed" for place in reads)
        sizes = " x ".join(str(place.size) for place in reads)
        what = f"an image among {sizes}" if is_mixed else f"{sizes} flattened"
        advice = "" if is_mixed else "(height, width, channels) if they are an image, or "
        raise LayoutError(
            f"leaf {name!r} reads {what} features, whose order in PyTorch the program does not tell; give "
            f"flattened={{{layer_of(name)!r}: ...}} with {advice}None if the order is the same"
        )
    # A factor of the reads may be several digits.
    runs = _runs(inputs, reads)
    return tuple(digit for index in order for digit in runs[index])


def _elementwise(
    name: str, shape: tuple[int, ...], use: Use, is_same: bool
) -> tuple[tuple[Digit, ...], tuple[int, ...]]:
    """Digits in PyTorch's order, and its shape: vectors of units, images with their channels first."""
    reads: tuple[Places, ...] = sum(use.reads, ())
    digits, order = common(use.outputs, reads), torch_order(reads)
    if use.kind == "rows" or is_same or not reads:
        return use.outputs, shape
    is_units = all(place.meaning in ("plain", "channel") and not place.number for place in reads)
    is_vector = len(use.reads) == 1 or is_units
    is_image = all(len(word) == 1 for word in use.reads) and sum(p.meaning == "position" for p in reads) > 1
    if digits is not None and order is not None and (is_vector or is_image):
        runs = _runs(digits, reads)
        turned = tuple(digit for index in order for digit in runs[index])
        return turned, (size_of(digits),) if is_vector else tuple(reads[index].size for index in order)
    wide = [size for size in shape if size > 1]
    is_sequence = order is not None and all(place.meaning not in ("position", "token") for place in reads)
    if is_vector or (not is_sequence and wide == [wide[-1], *wide[:-1]]):
        raise LayoutError(
            f"leaf {name!r} meets features whose order in PyTorch the program does not tell; give "
            f"flattened={{{layer_of(name)!r}: None}} if it is the same"
        )
    # Positions and units of a sequence, say; with the axes exchanged it would have another shape.
    return use.outputs, shape


def _runs(digits: Sequence[Digit], reads: Sequence[Places]) -> list[tuple[Digit, ...]]:
    """The digits of every factor of what is read."""
    remaining, runs = list(digits), []
    for place in reads:
        run: list[Digit] = []
        while size_of(run) < place.size:
            run.append(remaining.pop(0))
        runs.append(tuple(run))
    return runs


def _suffix(use: Use) -> str | None:
    """PyTorch's name by what the program does with it: for trees whose leaves have other names."""
    if use.kind != "elementwise":
        return "weight"
    if len(use.reads) > 1:
        return None
    if use.is_root:
        return "running_var"
    if use.primitive == "sub" and use.is_second:
        return "running_mean"
    return {"add": "bias", "mul": "weight"}.get(use.primitive)
