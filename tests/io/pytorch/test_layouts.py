"""Networks of any framework compute with PyTorch's weights what PyTorch computes: the program decides.

All matrices are square where they can be, so nothing but the program tells how they lie.
"""

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from symbnn import io, models, symmetry
from symbnn.io.pytorch.layouts import LayoutError, find_layouts

torch = pytest.importorskip("torch")
nn = torch.nn

WIDTH = 5


def model_of(init, apply, input_shape, dtype=jnp.float32):
    shapes = jax.eval_shape(init, jax.random.key(0))
    inputs = jax.ShapeDtypeStruct((2, *input_shape), dtype)
    return models.Model(init, apply, symmetry.discover(apply, shapes, inputs), None, input_shape)


def of_equinox(make, input_shape):
    return models.wrap(make(jax.random.key(0)), jnp.zeros((2, *input_shape)))


def of_nnx(make, input_shape):
    return models.wrap(make(nnx.Rngs(0)), jnp.zeros((2, *input_shape)))


def of_haiku(function, input_shape):
    return models.wrap(hk.transform(function), jnp.zeros((2, *input_shape)))


def of_linen(function, input_shape):
    """A linen module whose layers are made in `function`."""

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            return function(x)

    return models.from_module(Net(), input_shape)


def seeded(module):
    """All numbers of the module random, statistics positive; evaluation mode."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(torch.randn(tensor.shape, generator=generator) / 2)
                tensor.abs_().add_(0.5) if name.endswith("running_var") else None
    return module.eval()


def assert_same_function(model, module, layers=None, *, is_channels_last=False, **settings):
    """Outputs agree; and the way back gives the same state dict, in order, shape and dtype."""
    seeded(module)
    inputs = np.random.default_rng(0).normal(size=(3, *model.input_shape)).astype(np.float32)
    theirs = np.moveaxis(inputs, -1, 1) if is_channels_last else inputs
    with torch.no_grad():
        expected = module(torch.from_numpy(np.ascontiguousarray(theirs))).numpy()
    params = io.from_torch(model, module.state_dict(), layers, **settings)
    np.testing.assert_allclose(
        model.apply(params, inputs), expected, atol=1e-5 * max(1.0, np.abs(expected).max())
    )
    back = io.to_torch(model, params, layers, like=module, **settings)
    assert list(back) == list(module.state_dict())
    for key, tensor in module.state_dict().items():
        assert (back[key].shape, back[key].dtype) == (tuple(tensor.shape), tensor.numpy().dtype)
        np.testing.assert_array_equal(back[key], tensor.numpy())


def torch_perceptron():
    layers = [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)]
    return nn.Sequential(*layers)


def linen_perceptron(x):
    for _ in range(2):
        x = linen.relu(linen.Dense(WIDTH)(x))
    return linen.Dense(WIDTH)(x)


def nnx_perceptron(rngs):
    layers = [nnx.Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(3)]
    return nnx.Sequential(layers[0], jax.nn.relu, layers[1], jax.nn.relu, layers[2])


def pairs(params, x):
    """A list of (matrix, vector), the second matrix the other way round."""
    (first, a), (second, b), (third, c) = params
    return jax.nn.relu(jax.nn.relu(x @ first + a) @ second.T + b) @ third + c


def flat(params, x):
    """One dict for all layers, matrices on the left."""
    x = jax.nn.relu(jnp.einsum("oi,ni->no", params["w1"], x) + params["b1"])
    x = jax.nn.relu(jnp.einsum("io,ni->no", params["w2"], x) + params["b2"])
    return (params["w3"] @ x.T).T + params["b3"]


SQUARE, ROW = jnp.zeros((WIDTH, WIDTH)), jnp.zeros(WIDTH)
PERCEPTRONS = {
    "linen": lambda: of_linen(linen_perceptron, (WIDTH,)),
    "haiku": lambda: of_haiku(lambda x: hk.nets.MLP([WIDTH] * 3)(x), (WIDTH,)),
    "equinox": lambda: of_equinox(lambda key: eqx.nn.MLP(WIDTH, WIDTH, WIDTH, 2, key=key), (WIDTH,)),
    "nnx": lambda: of_nnx(nnx_perceptron, (WIDTH,)),
    "pairs": lambda: model_of(lambda key: [(SQUARE, ROW)] * 3, pairs, (WIDTH,)),
    "flat": lambda: model_of(
        lambda key: {f"{kind}{i}": SQUARE if kind == "w" else ROW for kind in "wb" for i in (1, 2, 3)},
        flat,
        (WIDTH,),
    ),
}


@pytest.mark.parametrize("name", PERCEPTRONS)
def test_square_matrices_lie_as_the_program_reads_them(name):
    assert_same_function(PERCEPTRONS[name](), torch_perceptron())


class TorchConvolutional(nn.Module):
    """Height, width and channels of the flattened image all differ."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3)
        self.fc1, self.fc2 = nn.Linear(2 * 3 * 4, 24), nn.Linear(24, 24)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv2(torch.relu(self.conv1(x)))), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def linen_convolutional(x):
    for channels in (4, 2):
        x = linen.relu(linen.Conv(channels, (3, 3), padding="VALID")(x))
    x = linen.max_pool(x, (2, 2), (2, 2)).reshape(len(x), -1)
    return linen.Dense(24)(linen.relu(linen.Dense(24)(x)))


