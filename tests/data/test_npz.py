"""Arrays that a user brings: read as they are, held out by seed, refused in a line that names the file."""

import numpy as np
import pytest

from symbnn import data
from symbnn.data import DataError

GENERATOR = np.random.default_rng(0)
INPUTS = GENERATOR.normal(size=(30, 4))
LABELS = np.arange(30) % 3


@pytest.fixture
def written(tmp_path):
    def write(**arrays):
        np.savez(tmp_path / "own.npz", **arrays)
        return tmp_path / "own.npz"

    return write


def test_test_arrays_are_the_test_part_and_everything_else_is_read_from_the_file(written):
    found = data.from_npz(
        written(inputs=INPUTS, targets=LABELS, test_inputs=INPUTS[:5] + 1, test_targets=LABELS[:5])
    )
    assert (found.name, found.num_classes, found.input_shape) == ("own.npz", 3, (4,))
    np.testing.assert_array_equal(found.train.inputs, INPUTS.astype(np.float32))
    np.testing.assert_array_equal(found.train.targets, LABELS)
    np.testing.assert_array_equal(found.test.inputs, (INPUTS[:5] + 1).astype(np.float32))
    assert found.train.inputs.dtype == np.float32
    assert found.train.targets.dtype == found.test.targets.dtype == np.int32


def test_without_test_arrays_a_fifth_is_held_out_by_seed_and_said(written):
    path = written(inputs=np.arange(30.0)[:, None], targets=LABELS)
    one, same, other = (data.from_npz(path, seed=seed) for seed in (0, 0, 1))
    assert one.name == "own.npz (6 of 30 examples held out to test)"
    assert len(one.test.targets) == 6
    both = np.concatenate([one.train.inputs, one.test.inputs])
    np.testing.assert_array_equal(np.sort(both, axis=0).ravel(), np.arange(30))
    # Every example keeps its own label.
    for split in one.train, one.test:
        np.testing.assert_array_equal(split.targets, split.inputs.ravel() % 3)
    np.testing.assert_array_equal(one.test.inputs, same.test.inputs)
    assert not np.array_equal(one.test.inputs, other.test.inputs)


def test_num_test_is_how_many_are_held_out_and_num_train_how_many_of_the_rest_are_kept(written):
    found = data.from_npz(written(inputs=INPUTS, targets=LABELS), num_train=10, num_test=4)
    assert (len(found.train.targets), len(found.test.targets)) == (10, 4)
    rows = {tuple(row) for row in found.train.inputs} & {tuple(row) for row in found.test.inputs}
    assert not rows


def test_bytes_are_pixels(written):
    images = GENERATOR.integers(0, 256, (30, 4, 4, 1), dtype=np.uint8)
    images[0, 0, 0], images[0, 0, 1] = 0, 255
    whole = written(inputs=images, targets=LABELS, test_inputs=images, test_targets=LABELS)
    found = data.from_npz(whole)
    np.testing.assert_array_equal(found.train.inputs, images.astype(np.float32) / np.float32(255))
    assert data.from_npz(whole, flatten=True).input_shape == (16,)
    small = data.from_npz(whole, resize=2).train.inputs
    blocks = images.reshape(30, 2, 2, 2, 2) / 255
    np.testing.assert_allclose(small[..., 0], blocks.mean((2, 4)), rtol=1e-5)


def test_floating_point_targets_are_those_of_a_regression(written):
    found = data.from_npz(written(inputs=INPUTS, targets=INPUTS[:, 0]))
    assert found.num_classes is None
    np.testing.assert_array_equal(found.train.targets[:, 0], found.train.inputs[:, 0])


def with_nan():
    changed = INPUTS.copy()
    changed[3, 1] = np.nan
    return changed


