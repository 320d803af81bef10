"""What every study begins with: data, a network for them, their target, and the key of everything random.

Images out of distribution go by the name of their data set, or are test images that are changed
(`distortions`).
"""

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from experiments.common import published
from experiments.common.distortions import DISTORTIONS, distort, fitted
from symbnn import data, density, models, symmetry, tree
from symbnn.data.load import flattened
from symbnn.models.factory import from_factory
from symbnn.types import Key, Params, Samples

# Images of these sets come as files of any size, which stay on disk; networks see squares of this side.
SIDES = {"imagenet": 224}
# What the published weights of torchvision were trained on.
SCALES = {"imagenet": published.SCALE}
# The same objects for every seed: compiled training steps are known by them.
_likelihood = functools.cache(density.categorical)
prior = functools.cache(density.gaussian_prior)


@dataclasses.dataclass(frozen=True)
class Problem:
    """Data, network, target and key of one config and seed."""

    config: Any
    key: Key
    data: data.Dataset
    """Inputs as the network takes them; `test` is what is judged."""
    image_shape: tuple[int, ...]
    """Of one input before it was made a vector."""
    network: str
    """One of `symbnn.models`, or the `module:function` of the user."""
    model: models.Model
    target: density.Target
    inputs: Any
    """Those that are judged: an array, or `data.Streamed` where they stay on disk."""
    labels: jax.Array
    scale: data.Statistics | None = None
    """What the network's inputs were scaled by, if they were."""

    @property
    def examples(self) -> str:
        """`60000 examples of mnist, normalised`: what is trained on."""
        scaled = ", normalised" if self.config.data.is_normalised else ""
        return f"{self.target.num_data} examples of {self.data.name}{scaled}"

    @property
    def test(self) -> density.Batch:
        """What is judged."""
        return density.Batch(self.inputs, self.labels)

    @property
    def shapes(self) -> Any:
        """Shapes of one network."""
        return jax.eval_shape(self.model.init, self.key)

    @property
    def has_batch_statistics(self) -> bool:
        """Whether the network has batch normalisation."""
        return density.has_batch_statistics(self.shapes)

    @property
    def is_own(self) -> bool:
        """Whether the user wrote the network."""
        return _factory(self.config) is not None

    @property
    def sizes(self) -> str:
        """Layers of a perceptron, `64-32-10`, or what is known of another network."""
        if self.is_own:
            return f"{self.network} ({tree.num_weights(self.shapes)} weights)"
        hidden = (group.size for group in self.model.spec.groups)
        outputs = jax.eval_shape(self.target.model.apply, self.shapes, self.data.train.inputs[:1])
        return joined((*self.data.input_shape, *hidden, outputs.shape[-1]))

    @property
    def hidden(self) -> str:
        """`hidden 16-16, ` where that describes the network."""
        return "" if self.is_own else f"hidden {joined(self.config.hidden)}, "

    def frozen(self) -> "Problem":
        """The same with running statistics that training leaves alone: of networks that are trained."""
        model, known = models.frozen(self.model), self.target
        target = density.target(model, known.data, likelihood=known.likelihood, prior=known.prior)
        return dataclasses.replace(self, model=model, target=target)

    def require_least_mass(self) -> None:
        """`ValueError` if scales have no least mass, or there are none: before anything is trained."""
        try:
            jax.eval_shape(functools.partial(symmetry.balance, self.model.spec), self.shapes)
        except ValueError as error:
            raise ValueError(f"{self.network}: {error}") from error

    def align(
        self,
        samples: Samples,
        *,
        reference: Params | int | str,
        method: str,
        num_inputs: int | None = None,
    ) -> symmetry.Aligned:
        """Networks relabelled to fit the reference; by activations, the paper's uncentred inner product."""
        return symmetry.align(
            self.model.spec,
            samples,
            reference=reference,
            method=method,
            apply=self.model.apply,
            inputs=jnp.asarray(self.data.train.inputs[:num_inputs]),
            similarity="inner_product" if method == "activations" else None,
        )

    def outside(self, name: str) -> Any:
        """Inputs out of distribution; smaller images are fitted to the size of the network's own."""
        if name in DISTORTIONS:
            images = self.data.test.inputs.reshape(-1, *self.image_shape)
            return jnp.asarray(distort(name, images, self.data.name).reshape(-1, *self.data.input_shape))
        if len(self.image_shape) != 3:
            raise ValueError(
                f"{name} has images, but inputs of {self.data.name} have shape {self.image_shape}; choose "
                "permuted"
            )
        found = _read(self.config.data, name, seed=self.config.seed, test_only=True).test
        shape = found.inputs.shape[1:]
        if not isinstance(found.inputs, data.Streamed):
            found = found._replace(inputs=fitted(found.inputs, self.image_shape))
        if found.inputs.shape[1:] != self.image_shape:
            raise ValueError(
                f"images of {name} have shape {shape}, which does not enlarge to that of "
                f"{self.data.name}, {self.image_shape}; choose another data set out of distribution"
            )
        # Seen as the network sees its own, and scaled last: a border is black.
        found = found if self.scale is None else data.normalise(found, self.scale)
        if isinstance(found.inputs, data.Streamed):
            return found.inputs
        return jnp.asarray(found.inputs.reshape(-1, *self.data.input_shape))