def haiku_convolutional(layout):
    def network(x):
        for channels in (4, 2):
            x = jax.nn.relu(hk.Conv2D(channels, 3, padding="VALID", data_format=layout)(x))
        window, axis = ((2, 2, 1), -1) if layout == "NHWC" else ((1, 2, 2), 1)
        x = hk.Flatten()(hk.max_pool(x, window, window, "VALID", channel_axis=axis))
        return hk.nets.MLP([24, 24])(x)

    return network


class NnxConvolutional(nnx.Module):
    def __init__(self, rngs):
        self.conv1 = nnx.Conv(3, 4, (3, 3), padding="VALID", rngs=rngs)
        self.conv2 = nnx.Conv(4, 2, (3, 3), padding="VALID", rngs=rngs)
        self.fc1, self.fc2 = nnx.Linear(24, 24, rngs=rngs), nnx.Linear(24, 24, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(nnx.relu(self.conv2(nnx.relu(self.conv1(x)))), (2, 2), (2, 2))
        return self.fc2(nnx.relu(self.fc1(x.reshape(len(x), -1))))


class EquinoxConvolutional(eqx.Module):
    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d
    hidden: eqx.nn.Linear
    out: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 4)
        self.first, self.second = eqx.nn.Conv2d(3, 4, 3, key=keys[0]), eqx.nn.Conv2d(4, 2, 3, key=keys[1])
        self.hidden, self.out = eqx.nn.Linear(24, 24, key=keys[2]), eqx.nn.Linear(24, 24, key=keys[3])

    def __call__(self, x):
        x = eqx.nn.MaxPool2d(2, 2)(jax.nn.relu(self.second(jax.nn.relu(self.first(x)))))
        return self.out(jax.nn.relu(self.hidden(x.reshape(-1))))


LAST, FIRST = (10, 12, 3), (3, 10, 12)
CONVOLUTIONAL = {
    "linen": (lambda: of_linen(linen_convolutional, LAST), True),
    "haiku": (lambda: of_haiku(haiku_convolutional("NHWC"), LAST), True),
    "haiku, channels first": (lambda: of_haiku(haiku_convolutional("NCHW"), FIRST), False),
    "nnx": (lambda: of_nnx(NnxConvolutional, LAST), True),
    "equinox": (lambda: of_equinox(EquinoxConvolutional, FIRST), False),
}


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_flattened_images_are_found_in_the_program(name):
    make, is_channels_last = CONVOLUTIONAL[name]
    names = {"equinox": {"first": "conv1", "second": "conv2", "hidden": "fc1", "out": "fc2"}}
    assert_same_function(make(), TorchConvolutional(), names.get(name), is_channels_last=is_channels_last)


class TorchNormed(nn.Module):
    """Norms before and behind the flattening."""

    def __init__(self, norm):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3), norm
        self.flat, self.fc = nn.BatchNorm1d(4 * 4 * 4), nn.Linear(4 * 4 * 4, 3)

    def forward(self, x):
        return self.fc(self.flat(self.norm(self.conv(x)).flatten(1)))


