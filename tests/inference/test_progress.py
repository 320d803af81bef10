"""Who hears of progress: a bar where somebody watches, silence elsewhere, files and sinks that ask for it."""

import contextlib
import dataclasses
import importlib.util
import inspect
import io
import json
import logging
import math
import os
import pty
import subprocess
import sys
import types
from pathlib import Path

import jax
import numpy as np
import pytest

from symbnn import compact, inference, sharing
from symbnn.inference import Progress, Run, bar, json_lines, progress_bar, scalars
from symbnn.inference.chains import report
from symbnn.inference.chains.settings import Work
from symbnn.inference.progress import reporting
from symbnn.io import ChunkStore
from tests.inference.cases import conjugate

ROOT = Path(__file__).parents[2]
KEY = jax.random.key(3)
METHODS = ("hmc", "nuts", "mclmc", "ensemble", "variational", "swag", "laplace", "sgmcmc", "dropout")
FUNCTIONS = [
    *(getattr(inference, name) for name in METHODS),
    *(compact.refine, sharing.pretrain, sharing.train_stochastic, sharing.train_shared),
]


def sample(progress="auto", *, num_samples=12, step_size=0.05, num_burnin=8, **settings):
    method = inference.hmc(
        num_chains=2,
        num_samples=num_samples,
        num_burnin=num_burnin,
        chunk_size=4,
        step_size=step_size,
        num_steps=3,
        progress=progress,
        **settings,
    )
    return method(KEY, conjugate().target)


def events(num=3, *, stage="sampling", replayed=0):
    return [
        Progress(stage, done, num, {"acceptance": 0.5, "divergences": 0.0}, done <= replayed)
        for done in range(1, num + 1)
    ]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def watched(monkeypatch, term="xterm"):
    """The error stream as a terminal, in the body of a test: pytest sets its own before that."""
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "120")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    return screen


def told(progress, num=3):
    with reporting(progress) as tell:
        for event in events(num) if tell is not None else ():
            tell(event)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_method_shows_progress_by_default_and_says_what_it_takes(function):
    assert inspect.signature(function).parameters["progress"].default == "auto"
    assert '"auto"' in function.__doc__


def test_nothing_is_said_by_default_where_nobody_watches(capfd):
    sample()
    inference.ensemble(num_members=1, epochs=2, batch_size=10)(KEY, conjugate().target)
    assert capfd.readouterr() == ("", "")


def test_a_terminal_gets_a_bar_with_acceptance(monkeypatch):
    screen = watched(monkeypatch)
    told("auto")
    drawn = screen.getvalue()
    assert "sampling" in drawn
    assert "3/3" in drawn
    assert "acceptance 0.5" in drawn


def test_a_dumb_terminal_and_a_closed_stream_get_nothing(monkeypatch):
    screen = watched(monkeypatch, term="dumb")
    told("auto")
    assert screen.getvalue() == ""
    screen.close()
    told("auto")
    monkeypatch.setattr(sys, "stderr", None)
    told("auto")


def test_the_time_left_is_told_from_the_second_event(monkeypatch):
    now = iter([100.0, 102.0, 104.0])
    monkeypatch.setattr(bar, "time", types.SimpleNamespace(monotonic=lambda: next(now)))
    clock = bar._clock()
    rates = [clock(Progress("sampling", done, 1000, {})) for done in (10, 30, 50)]
    assert rates == [0.0, 10.0, 10.0]
    words = bar._words(Progress("sampling", 50, 1000, {"acceptance": 0.812, "seconds": 3.0}), rates[-1])
    assert words == "50/1000, 10.0/s, 1 min 35 s left, acceptance 0.812"