BOTH = {"inputs": INPUTS, "targets": LABELS}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"inputs": INPUTS}, "expected an array 'targets'; found 'inputs'; save it with np.savez"),
        ({}, "expected an array 'inputs'; found nothing"),
        ({**BOTH, "test_inputs": INPUTS}, "expected an array 'test_targets'"),
        ({**BOTH, "test_input": INPUTS}, "found also 'test_input'; did you mean 'test_inputs'"),
        ({**BOTH, "targets": LABELS.astype(object)}, "Python objects, which are pickled and not read"),
        ({**BOTH, "inputs": INPUTS.astype(str)}, "expected numbers in 'inputs'; found <U"),
        ({**BOTH, "inputs": INPUTS + 1j}, "expected numbers in 'inputs'; found complex128"),
        ({**BOTH, "inputs": with_nan()}, r"1 of 120 that are not, the first at \(3, 1\): nan"),
        ({**BOTH, "inputs": 1e300 * INPUTS}, "120 of 120 that are not"),
        ({**BOTH, "targets": LABELS[:7]}, r"found shapes \(7,\) and \(30, 4\); one target an example"),
        ({**BOTH, "inputs": INPUTS[:, 0]}, r"found \(30,\); one row an example"),
        ({"inputs": INPUTS[:0], "targets": LABELS[:0]}, r"found \(0, 4\)"),
        ({**BOTH, "targets": LABELS + 1}, "labels 0 to K - 1; found the labels 1, 2, 3; renumber"),
        ({**BOTH, "targets": 2 * LABELS}, "found the labels 0, 2, 4"),
        ({**BOTH, "targets": LABELS - 1}, "found the labels -1, 0, 1"),
        ({**BOTH, "targets": 0 * LABELS}, "at least two classes"),
        ({**BOTH, "targets": np.eye(3, dtype=int)[LABELS]}, r"found \(30, 3\); a label is one integer"),
        ({**BOTH, "test_inputs": INPUTS[:, :2], "test_targets": LABELS}, r"test_inputs like inputs"),
        ({**BOTH, "test_inputs": INPUTS, "test_targets": 1.0 * LABELS}, "test_targets like targets"),
        ({"inputs": INPUTS[:2], "targets": LABELS[:2]}, "2 examples, of which 0 would be held out"),
    ],
)
def test_what_cannot_be_used_is_named(written, arrays, message):
    path = written(**arrays)
    with pytest.raises(DataError, match=message) as raised:
        data.from_npz(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_train": 25}, "num_train must be between 1 and 24; got 25"),
        ({"num_test": 30}, "30 would be held out"),
        ({"resize": 2}, r"expected images \(n, height, width, channels\).*found inputs \(24, 4\)"),
    ],
)
def test_settings_that_do_not_fit_are_named(written, settings, message):
    with pytest.raises(ValueError, match=message):
        data.from_npz(written(**BOTH), **settings)


def test_other_files_are_named(written, tmp_path):
    whole = written(**BOTH).read_bytes()
    np.save(tmp_path / "one.npy", INPUTS)
    contents = {
        "a single array": (tmp_path / "one.npy").read_bytes(),
        "cut or of another kind": b"inputs,targets\n1,2\n",
        "cut or of another": whole[:300],
        "that is cut": b"",
        "Bad CRC": whole[:200] + b"\0" * 50 + whole[250:],
    }
    for message, content in contents.items():
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(DataError, match=message):
            data.from_npz(tmp_path / "other")
    with pytest.raises(DataError, match="found a folder"):
        data.from_npz(tmp_path)
    with pytest.raises(DataError, match="No such file"):
        data.from_npz(tmp_path / "absent.npz")


def test_a_pickle_is_not_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return (tmp_path.joinpath("ran").touch, ())

    trap = np.empty(1, object)
    trap[0] = Trap()
    np.savez(tmp_path / "trap.npz", inputs=trap, targets=LABELS)
    with pytest.raises(DataError, match="Python objects"):
        data.from_npz(tmp_path / "trap.npz")
    assert not (tmp_path / "ran").exists()