def linen_normed(norm):
    def network(x):
        x = norm()(linen.Conv(4, (3, 3), padding="VALID")(x))
        x = linen.BatchNorm(use_running_average=True)(x.reshape(len(x), -1))
        return linen.Dense(3)(x)

    return network


def whole_norm():
    return linen.LayerNorm(reduction_axes=(1, 2, 3), feature_axes=(1, 2, 3), epsilon=1e-5)


@pytest.mark.parametrize(
    ("norm", "torch_norm"),
    [
        (lambda: linen.BatchNorm(use_running_average=True), lambda: nn.BatchNorm2d(4)),
        # Height, width and channels are equal here: no shape tells them apart.
        (whole_norm, lambda: nn.LayerNorm((4, 4, 4))),
        (lambda: linen.GroupNorm(2, epsilon=1e-5), lambda: nn.GroupNorm(2, 4)),
    ],
)
def test_norms_of_images_and_of_flattened_images(norm, torch_norm):
    model = of_linen(linen_normed(norm), (6, 6, 2))
    assert_same_function(model, TorchNormed(torch_norm()), is_channels_last=True)


def test_an_equinox_norm_over_images():
    class Net(eqx.Module):
        conv: eqx.nn.Conv2d
        norm: eqx.nn.LayerNorm
        fc: eqx.nn.Linear

        def __init__(self, key):
            self.conv = eqx.nn.Conv2d(2, 4, 3, key=key)
            self.norm, self.fc = eqx.nn.LayerNorm((4, 4, 4)), eqx.nn.Linear(64, 3, key=key)

        def __call__(self, x):
            return self.fc(self.norm(self.conv(x)).reshape(-1))

    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.LayerNorm((4, 4, 4)), nn.Flatten(), nn.Linear(64, 3))
    assert_same_function(of_equinox(Net, (2, 6, 6)), module)


def test_an_nnx_batch_norm():
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.first, self.norm = nnx.Linear(WIDTH, WIDTH, rngs=rngs), nnx.BatchNorm(WIDTH, rngs=rngs)

        def __call__(self, x):
            return self.norm(self.first(x))

    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))
    assert_same_function(of_nnx(Net, (WIDTH,)), module)


def haiku_normed(x, is_training):
    return hk.BatchNorm(True, True, 0.9)(hk.Linear(WIDTH)(x), is_training)


def test_statistics_with_bookkeeping_of_their_own_are_refused():
    """Haiku keeps the unbiased sums beside the averages that it uses."""
    model = models.wrap(hk.transform_with_state(haiku_normed), jnp.zeros((2, WIDTH)))
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))
    with pytest.raises(LayoutError, match="mean_ema/counter' does not influence the outputs"):
        io.from_torch(model, module)


def test_several_axes_contracted_at_once_are_a_flattened_image():
    def network(x):
        return linen.DenseGeneral(4, axis=(1, 2, 3))(linen.Conv(3, (3, 3), padding="VALID")(x))

    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(60, 4))
    assert_same_function(of_linen(network, (6, 7, 2)), module, is_channels_last=True)


def test_sequences_of_channels():
    def network(x):
        return linen.Dense(4)(linen.Conv(3, (3,), padding="VALID")(x).reshape(len(x), -1))

    module = nn.Sequential(nn.Conv1d(2, 3, 3), nn.Flatten(), nn.Linear(15, 4))
    assert_same_function(of_linen(network, (7, 2)), module, is_channels_last=True)


def test_grouped_and_pointwise_convolutions():
    def network(x):
        x = linen.Conv(4, (3, 3), padding="VALID", feature_group_count=4)(x)
        x = linen.relu(linen.Conv(4, (1, 1), use_bias=False)(x))
        # A dense layer on every position is a pointwise convolution in PyTorch.
        return linen.Dense(4, use_bias=False)(x).mean(axis=(1, 2))

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.depthwise = nn.Conv2d(4, 4, 3, groups=4)
            self.pointwise1 = nn.Conv2d(4, 4, 1, bias=False)
            self.pointwise2 = nn.Conv2d(4, 4, 1, bias=False)

        def forward(self, x):
            return self.pointwise2(torch.relu(self.pointwise1(self.depthwise(x)))).mean(dim=(2, 3))

    assert_same_function(of_linen(network, (5, 6, 4)), Module(), is_channels_last=True)


