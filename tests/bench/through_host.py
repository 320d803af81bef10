"""Share of a call's time in which the host solves something itself: `python -m tests.bench.through_host`.

The places are those that `tests.accelerators.host` names. A statement that calls a solver there counts from
its first line to its last, on whatever thread, but for what it calls back in such a file, and only once where
several threads solve. Tracing makes Python a little slower, so shares are too small rather than too large.
"""

import ast
import functools
import json
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import numpy as np

from symbnn import compact, density, inference, models, sharing, symmetry, tree
from tests.accelerators.host import HOST, SOLVERS
from tests.accelerators.sites import LIBRARY
from tests.bench.bench_align import SIZES, residual_network
from tests.bench.bench_inference import network
from tests.networks import mlp_params, mlp_spec

KEY = jax.random.key(0)
RESNETS, ASSIGNMENT = "aligning 4 ResNet-18s", "symmetry/alignment/search/assignment.py"
Run = Callable[[], Any]


class Stopwatch:
    """Seconds in which a file's solvers are at work, by file."""

    def __init__(
        self, library: Path, files: set[str], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.clock = clock
        self.seconds: Counter[str] = Counter()
        self._names = {str(library / file): file for file in files}
        self._at_work: Counter[str] = Counter()
        self._since: dict[str, float] = {}
        self._stacks: dict[int, list[str | None]] = defaultdict(list)
        self._lock = threading.Lock()

    def __enter__(self) -> "Stopwatch":
        threading.settrace(self._called)
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in self._names:
            return None
        stack = self._stacks[threading.get_ident()]
        self._note(stack, lambda: stack.append(None))
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, _: Any) -> Any:
        path, stack = frame.f_code.co_filename, self._stacks[threading.get_ident()]
        if event == "line":
            which = self._names[path] if frame.f_lineno in solving(Path(path)) else None
            self._note(stack, lambda: stack.__setitem__(-1, which))
        elif event == "return":
            self._note(stack, stack.pop)
        return self._stepped

    def _note(self, stack: list[str | None], change: Callable[[], Any]) -> None:
        """Change the stack of a thread; what its last entry says is what the thread is at."""
        before = stack[-1] if stack else None
        change()
        after = stack[-1] if stack else None
        if before == after:
            return
        with self._lock:
            now = self.clock()
            if before is not None:
                self._at_work[before] -= 1
                if not self._at_work[before]:
                    self.seconds[before] += now - self._since[before]
            if after is not None:
                if not self._at_work[after]:
                    self._since[after] = now
                self._at_work[after] += 1


@functools.cache
def solving(path: Path) -> set[int]:
    """Lines of the statements of a file that call a solver of the host."""
    program = ast.parse(path.read_text(encoding="utf-8"))
    names = {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(program)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (getattr(node, "module", None) or alias.name).split(".")[0] in SOLVERS
    }
    return {
        line
        for node in ast.walk(program)
        if isinstance(node, ast.stmt) and not hasattr(node, "body")
        if any(_calls(part, names) for part in ast.walk(node))
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def _calls(node: ast.AST, names: set[str]) -> bool:
    if not isinstance(node, ast.Call):
        return False
    function = ast.unparse(node.func)
    return function.startswith("np.linalg.") or function.split(".")[0].split("(")[0] in names


def cases() -> Iterator[tuple[str, Run]]:
    """Calls at honest sizes, each of which has been made before, so that it is compiled."""
    perceptrons = jax.vmap(lambda key: mlp_params(SIZES, key))(jax.random.split(KEY, 17))
    spec = mlp_spec(SIZES, tree.take(perceptrons, 0))
    yield "aligning 16 networks 784-512-512-512-10", _aligning(spec, perceptrons)
    model = models.resnet18((32, 32, 3), 10)
    yield RESNETS, _aligning(model.spec, jax.vmap(model.init)(jax.random.split(KEY, 5)))
    residual, weights = residual_network()
    yield "least mass of a ResNet-18 without normalisation", lambda: symmetry.balance(residual, weights)
    small = network(64, 32, 1_297)
    inputs, params = small.data.inputs[:256], small.init(KEY)
    yield (
        "certificate of 64-32-10",
        lambda: symmetry.completeness(small.model.spec, small.model.apply, params, inputs),
    )
    kept = jax.vmap(small.init)(jax.random.split(KEY, 400))
    yield "k-means of 400 networks 64-32-10", lambda: compact.k_means(KEY, kept, 8)
    yield "Stage 2 of weight sharing, ResNet-20, 255 Gaussians", _sharing
    yield "HMC of 64-32-10, four chains of 20 draws", _sampling(small)


def _aligning(spec: symmetry.SymmetrySpec, networks: Any) -> Run:
    reference, others = tree.take(networks, 0), tree.take(networks, slice(1, None))
    return lambda: symmetry.align(spec, others, reference=reference).samples


def _sharing() -> Any:
    mean = models.resnet20((32, 32, 3), 10).init(KEY)
    means = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(mean)])
    stds = 0.03 + 1e-3 * np.random.default_rng(0).normal(size=len(means)).astype(np.float32)
    points = np.stack([means, stds], axis=1)
    outliers = sharing.find_outliers(means, stds)
    clusters = sharing.cluster(KEY, points, outliers, num_components=255, num_sweeps=2)
    return sharing.refine(points, clusters.mixture, clusters.labels).labels


def _sampling(target: density.Target) -> Run:
    method = inference.hmc(num_chains=4, num_samples=20, num_burnin=0, step_size=1e-6, num_steps=100)
    return lambda: method(KEY, target).posterior.samples


def measure() -> dict[str, dict[str, float]]:
    """Of every case the seconds of the call, and the share of every file that solved."""
    return {name: _shares(run) for name, run in cases()}


def _shares(run: Run) -> dict[str, float]:
    jax.block_until_ready(jax.tree.leaves(run()))
    with Stopwatch(LIBRARY, set(HOST)) as watch:
        begun = time.perf_counter()
        jax.block_until_ready(jax.tree.leaves(run()))
        seconds = time.perf_counter() - begun
    return {"seconds": seconds} | {name: part / seconds for name, part in watch.seconds.items()}


if __name__ == "__main__":
    print(json.dumps(measure()))
