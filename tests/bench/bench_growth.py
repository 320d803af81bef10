"""How times grow: with the number of networks, their width and depth, the data, and the devices.

Every curve is fitted by time = c · size^p, by least squares in the logarithms, without its smallest size:
there what every call costs hides the law. A row promises p; `results/bench_growth.md` keeps all times and
`results/bench_growth.png` shows them. Few sizes, because every one is compiled anew.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import density, evaluate, models, symmetry
from symbnn.plot.style import GREY, PALETTE, new_figure
from tests.bench import Row, processes
from tests.bench.bench_evaluate import seconds
from tests.bench.bench_inference import network

RESULTS = Path(__file__).parent.parent.parent / "results"
SAMPLES = (100, 1_000, 3_000, 10_000)
WIDTHS = (32, 128, 512, 2048)
DEPTHS = (1, 4, 16)
POINTS = (1_000, 8_000, 64_000)
DEVICES = (1, 2)
GRADIENTS = 10


class Curve(NamedTuple):
    """Times of one thing at several sizes."""

    what: str
    network: str
    axis: str
    """What the sizes count."""
    sizes: Sequence[int]
    times: list[float]
    most: float
    """The exponent that was promised, at most."""

    def exponent(self) -> float:
        """p of time = c · size^p over all sizes but the smallest, where there are more than two."""
        first = int(len(self.sizes) > 2)
        logs = np.log(np.asarray(self.sizes[first:], float)), np.log(self.times[first:])
        return float(np.polyfit(*logs, 1)[0])

    def row(self) -> Row:
        """The promise."""
        exponent, (low, high) = self.exponent(), (self.sizes[0], self.sizes[-1])
        return Row(
            f"growth of {self.what} ({self.network}) with {self.axis}, {low:,} to {high:,}",
            self.most,
            exponent,
            "exponent",
            exponent <= self.most,
            f"{_duration(self.times[0])} to {_duration(self.times[-1])}",
        )


def rows() -> Iterator[Row]:
    """A row for every curve; then the figure and the table of all times."""
    found = []
    for curve in curves():
        found.append(curve)
        yield curve.row()
    (RESULTS / "bench_growth.md").write_text(page(found), encoding="utf-8")
    figure = panels(found)
    figure.savefig(RESULTS / "bench_growth.png", format="png", dpi=150, metadata={"Software": None})


def curves() -> Iterator[Curve]:
    """All measurements. A tenth above the whole number is the noise that a fit over few sizes may have."""
    yield _curve("alignment", "64-16-10", "networks", SAMPLES, _align_samples, 1.1)
    yield _curve("predictive", "64-16-10, 500 inputs", "networks", SAMPLES, _predict, 1.1)
    yield _curve("gradient", "64-w-10, 1,297 points", "width", WIDTHS, _gradient_width, 1.1)
    # The assignment takes n³ steps at worst; the products that make its costs take n².
    yield _curve("alignment", "two networks 64-w-10", "width", WIDTHS, _align_width, 3.1)
    # Only shapes are read.
    yield _curve("discovery", "64-w-w-10", "width", WIDTHS, _discover_width, 0.2)
    yield _curve("gradient", "64-32-…-32-10, 1,297 points", "depth", DEPTHS, _gradient_depth, 1.1)
    yield _curve("alignment", "100 networks 64-32-…-32-10", "depth", DEPTHS, _align_depth, 1.5)
    yield _curve("discovery", "64-32-…-32-10", "depth", DEPTHS, _discover_depth, 1.5)
    yield _curve("gradient", "64-32-10", "points", POINTS, _gradient_points, 1.1)
    yield Curve("gradient", "eight chains of 64-32-10", "devices", DEVICES, _chains(), -0.8)


def _curve(
    what: str, network: str, axis: str, sizes: Sequence[int], measure: Callable[[int], float], most: float
) -> Curve:
    return Curve(what, network, axis, sizes, [measure(size) for size in sizes], most)


def _align_samples(num: int) -> float:
    model, samples = _networks((16,), num)
    return seconds(lambda: symmetry.align(model.spec, samples).samples, 3)


def _predict(num: int) -> float:
    model, samples = _networks((16,), num)
    inputs = jax.random.normal(jax.random.key(1), (500, 64))
    return seconds(lambda: evaluate.predict(model.apply, samples, inputs), 3)


def _gradient_width(width: int) -> float:
    return _gradient(network(64, width, 1_297))


def _gradient_points(num: int) -> float:
    return _gradient(network(64, 32, num))


def _gradient_depth(depth: int) -> float:
    model = models.mlp((64,), 10, hidden=(32,) * depth)
    random = np.random.default_rng(0)
    inputs = random.uniform(size=(1_297, 64)).astype(np.float32)
    labels = random.integers(10, size=1_297).astype(np.int32)
    return _gradient(density.target(model, density.Batch(inputs, labels)))


def _gradient(target: density.Target) -> float:
    """Of several in one program, as samplers take them: a call costs more than the gradient."""

    @jax.jit
    def run(params: Any) -> Any:
        def body(_: Any, weights: Any) -> Any:
            return jax.tree.map(lambda a, g: a + 1e-6 * g, weights, jax.grad(target.log_density)(weights))

        return jax.lax.fori_loop(0, GRADIENTS, body, params)

    params = target.init(jax.random.key(0))
    return seconds(lambda: run(params), 5) / GRADIENTS


def _align_width(width: int) -> float:
    model, samples = _networks((width,), 3)
    # The first is the reference, and settled at once.
    return seconds(lambda: symmetry.align(model.spec, samples).samples, 1 if width > 512 else 3)


def _align_depth(depth: int) -> float:
    model, samples = _networks((32,) * depth, 100)
    return seconds(lambda: symmetry.align(model.spec, samples).samples, 1)


def _discover_width(width: int) -> float:
    return _discover((width, width))


def _discover_depth(depth: int) -> float:
    return _discover((32,) * depth)


def _discover(hidden: tuple[int, ...]) -> float:
    """Of a function that nobody has seen before: a new one for every call."""
    model, _ = _networks(hidden, 1)
    params, inputs = jax.eval_shape(model.init, jax.random.key(0)), jnp.ones((2, 64))

    def discover() -> None:
        symmetry.discover(lambda weights, x: model.apply(weights, x), params, inputs)

    return seconds(discover, 3)


def _chains() -> list[float]:
    """Seconds for a gradient of all eight; medians of three turns, each relative to its first process.

    As many cores as devices: XLA's threads would give the first device the second's core.
    """
    rounds = np.array([[_on_devices(number) for number in DEVICES] for _ in range(3)])
    relative = np.median(rounds / rounds[:, :1], axis=0)
    # The processes tell milliseconds per chain.
    return [8e-3 * float(time) for time in np.median(rounds[:, 0]) * relative]


def _on_devices(number: int) -> float:
    given = {"devices": number, "cores": number}
    return float(processes.ask("tests.bench.bench_chains", "chains", 8, number, 4, **given))


def _networks(hidden: tuple[int, ...], num: int) -> tuple[models.Model, Any]:
    """Networks with weights of about the usual size; drawn by the host, which compiles nothing."""
    model, random = models.mlp((64,), 10, hidden=hidden), np.random.default_rng(0)

    def drawn(leaf: Any) -> jax.Array:
        return jnp.asarray(random.normal(0, leaf.shape[0] ** -0.5, (num, *leaf.shape)).astype(np.float32))

    return model, jax.tree.map(drawn, jax.eval_shape(model.init, jax.random.key(0)))


def page(curves: Sequence[Curve]) -> str:
    """All times."""
    lines = [
        "# How times grow",
        "",
        "`python -m tests.bench growth`. time = c · size^p, fitted without the smallest size: there what "
        "every call costs hides the law.",
        "",
        "![Times against sizes](bench_growth.png)",
        "",
        "| time of | network | against | p promised, at most | p measured | times |",
        "|---|---|---|---|---|---|",
    ]
    for curve in curves:
        pairs = zip(curve.sizes, curve.times, strict=True)
        times = ", ".join(f"{size:,}: {_duration(time)}" for size, time in pairs)
        exponents = f"{curve.most:g} | {curve.exponent():.2f}"
        lines.append(f"| {curve.what} | {curve.network} | {curve.axis} | {exponents} | {times} |")
    load = f"Load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores at the end; above that, times are noise."
    return "\n".join([*lines, "", load, ""])


def panels(curves: Sequence[Curve]) -> Any:
    """One panel for every thing that grows; dashed, the fitted law."""
    axes_names = list(dict.fromkeys(curve.axis for curve in curves))
    figure, axes = new_figure(3, 2, width=3.6, height=3.2)
    for spare in axes[len(axes_names) :]:
        spare.remove()
    for panel, name in zip(axes, axes_names, strict=False):
        drawn = [curve for curve in curves if curve.axis == name]
        for curve, colour in zip(drawn, PALETTE, strict=False):
            sizes = np.asarray(curve.sizes, float)
            panel.loglog(sizes, curve.times, "o-", color=colour, markersize=4, linewidth=1)
            fitted = curve.times[-1] * (sizes / sizes[-1]) ** curve.exponent()
            panel.loglog(sizes, fitted, "--", color=GREY, linewidth=1)
        panel.set(xlabel=name, ylabel="seconds")
        _label(panel, drawn)
    return figure


def _label(panel: Any, curves: Sequence[Curve]) -> None:
    handles = [line for line in panel.get_lines() if line.get_marker() == "o"]
    names = [f"{curve.what}: p = {curve.exponent():.2f}" for curve in curves]
    panel.legend(handles, names, frameon=False, fontsize=8, loc="upper left")
    low, high = panel.get_ylim()
    # Room for the legend above the curves.
    panel.set_ylim(low, high * 10 ** (0.35 * len(curves)))
    sizes = curves[0].sizes
    panel.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=8)
    panel.minorticks_off()


def _duration(time: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if time * scale >= 1:
            return f"{time * scale:.3g} {unit}"
    return f"{time * 1e6:.3g} µs"