def test_tokens_of_images():
    """Positions are a leaf of no layer; one matrix mixes tokens, and is square too."""

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            x = linen.Conv(4, (2, 2), (2, 2), padding="VALID", name="patches")(x).reshape(len(x), -1, 4)
            x = x + self.param("positions", linen.initializers.normal(), (1, 6, 4))
            x = linen.Dense(4, name="units")(linen.LayerNorm(epsilon=1e-5, name="norm")(x))
            return x + linen.Dense(6, name="tokens")(x.swapaxes(1, 2)).swapaxes(1, 2)

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.positions, self.patches = nn.Parameter(torch.zeros(1, 6, 4)), nn.Conv2d(2, 4, 2, 2)
            self.norm, self.units, self.tokens = nn.LayerNorm(4), nn.Linear(4, 4), nn.Linear(6, 6)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
            x = self.units(self.norm(x))
            return x + self.tokens(x.transpose(1, 2)).transpose(1, 2)

    assert_same_function(models.from_module(Net(), (4, 6, 2)), Module(), is_channels_last=True)


def test_rows_that_are_looked_up_and_used_again():
    def network(params, tokens):
        features = params["embed"]["embedding"][tokens].reshape(len(tokens), -1) @ params["hidden"]["kernel"]
        return features @ params["embed"]["embedding"].T

    def init(key):
        return {"embed": {"embedding": jnp.zeros((4, 4))}, "hidden": {"kernel": jnp.zeros((12, 4))}}

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.hidden = nn.Embedding(4, 4), nn.Linear(12, 4, bias=False)

        def forward(self, tokens):
            return self.hidden(self.embed(tokens).flatten(1)) @ self.embed.weight.T

    model, module = model_of(init, network, (3,), jnp.int32), seeded(Module())
    tokens = np.array([[0, 1, 2], [3, 3, 1]])
    with pytest.raises(LayoutError, match="give a batch of its inputs as example="):
        io.from_torch(model, module)
    params = io.from_torch(model, module, example=tokens)
    with torch.no_grad():
        expected = module(torch.from_numpy(tokens)).numpy()
    np.testing.assert_allclose(model.apply(params, tokens), expected, atol=1e-5)


def test_a_model_without_input_shape_needs_an_example():
    model = models.mlp((3,), 3, hidden=(3,))._replace(input_shape=None)
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    with pytest.raises(LayoutError, match="give a batch of inputs as example="):
        io.from_torch(model, module)
    params = io.from_torch(model, module, example=np.zeros((2, 3), np.float32))
    np.testing.assert_array_equal(params["hidden"]["kernel"], module[0].weight.detach().numpy().T)


def test_tokens_are_flattened_as_they_are_if_the_user_says_so():
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.fc = nn.Conv2d(2, 3, 1), nn.Linear(60, 4)

        def forward(self, x):
            return self.fc(torch.relu(self.conv(x).flatten(2).transpose(1, 2)).flatten(1))

    settings = {"is_channels_last": True, "flattened": {"Dense_0": None}}
    assert_same_function(of_linen(flattened_tokens, (5, 4, 2)), Module(), **settings)


def pixel_dense(x):
    x = linen.Dense(3)(linen.Conv(3, (3, 3), padding="VALID")(x))
    return linen.Dense(4)(x.reshape(len(x), -1))


@pytest.mark.parametrize("is_told", [False, True])
def test_an_order_that_the_program_does_not_tell_is_refused(is_told):
    """PyTorch may have its channels first or last behind a dense layer on every pixel."""
    model = of_linen(pixel_dense, (6, 7, 2))
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Conv2d(3, 3, 1), nn.Flatten(), nn.Linear(60, 4))
    if is_told:
        assert_same_function(model, module, is_channels_last=True, flattened={"Dense_1": (4, 5, 3)})
        return
    with pytest.raises(
        LayoutError, match=r"'Dense_1/kernel' reads 4 x 5 x 3 flattened features.*'Dense_1': "
    ):
        io.from_torch(model, module)


