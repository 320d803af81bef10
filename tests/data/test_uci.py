"""UCI tables, standardised and damaged."""

import numpy as np
import pytest
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from symbnn import data
from symbnn.data.uci import NUM_ROWS


@pytest.fixture
def uci_folder(tmp_path, monkeypatch):
    monkeypatch.setitem(NUM_ROWS, "yacht", 50)
    folder = tmp_path / "uci" / "yacht"
    folder.mkdir(parents=True)
    table = np.random.default_rng(0).normal(3, 5, (50, 4))
    table[:, 1] = 288.123
    np.savetxt(folder / "data.txt", table)
    (folder / "index_features.txt").write_text("0\n1\n2\n")
    (folder / "index_target.txt").write_text("3\n")
    return folder


def test_uci_sets_are_standardised_by_their_training_part(tmp_path, uci_folder):
    dataset = data.load("uci/yacht", data_dir=tmp_path, seed=3)
    assert dataset.num_classes is None
    assert (dataset.train.inputs.shape, dataset.test.targets.shape) == ((45, 3), (5, 1))
    for values in (dataset.train.inputs[:, [0, 2]], dataset.train.targets):
        np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-5)
        np.testing.assert_allclose(values.std(axis=0), 1, atol=1e-5)
    np.testing.assert_allclose(dataset.train.inputs[:, 1], 0, atol=1e-4)
    table = np.loadtxt(uci_folder / "data.txt")
    back = np.concatenate([split.targets for split in (dataset.train, dataset.test)])
    back = back * dataset.target_scale.std + dataset.target_scale.mean
    np.testing.assert_allclose(np.sort(back[:, 0]), np.sort(table[:, 3]), rtol=1e-4, atol=1e-4)
    other = data.load("uci/yacht", data_dir=tmp_path, seed=4)
    assert not np.array_equal(other.test.inputs, dataset.test.inputs)


@pytest.mark.parametrize(("test_share", "size"), [(None, 0.1), (0.2, 0.2)])
def test_parts_are_those_of_scikit_learn(tmp_path, uci_folder, test_share, size):
    table = np.loadtxt(uci_folder / "data.txt")
    parts = train_test_split(table[:, [0, 2]], table[:, 3:], test_size=size, random_state=7)
    dataset = data.load("uci/yacht", data_dir=tmp_path, seed=7, test_share=test_share)
    for train, test, found in (
        (parts[0], parts[1], (dataset.train.inputs[:, [0, 2]], dataset.test.inputs[:, [0, 2]])),
        (parts[2], parts[3], (dataset.train.targets, dataset.test.targets)),
    ):
        scaler = StandardScaler().fit(train)
        np.testing.assert_allclose(found[0], scaler.transform(train), atol=1e-5)
        np.testing.assert_allclose(found[1], scaler.transform(test), atol=1e-5)


def test_diabetes_needs_no_file(monkeypatch):
    monkeypatch.delenv("SYMBNN_DATA_DIR", raising=False)
    dataset = data.load("diabetes", test_share=0.2, num_test=50)
    assert (dataset.train.inputs.shape, dataset.test.targets.shape) == ((353, 10), (50, 1))
    np.testing.assert_allclose(dataset.train.inputs.std(axis=0), 1, atol=1e-4)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("data.txt", "1 2 3 4\n1 2 3\n", "expected rows of numbers"),
        ("data.txt", "1 2 3 4\n", "expected 50 rows; found 1"),
        ("data.txt", "1 2 nan 4\n" * 50, "expected finite numbers; found row 0"),
        ("data.txt", "1 2 x 4\n", "expected rows of numbers"),
        ("index_features.txt", "0 1 4", "column numbers from 0 to 3"),
        ("index_target.txt", "0.5", "column numbers from 0 to 3"),
        ("index_target.txt", None, "expected column numbers"),
    ],
)
def test_wrong_uci_files_are_named(tmp_path, uci_folder, file, content, message):
    (uci_folder / file).unlink() if content is None else (uci_folder / file).write_text(content)
    with pytest.raises(data.DataError, match=f"{file}: .*{message}"):
        data.load("uci/yacht", data_dir=tmp_path)
