"""What counts as the host's own work, on a planted file and a clock that is moved by hand."""

import importlib.util
import threading

import pytest

from tests.accelerators.host import HOST
from tests.accelerators.sites import LIBRARY
from tests.bench.through_host import Stopwatch, solving

PLANTED = """
import operator
import threading
from types import SimpleNamespace

np = SimpleNamespace(linalg=SimpleNamespace(solve=operator.call))


def alone(wait):
    np.linalg.solve(wait)
    wait()


def with_callback(wait):
    def called_back():
        wait()

    np.linalg.solve(called_back)


def on_threads(wait):
    threads = [threading.Thread(target=in_thread, args=(wait,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def in_thread(wait):
    np.linalg.solve(
        wait,
    )
"""


@pytest.fixture
def planted(tmp_path):
    path = tmp_path / "planted.py"
    path.write_text(PLANTED)
    module_spec = importlib.util.spec_from_file_location("planted", path)
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    return module


class Clock:
    """Moved by hand."""

    def __init__(self):
        self.now = 0.0

    def move(self):
        self.now += 1.0


def seconds(tmp_path, run, clock, wait):
    with Stopwatch(tmp_path, {"planted.py"}, lambda: clock.now) as watch:
        run(wait)
    wait()
    return watch.seconds["planted.py"]


def test_only_the_statement_that_solves_counts(planted, tmp_path):
    clock = Clock()
    assert seconds(tmp_path, planted.alone, clock, clock.move) == 1.0
    assert clock.now == 3.0


def test_what_a_solver_calls_back_does_not_count(planted, tmp_path):
    clock = Clock()
    assert seconds(tmp_path, planted.with_callback, clock, clock.move) == 0.0


def test_solvers_side_by_side_count_once(planted, tmp_path):
    """Both threads are inside before the clock moves, once."""
    clock, inside, moved = Clock(), threading.Barrier(2, timeout=60), threading.Barrier(2, timeout=60)

    def wait():
        if threading.current_thread() is threading.main_thread():
            return
        if inside.wait() == 0:
            clock.move()
        moved.wait()

    assert seconds(tmp_path, planted.on_threads, clock, wait) == 1.0


def test_every_place_has_a_statement_that_solves():
    """Else its share would be nothing, whatever it does."""
    assert {file for file in HOST if not solving(LIBRARY / file)} == set()