def load(
    config: Any,
    network: str = "mlp",
    *,
    hidden: tuple[int, ...],
    activation: str = "relu",
    width: float = 1.0,
    rows: str = "auto",
    computed_by: str = "convolutions",
    prior_scale: float = 1.0,
    num_held_out: int = 0,
    scale: data.Statistics | None = None,
    seed: int | None = None,
) -> Problem:
    """The problem of `config.data` and one of `symbnn.models`; `config.seed` unless another is given.

    What the user brings, `config.data.npz` and `config.model.factory`, takes the place of either. The last
    `num_held_out` training examples, if any, are judged instead of the test set. `scale` is what inputs are
    scaled by, if it is known; else `config.data` says whether they are scaled by their own. `computed_by` is
    that of LeNet: "products" where no file of PyTorch is read.
    """
    seed = config.seed if seed is None else seed
    if config.data.npz is not None:
        read, scale = _own(config, seed), None
    else:
        scale = SCALES.get(config.data.name) if scale is None else scale
        read = _read(config.data, config.data.name, seed=seed)
    if read.num_classes is None:
        raise ValueError(f"--data.name {config.data.name} has no classes; this study needs labels")
    train, test = hold_out(read.train, num_held_out) if num_held_out else (read.train, read.test)
    if config.data.is_normalised:
        scale = _own_scale(train, scale)
    if scale is not None:
        train, test = data.normalise(train, scale), data.normalise(test, scale)
    loaded = read._replace(train=train, test=test)
    if (factory := _factory(config)) is not None:
        network = factory
        model = from_factory(network, loaded.input_shape, read.num_classes)
    else:
        loaded = flattened(loaded) if network == "mlp" else loaded
        settings: Any = {"hidden": hidden, "activation": activation, "width": width, "rows": rows}
        settings["computed_by"] = computed_by
        model = create(network, loaded.input_shape, read.num_classes, **settings)
    target = density.target(model, loaded.train, likelihood=_likelihood(), prior=prior(prior_scale))
    inputs = loaded.test.inputs
    return Problem(
        config,
        jax.random.key(seed),
        loaded,
        read.input_shape,
        network,
        model,
        target,
        inputs if isinstance(inputs, data.Streamed) else jnp.asarray(inputs),
        jnp.asarray(loaded.test.targets),
        scale,
    )


def _factory(config: Any) -> str | None:
    """The network that the user brought; a study of one kind of network has no such setting."""
    return config.model.factory if hasattr(config, "model") else None


def perceptron(config: Any, *, prior_scale: float = 1.0) -> Problem:
    """The problem of a config whose `model` describes a perceptron."""
    model = config.model
    return load(
        config, hidden=model.hidden, activation=model.activation, rows=model.rows, prior_scale=prior_scale
    )


def create(
    name: str,
    input_shape: tuple[int, ...],
    num_classes: int,
    *,
    hidden: tuple[int, ...] = (),
    activation: str = "relu",
    width: float = 1.0,
    rows: str = "auto",
    computed_by: str = "convolutions",
) -> models.Model:
    """One of `symbnn.models` with those of the settings that it knows."""
    known: dict[str, dict[str, Any]] = {
        "mlp": {"hidden": hidden, "activation": activation, "rows": rows},
        # No file of PyTorch is read here, and products train ten times as fast on a CPU.
        "optunet": {"hidden": hidden, "computed_by": "products"},
        "lenet": {"width": width, "computed_by": computed_by},
        "vit": {},
    }
    return models.create(name, input_shape, num_classes, **known.get(name, {"width": width}))


def hold_out(train: data.Split, num: int) -> tuple[data.Split, data.Split]:
    """(training, judged): the last `num` training examples are judged."""
    left = len(train.targets) - num
    if left < 2:
        raise ValueError(
            f"{num} of {len(train.targets)} training examples are held out; at least two must be left to "
            "train on"
        )
    first, last = (
        data.Split(train.inputs[part], train.targets[part]) for part in (slice(None, left), slice(left, None))
    )
    return first, last


def joined(sizes: Iterable[int]) -> str:
    """`64-32-10`."""
    return "-".join(map(str, sizes))


def _own(config: Any, seed: int) -> data.Dataset:
    """The arrays that the user brings, and a line about them; `ValueError` if they are no labels."""
    settings = config.data
    found = data.from_npz(
        settings.npz,
        num_train=settings.num_train,
        num_test=settings.num_test,
        seed=seed,
        resize=settings.image_side,
    )
    if found.num_classes is None:
        raise ValueError(
            f"--data.npz {settings.npz} has floating-point targets, as for regression; this study needs "
            "labels, integers from 0 to K - 1: save targets.astype(int) if they are that"
        )
    print(
        f"data: {found.name}, {len(found.train.targets)} training and {len(found.test.targets)} test "
        f"examples of shape {found.input_shape}, {found.num_classes} classes",
        flush=True,
    )
    return found


def _own_scale(train: data.Split, known: data.Statistics | None) -> data.Statistics:
    """Mean and spread of the training inputs; `ValueError` if they must be scaled by others."""
    if known is not None:
        raise ValueError(
            "--data.is-normalised measures mean and spread of the training images, but these are scaled by "
            "what published networks were trained with; leave it out"
        )
    return data.statistics(train)


def _read(settings: Any, name: str, *, seed: int, test_only: bool = False) -> data.Dataset:
    """The data set `name` as the settings describe it, its examples drawn by `seed`."""
    return data.load(
        name,
        data_dir=settings.directory,
        num_train=None if test_only else settings.num_train,
        num_test=settings.num_test,
        seed=seed,
        resize=SIDES.get(name, settings.image_side),
        test_only=test_only,
        streamed=name in SIDES,
    )