def test_what_is_read_back_does_not_count_for_the_rate_and_later_stages_begin_at_the_one_before(monkeypatch):
    now = iter([1.0, 1.1, 3.1, 5.1])
    monkeypatch.setattr(bar, "time", types.SimpleNamespace(monotonic=lambda: next(now)))
    clock = bar._clock()
    seen = [
        clock(Progress("burn-in", 500, 900, {}, replayed=True)),
        clock(Progress("burn-in", 800, 900, {}, replayed=True)),
        clock(Progress("burn-in", 900, 900, {})),
        clock(Progress("sampling", 100, 1000, {})),
    ]
    assert seen == pytest.approx([0.0, 0.0, 50.0, 50.0])
    assert "read back" in bar._words(Progress("burn-in", 5, 9, {}, replayed=True), 0.0)


def test_trouble_is_told_only_where_there_is_some():
    calm, bad = ({"acceptance": 0.5, "divergences": value} for value in (0.0, 2.0))
    assert "divergences" not in bar._words(Progress("sampling", 1, 1, calm), 0.0)
    assert "divergences 2" in bar._words(Progress("sampling", 1, 1, bad), 0.0)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (7829.0, "2 h 10 min")]
)
def test_durations_are_in_words(seconds, words):
    assert bar._duration(seconds) == words


def test_the_bar_is_closed_by_an_error(monkeypatch):
    def stopped():
        with reporting("auto") as tell:
            tell(events()[0])
            raise KeyboardInterrupt

    screen = watched(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        stopped()
    # The cursor, which a bar hides, is shown again.
    assert screen.getvalue().rindex("\x1b[?25h") > screen.getvalue().rindex("\x1b[?25l")


def test_without_rich_there_are_lines(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "rich" else find(name))
    screen = watched(monkeypatch)
    told("auto")
    lines = screen.getvalue().splitlines()
    assert [line.split(",")[0] for line in lines] == ["  sampling 1/3", "  sampling 3/3"]


@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_notebook_is_watched_and_has_lines_where_widgets_are_missing(monkeypatch, has_widgets):
    shell = types.SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "rich" or has_widgets or None)
    assert bar.is_interactive(io.StringIO())
    assert bar._can_draw() == has_widgets


def test_a_bar_that_was_asked_for_gives_lines_elsewhere(capsys):
    told(progress_bar(stream="stdout"))
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == "  sampling 1/3, acceptance 0.5"
    assert lines[-1].startswith("  sampling 3/3, ")


def test_a_resumed_run_marks_what_it_reads_back_and_logs_what_is_worth_keeping(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("symbnn.inference.base.SLOW_COMPILATION", 0.0)
    caplog.set_level(logging.INFO, logger="symbnn")
    path, heard = tmp_path / "run.jsonl", []
    progress = (None, heard.append, json_lines(path), "auto")
    sample(progress, num_samples=4, sink=ChunkStore(tmp_path / "chunks"))
    logged = [record.getMessage() for record in caplog.records]
    assert logged[0].startswith("burn-in: the first call, compilation included, took ")
    assert logged[1].startswith("burn-in: ended with step size 0.05 to 0.05, acceptance ")
    assert len(logged) == 2
    caplog.clear()
    sample(progress, num_samples=12, sink=ChunkStore(tmp_path / "chunks"))
    logged = [record.getMessage() for record in caplog.records]
    assert "sampling: goes on with chunk 3; those before it were read back" in logged
    read = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(each["stage"], each["done"], each["replayed"]) for each in read] == [
        *(("burn-in", 4, False), ("burn-in", 8, False), ("sampling", 4, False)),
        *(("burn-in", 4, True), ("burn-in", 8, True), ("sampling", 4, True)),
        *(("sampling", 8, False), ("sampling", 12, False)),
    ]
    assert [event.replayed for event in heard] == [each["replayed"] for each in read]
    assert {"time", "total", "acceptance", "divergences", "step_size", "log_density"} <= read[0].keys()
    assert read[0]["time"] <= read[-1]["time"]


