"""The store of trainings: what comes back is what was written, by the same run, or nothing."""

import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import io

RUN = {"keys": "a", "optimizer": "b"}
ARRAYS = {
    "weights/out/kernel": np.arange(12, dtype=np.float32).reshape(3, 4),
    "half": np.asarray(jnp.arange(3, dtype=jnp.bfloat16)),
    "count": np.array(7, np.int32),
    "is_done": np.array([True, False]),
    "snapshots": np.zeros((2, 0, 3), np.float32),
}


def written(directory, steps=(1, 2, 3)) -> io.TrainingStore:
    store = io.TrainingStore(directory)
    for step in steps:
        store.write("stage", step, RUN, ARRAYS | {"count": np.array(step, np.int32)})
    return store


def test_the_last_step_comes_back_bit_for_bit(tmp_path):
    found = written(tmp_path).read("stage", RUN)
    assert found.keys() == ARRAYS.keys()
    for name, array in (ARRAYS | {"count": np.array(3, np.int32)}).items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)


def test_only_the_last_steps_stay_on_disk(tmp_path):
    written(tmp_path)
    assert sorted(path.name for path in (tmp_path / "stage").iterdir()) == ["2", "3"]


def test_stages_do_not_mix(tmp_path):
    assert written(tmp_path).read("other", RUN) is None


def test_another_run_is_refused_by_the_entry_that_differs(tmp_path):
    store = written(tmp_path)
    with pytest.raises(io.ArtefactError, match=r"belongs to another run: its optimizer is 'b', but .* 'c'"):
        store.read("stage", RUN | {"optimizer": "c"})


def files_of(directory):
    """The list of steps, and all files of the last one."""
    return [
        directory / "stage.json",
        *(path for path in (directory / "stage/3").rglob("*") if path.is_file()),
    ]


def cut(path):
    path.write_bytes(path.read_bytes()[:-2])


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def foreign(path):
    path.write_text("{}")


@pytest.mark.parametrize("damage", [cut, flipped, foreign])
def test_damage_to_any_file_is_refused_in_one_line(tmp_path, damage):
    store = written(tmp_path)
    for path in files_of(tmp_path):
        content = path.read_bytes()
        damage(path)
        with pytest.raises(io.ArtefactError, match=f"{path.name}: expected") as caught:
            store.read("stage", RUN)
        assert "\n" not in str(caught.value)
        path.write_bytes(content)
    assert store.read("stage", RUN)["count"] == 3


def test_a_missing_file_is_named(tmp_path):
    store, gone = written(tmp_path), files_of(tmp_path)[-1]
    gone.unlink()
    with pytest.raises(
        io.ArtefactError, match=f"{gone.name}: expected the file that was written; found nothing"
    ):
        store.read("stage", RUN)


def test_a_step_without_its_entry_is_written_again(tmp_path):
    """As a process leaves it that was killed after Orbax was done and before the list of steps was."""
    store = written(tmp_path, (1, 2))
    known = (tmp_path / "stage.json").read_bytes()
    written(tmp_path, (3,))
    (tmp_path / "stage.json").write_bytes(known)
    assert store.read("stage", RUN)["count"] == 2
    written(tmp_path, (3,))
    assert store.read("stage", RUN)["count"] == 3


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(io.ArtefactError, match="expected to write step 1"):
        io.TrainingStore(tmp_path / "file").write("stage", 1, RUN, ARRAYS)


def test_one_step_is_too_few(tmp_path):
    with pytest.raises(ValueError, match=r"keep must be at least 2.*got 1"):
        io.TrainingStore(tmp_path, keep=1)
