"""Augmentation: what a change leaves alone, what it can reach, and colours against the standard library's."""

import colorsys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import configs
from configs.weight_sharing.parts import Pretraining
from experiments.common.problem import SCALES
from experiments.weight_sharing.augmentation import (
    Augmented,
    Change,
    Crop,
    Flip,
    Jitter,
    Shift,
    add_contrast,
    augment,
    brighten,
    changes_of,
    saturate,
    turn_hue,
)
from symbnn.density import Batch

CHANGES = {
    "shift": Shift(2),
    "reflected shift": Shift(2, reflect=True),
    "flip": Flip(),
    "crop": Crop(0.08),
    "jitter": Jitter(0.4, 0.4, 0.4, 0.1),
}
IMAGES = np.random.default_rng(5).uniform(size=(16, 8, 8, 3)).astype(np.float32)
KEY = jax.random.key(0)

# Compiled whole, and results as NumPy's: operation by operation JAX compiles many times as long.
_augment = jax.jit(augment, static_argnums=2)
_recolour = jax.jit(lambda function, images, amounts: function(images, amounts), static_argnums=0)


def change_images(key: jax.Array, images: np.ndarray, *changes: Change) -> np.ndarray:
    return np.asarray(_augment(key, jnp.asarray(images), changes))


def recolour(function: Callable[..., jax.Array], images: np.ndarray, amounts: np.ndarray) -> np.ndarray:
    return np.asarray(_recolour(function, images, np.asarray(amounts, np.float32).reshape(-1, 1, 1, 1)))


def sizes_of(crop: Crop, key: jax.Array, num: int) -> np.ndarray:
    return np.asarray(jax.jit(crop.sizes, static_argnums=1)(key, num))


# Laws of all


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_random_in_the_key_and_in_the_image_and_stays_in_range(name):
    same = np.broadcast_to(IMAGES[:1], IMAGES.shape)
    changed = change_images(KEY, same, CHANGES[name])
    assert changed.shape == same.shape
    assert changed.dtype == same.dtype
    np.testing.assert_array_equal(changed, change_images(KEY, same, CHANGES[name]))
    assert (changed != change_images(jax.random.key(1), same, CHANGES[name])).any()
    assert (changed != changed[:1]).any(), "all images were changed alike"
    assert 0.0 <= changed.min() <= changed.max() <= 1.0 + 1e-6


def test_changes_are_hashable_and_follow_one_another():
    assert hash(Crop(0.08)) == hash(CHANGES["crop"])
    first, second = jax.random.split(KEY)
    both = change_images(KEY, IMAGES, Shift(1), Flip())
    np.testing.assert_array_equal(both, jax.jit(Flip())(second, jax.jit(Shift(1))(first, IMAGES)))
    np.testing.assert_array_equal(change_images(KEY, IMAGES), IMAGES)


def test_an_augmented_loss_sees_changed_images_and_has_a_gradient():
    def loss(weights, statistics, batch, key):
        return jnp.mean((jnp.tensordot(batch.inputs, weights, 3) - batch.targets) ** 2), statistics

    changes = (CHANGES["crop"], CHANGES["jitter"])
    augmented = Augmented(loss, changes)
    assert augmented == Augmented(loss, changes)
    batch, weights = Batch(jnp.asarray(IMAGES), jnp.ones(16)), jnp.full((8, 8, 3), 0.01)
    (value, _), gradient = jax.jit(jax.value_and_grad(augmented, has_aux=True))(weights, {}, batch, KEY)
    assert np.isfinite(value)
    assert np.isfinite(np.asarray(gradient)).all()
    assert value != loss(weights, {}, batch, KEY)[0]


# Moved and mirrored


