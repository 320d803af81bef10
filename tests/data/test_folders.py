"""Images by class in folders: Tiny ImageNet, ImageNet and any other."""

import shutil

import numpy as np
import pytest
from PIL import Image

from symbnn import data
from symbnn.data.images import IMAGES


def save_image(path, colour, size=(64, 64)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def tiny_imagenet(tmp_path, monkeypatch):
    """Three classes of four images, and three to validate; a class is a colour."""
    monkeypatch.delenv("SYMBNN_DATA_DIR", raising=False)
    small = IMAGES["tiny_imagenet"]._replace(num_classes=3, num_train=12, num_test=3)
    monkeypatch.setitem(IMAGES, "tiny_imagenet", small)
    root = tmp_path / "tiny_imagenet" / "tiny-imagenet-200"
    classes = ["n03", "n01", "n02"]
    lines = []
    for label, name in enumerate(classes):
        for index in range(4):
            save_image(root / "train" / name / "images" / f"{name}_{index}.JPEG", (80 * label, 0, 0))
        save_image(root / "val" / "images" / f"val_{label}.JPEG", (80 * label, 0, 0))
        lines.append(f"val_{label}.JPEG\t{name}\t0\t0\t1\t1")
    (root / "wnids.txt").write_text("\n".join(classes) + "\n")
    (root / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    return root


def test_tiny_imagenet_is_read_by_its_own_class_order(tmp_path, tiny_imagenet):
    dataset = data.load("tiny_imagenet", data_dir=tmp_path, resize=16)
    assert dataset.train.inputs.shape == (12, 16, 16, 3)
    for split in (dataset.train, dataset.test):
        # JPEG keeps a plain colour to within a few grey levels.
        np.testing.assert_allclose(split.inputs[..., 0].mean(axis=(1, 2)) * 255, 80 * split.targets, atol=4)


def test_validation_images_alone_need_no_training_images(tmp_path, tiny_imagenet):
    shutil.rmtree(tiny_imagenet / "train")
    dataset = data.load("tiny_imagenet", data_dir=tmp_path, test_only=True)
    assert (len(dataset.train.targets), len(dataset.test.targets)) == (0, 3)


def test_broken_image_folders_are_named(tmp_path, tiny_imagenet):
    bad = tiny_imagenet / "train" / "n01" / "images" / "n01_2.JPEG"
    whole = bad.read_bytes()
    bad.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(data.DataError, match=r"n01_2\.JPEG: expected an image"):
        data.load("tiny_imagenet", data_dir=tmp_path)
    bad.unlink()
    with pytest.raises(data.DataError, match="train: expected 12 images of 3 classes; found 11 of 3"):
        data.load("tiny_imagenet", data_dir=tmp_path)
    bad.write_bytes(whole)
    shutil.rmtree(tiny_imagenet / "train" / "n02")
    with pytest.raises(data.DataError, match="train: expected 3 class folders; found 2, without n02"):
        data.load("tiny_imagenet", data_dir=tmp_path)
    (tiny_imagenet / "wnids.txt").write_text("n01 n02 n04")
    with pytest.raises(data.DataError, match=r"val_annotations\.txt: expected file and class in line 1"):
        data.load("tiny_imagenet", data_dir=tmp_path)
    (tiny_imagenet / "wnids.txt").unlink()
    with pytest.raises(data.DataError, match=r"wnids\.txt: expected a text file"):
        data.load("tiny_imagenet", data_dir=tmp_path)


def test_imagenet_is_listed_and_a_subset_decoded(tmp_path, monkeypatch):
    small = IMAGES["imagenet"]._replace(num_classes=2, num_train=4, num_test=2)
    monkeypatch.setitem(IMAGES, "imagenet", small)
    root = tmp_path / "imagenet"
    for label, name in enumerate(("n1", "n2")):
        for index in range(2):
            save_image(root / "train" / name / f"{index}.JPEG", (0, 200 * label, 0), size=(50, 30))
        save_image(root / "val" / name / "0.JPEG", (0, 200 * label, 0), size=(20, 60))
    dataset = data.load("imagenet", data_dir=tmp_path, num_train=3, resize=24)
    assert dataset.train.inputs.shape == (3, 24, 24, 3)
    np.testing.assert_allclose(
        dataset.test.inputs[..., 1].mean(axis=(1, 2)) * 255, 200 * dataset.test.targets, atol=4
    )
    listed = data.image_folder(root / "train")
    assert listed.classes == ("n1", "n2")
    assert listed.read(np.asarray([3]), side=8).inputs.shape == (1, 8, 8, 3)
    monkeypatch.setattr(data.folders, "MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="ask for fewer"):
        data.load("imagenet", data_dir=tmp_path)


def test_images_keep_their_centre(tmp_path):
    picture = np.zeros((40, 80, 3), np.uint8)
    picture[:, 20:60] = 255
    Image.fromarray(picture).save(tmp_path / "wide.png")
    assert data.folders.read_image(tmp_path / "wide.png", 40).min() == 1.0