def test_chunks_of_stochastic_gradient_chains_are_marked_too(tmp_path):
    def marks():
        seen = []
        method = inference.sgmcmc(
            num_samples=4,
            step_size=1e-3,
            num_burnin=2,
            thinning=1,
            batch_size=5,
            progress=seen.append,
            sink=ChunkStore(tmp_path),
        )
        method(KEY, conjugate().target)
        return [event.replayed for event in seen]

    assert not any(marks())
    assert all(marks())


def test_numbers_that_json_does_not_know_are_null(tmp_path):
    json_lines(tmp_path / "a.jsonl")(Progress("training", 1, 2, {"loss": math.nan, "other": -math.inf}))
    read = json.loads((tmp_path / "a.jsonl").read_text(), parse_constant=pytest.fail)
    assert (read["loss"], read["other"]) == (None, None)


def test_scalars_are_step_and_named_numbers_without_what_was_read_back():
    seen, all_of_them = [], []
    for event in events(3, replayed=2):
        scalars(lambda *both: seen.append(both))(event)
        scalars(lambda *both: all_of_them.append(both), replayed=True)(event)
    assert seen == [(3, {"sampling/acceptance": 0.5, "sampling/divergences": 0.0})]
    assert [step for step, _ in all_of_them] == [1, 2, 3]


def test_a_tuple_of_nobody_is_nobody():
    with reporting((None, "auto")) as tell:
        assert tell is None


def test_an_own_display_is_opened_for_every_loop_and_closed():
    @dataclasses.dataclass(frozen=True)
    class Display:
        seen: list

        @contextlib.contextmanager
        def open(self):
            self.seen.append("open")
            try:
                yield lambda event: self.seen.append(event.stage)
            finally:
                self.seen.append("closed")

    display = Display([])
    method = inference.swag(rank=2, epochs=2, pretrain_epochs=1, batch_size=5, progress=display)
    method(KEY, conjugate().target)
    assert display.seen == ["open", "pretraining", "closed", "open", "swag", "swag", "closed"]


SCRIPT = """
import sys
from symbnn.io import ChunkStore
from tests.inference.test_progress import sample
sample(num_samples=400, sink=ChunkStore(sys.argv[1]))
sample(num_samples=800, sink=ChunkStore(sys.argv[1]))
try:
    sample("always")
except ValueError as error:
    print(error)
"""


def test_on_a_real_terminal_the_bar_has_acceptance_and_time_left_and_marks_a_resume(tmp_path):
    controller, screen = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        *(-1, None, subprocess.DEVNULL, subprocess.PIPE, screen),
        env=environment,
        cwd=tmp_path,
    )
    os.close(screen)
    drawn = b""
    with contextlib.suppress(OSError):  # what reading gives when the last writer is gone
        while part := os.read(controller, 4096):
            drawn += part
    os.close(controller)
    out, _ = process.communicate()
    assert process.returncode == 0, drawn.decode()
    assert out == b"progress must be 'auto', a callable, a tuple of such, or None; got 'always'\n"
    text = drawn.decode()
    assert "compiling" in text
    assert "s left, acceptance" in text
    assert "sampling" in text
    assert "400/400" in text
    assert "read back" in text
    assert "800/800" in text


def test_divergences_among_the_draws_are_logged(caplog):
    tally = report.Tally(*(np.array([4.0, value]) for value in (4.0, 2.0, 3.0, 1.0, 9.0)))
    tallies = {"burn-in": [tally], "sampling": [tally._replace(divergences=np.array([0.0, 3.0]))]}
    for work in (Work("burn-in", 0, 4), Work("sampling", 8, 12)):
        report.log_chunk(Run(num_burnin=8), work, tallies, np.ones(2), np.array([6, 7]))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "sampling: 3 of 8 transitions diverged, of chains [7]")
    ]


def test_the_library_is_quiet_unless_it_is_asked():
    assert any(isinstance(each, logging.NullHandler) for each in logging.getLogger("symbnn").handlers)