def test_a_shifted_and_mirrored_image_is_one_of_all_that_can_be():
    images = np.arange(2 * 5 * 6 * 1, dtype=np.float32).reshape(2, 5, 6, 1) + 1
    np.testing.assert_array_equal(change_images(KEY, images, Shift(0)), images)
    for reflect, mode in ((False, "constant"), (True, "reflect")):
        ours = np.pad(images[0, :, :, 0], 1, mode=mode)
        options = {
            (y, x, flip): ours[y : y + 5, x : x + 6][:, :: -1 if flip else 1]
            for y in range(3)
            for x in range(3)
            for flip in (False, True)
        }
        seen = set()
        for seed in range(20):
            moved = change_images(jax.random.key(seed), images, Shift(1, reflect), Flip())[0, :, :, 0]
            matches = [option for option, image in options.items() if np.array_equal(image, moved)]
            assert len(matches) == 1
            seen.update(matches)
        assert len(seen) > 8


def test_mirroring_leaves_symmetric_images_and_about_half_of_the_others():
    symmetric = IMAGES + IMAGES[:, :, ::-1]
    np.testing.assert_array_equal(change_images(KEY, symmetric, Flip()), symmetric)
    many = np.broadcast_to(IMAGES[:1], (400, 8, 8, 3))
    share = float((change_images(KEY, many, Flip()) == many).all(axis=(1, 2, 3)).mean())
    assert share == pytest.approx(0.5, abs=5 * 0.5 / 20)


# Cropped


def test_a_crop_of_everything_is_the_image():
    np.testing.assert_array_equal(change_images(KEY, IMAGES, Crop(1.0, widest=1.0)), IMAGES)


def test_a_crop_is_the_part_it_says():
    """On a ramp that is linear in both coordinates interpolation is exact: corners give size and place."""
    side, crop = 16, Crop(0.3)
    centres = (np.arange(side, dtype=np.float32) + 0.5) / side
    ramp = np.stack(np.meshgrid(centres, centres, indexing="ij"), axis=-1)
    cut = np.asarray(jax.jit(crop)(KEY, np.broadcast_to(ramp, (50, side, side, 2))))
    key_size, _ = jax.random.split(KEY)
    # Inner pixels alone: beyond the centre of the outermost the ramp is cut off flat.
    first, last = cut[:, 2, 2], cut[:, -3, -3]
    inside = ((cut > 0.5 / side + 1e-6) & (cut < 1 - 0.5 / side - 1e-6)).all(axis=(1, 2))
    assert inside.any()
    sizes = sizes_of(crop, key_size, 50)
    np.testing.assert_allclose(((last - first) * side / (side - 5))[inside], sizes[inside], atol=1e-5)


def test_sizes_of_crops_have_the_area_and_shape_asked_for():
    sizes = sizes_of(Crop(0.08), KEY, 4000).astype(np.float64)
    area, ratio = sizes.prod(1), sizes[:, 1] / sizes[:, 0]
    assert sizes.max() <= 1.0
    assert 0.08 - 1e-6 <= area.min() < 0.1
    assert area.max() > 0.95
    assert 3 / 4 - 1e-5 <= ratio.min() < 0.76
    assert 1.32 < ratio.max() <= 4 / 3 + 1e-5
    # Below 3/4 of the area every shape fits, so there it is uniform; five standard errors.
    small = area[area < 0.75]
    assert small.mean() == pytest.approx((0.08 + 0.75) / 2, abs=5 * 0.67 / np.sqrt(12 * len(small)))
    assert np.log(ratio).mean() == pytest.approx(0.0, abs=5 * np.log(4 / 3) / np.sqrt(3 * 4000))


def test_what_never_fits_stays_whole():
    # All of the area, in shapes that are never square.
    np.testing.assert_array_equal(sizes_of(Crop(1.0, widest=2.0), KEY, 100), np.ones((100, 2)))


def test_crops_stay_within_the_range_of_their_image_and_keep_constant_ones():
    cut = change_images(KEY, IMAGES, CHANGES["crop"])
    low, high = IMAGES.min(axis=(1, 2), keepdims=True), IMAGES.max(axis=(1, 2), keepdims=True)
    assert ((cut >= low - 1e-6) & (cut <= high + 1e-6)).all()
    constant = np.full((16, 8, 8, 3), 0.3, np.float32)
    np.testing.assert_allclose(change_images(KEY, constant, CHANGES["crop"]), constant, rtol=1e-5)