def test_flattened_colours_without_convolution_are_refused():
    model = models.mlp((4, 4, 3), 2, hidden=(6,))
    module = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.ReLU(), nn.Linear(6, 2))
    with pytest.raises(LayoutError, match="reads 4 x 4 x 3 flattened features, whose order in PyTorch"):
        io.from_torch(model, module)
    assert_same_function(model, module, is_channels_last=True, flattened={"hidden": (4, 4, 3)})
    # Who feeds PyTorch the same flat vectors says so.
    assert_same_function(model, module, flattened={"hidden": None})
    grey = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 2))
    assert_same_function(models.mlp((4, 3, 1), 2, hidden=(6,)), grey, is_channels_last=True)


def joined(x):
    flat_image = linen.Conv(3, (3, 3), padding="VALID")(x).reshape(len(x), -1)
    return linen.Dense(4)(jnp.concatenate([flat_image, x.mean(axis=(1, 2))], axis=1))


def shuffled(x):
    return linen.Dense(4)(jnp.flip(linen.Conv(3, (3, 3), padding="VALID")(x).reshape(len(x), -1), axis=1))


def normed_pixels(x):
    """PyTorch has this norm for the last axis only: its channels may be last behind it."""
    return linen.Dense(4)(linen.LayerNorm()(linen.Conv(3, (3, 3))(x)).reshape(len(x), -1))


def flattened_tokens(x):
    tokens = linen.Conv(3, (1, 1))(x).reshape(len(x), -1, 3)
    return linen.Dense(4)(jax.nn.relu(tokens).reshape(len(x), -1))


def per_head(params, x):
    return jnp.einsum("nhi,hio->nho", x.reshape(len(x), 2, 3), params["kernel"]).sum(axis=1)


def stacked(params, x):
    return jax.lax.scan(lambda h, kernel: (jax.nn.relu(h @ kernel), None), x, params["kernel"])[0]


def upsampled(params, x):
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_transpose(x, params["kernel"], (2, 2), "SAME", dimension_numbers=numbers)


def turned_twice(params, x):
    return (x @ params["kernel"]) @ params["kernel"].T @ params["kernel"].T


def reversed_kernel(params, x):
    return x @ params["kernel"][::-1]


def kernel(*shape):
    return lambda key: {"kernel": jnp.zeros(shape)}


REFUSED = {
    "an image among others": (lambda: of_linen(joined, (5, 5, 2)), "reads an image among 29 features"),
    "a reversed image": (lambda: of_linen(shuffled, (5, 5, 2)), "reads an image among 27 features"),
    "a norm of every pixel": (lambda: of_linen(normed_pixels, (5, 4, 2)), "reads 5 x 4 x 3 flattened"),
    "tokens of an image": (lambda: of_linen(flattened_tokens, (5, 4, 2)), "reads 5 x 4 x 3 flattened"),
    "one matrix per head": (lambda: model_of(kernel(2, 3, 4), per_head, (6,)), "'dot_general' uses it"),
    "stacked layers": (lambda: model_of(kernel(2, 3, 3), stacked, (3,)), "in parts or repeatedly"),
    "a transposed convolution": (
        lambda: model_of(kernel(3, 3, 2, 2), upsampled, (4, 4, 2)),
        "'conv_general_dilated' uses it",
    ),
    "both ways round": (lambda: model_of(kernel(3, 3), turned_twice, (3,)), "is used in two ways"),
    "a reversed matrix": (lambda: model_of(kernel(3, 3), reversed_kernel, (3,)), "'dot_general' uses it"),
    "a leaf that is not used": (
        lambda: model_of(kernel(3, 3), lambda params, x: x, (3,)),
        "does not influence the outputs",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_pytorch_has_no_layer_for_is_refused(what):
    make, message = REFUSED[what]
    with pytest.raises(LayoutError, match=message) as error:
        find_layouts(make())
    assert "\n" not in str(error.value)


def test_wrong_words_on_flattening_are_refused():
    model = models.mlp((4, 4, 3), 2, hidden=(6,))
    with pytest.raises(ValueError, match=r"flattened says \(4, 4, 4\) .* which has 48 inputs"):
        find_layouts(model, flattened={"hidden": (4, 4, 4)})
    with pytest.raises(ValueError, match=r"flattened has \['hiden'\], which are no layers"):
        find_layouts(model, flattened={"hiden": (4, 4, 3)})