# Colours


def test_hue_is_turned_as_the_standard_library_turns_it():
    amounts = np.linspace(-0.5, 0.5, 16)
    turned = recolour(turn_hue, IMAGES, amounts)
    for image, amount, found in zip(IMAGES.astype(float), amounts, turned, strict=True):
        for pixel, ours in zip(image[0], found[0], strict=True):
            hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
            expected = colorsys.hsv_to_rgb((hue + amount) % 1.0, saturation, value)
            np.testing.assert_allclose(ours, expected, atol=2e-6)


def test_pure_colours_turn_into_one_another():
    red, yellow, green, blue = ([1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1])
    images = np.array([red, red, blue, green], np.float32)[:, None, None]
    turned = recolour(turn_hue, images, np.array([1 / 6, 1 / 3, 1 / 3, -1 / 3]))
    np.testing.assert_allclose(turned[:, 0, 0], np.array([yellow, green, red, red]), atol=1e-6)


def test_brightness_contrast_and_saturation_have_their_fixed_points():
    brighter = recolour(brighten, IMAGES, np.full(16, 0.25))
    np.testing.assert_allclose(brighter, 1.25 * IMAGES, rtol=1e-6)
    # No contrast left is the mean grey, no saturation left the grey of each pixel.
    flat = recolour(add_contrast, IMAGES, np.full(16, -1.0))
    np.testing.assert_allclose(flat, np.broadcast_to(flat[:, :1, :1, :1], flat.shape), atol=1e-6)
    grey = recolour(saturate, IMAGES, np.full(16, -1.0))
    np.testing.assert_allclose(grey, np.broadcast_to(grey[..., :1], grey.shape), atol=1e-6)
    np.testing.assert_allclose(grey.mean(axis=(1, 2, 3)), flat.mean(axis=(1, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(recolour(saturate, grey, np.full(16, 0.4)), grey, atol=1e-6)
    np.testing.assert_allclose(recolour(turn_hue, grey, np.full(16, 0.3)), grey, atol=1e-6)


def test_no_jitter_changes_nothing_and_grey_stays_grey():
    np.testing.assert_allclose(change_images(KEY, IMAGES, Jitter(0.0, 0.0, 0.0, 0.0)), IMAGES, atol=1e-6)
    grey = np.broadcast_to(IMAGES[..., :1], IMAGES.shape)
    found = change_images(KEY, grey, CHANGES["jitter"])
    np.testing.assert_allclose(found, np.broadcast_to(found[..., :1], found.shape), atol=1e-5)
    assert 0.0 <= found.min() <= found.max() <= 1.0


def test_normalised_images_are_jittered_as_their_pixels_are():
    mean, std = SCALES["imagenet"]
    settings = Pretraining(jitter=(0.4, 0.4, 0.4, 0.1))
    (plain,), (scaled,) = changes_of(settings, "cifar10"), changes_of(settings, "imagenet")
    expected = (change_images(KEY, IMAGES, plain) - mean) / std
    np.testing.assert_allclose(change_images(KEY, (IMAGES - mean) / std, scaled), expected, atol=1e-4)


# Configs


def test_configs_augment_as_the_paper_says():
    known = configs.STUDIES["weight_sharing"].configs
    found = {name: changes_of(config.pretraining, config.data.name) for name, (_, config) in known.items()}
    assert found["digits"] == found["debug"] == ()
    assert found["mnist_lenet"] == found["mnist_resnet20"] == (Shift(2),)
    for name in ("resnet20", "resnet20_pretrained", "resnet18"):
        assert found[f"cifar10_{name}"] == (Shift(4), Flip())
    assert found["cifar100_resnet18"] == found["cifar100_wrn28_10"] == (Shift(4, reflect=True), Flip())
    for name in ("imagenet_resnet18", "imagenet_resnet50", "imagenet_vit_b16"):
        crop, flip, jitter = found[name]
        assert (crop, flip) == (Crop(0.08), Flip())
        assert (jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue) == (0.4, 0.4, 0.4, 0.1)
