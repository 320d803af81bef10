"""Stochastic weight sharing (2DGBNN): most weights of a network drawn from a few shared Gaussians.

pretrain -> stochastic -> gmm -> refine -> train -> evaluate; every stage leaves an artefact and can be run
alone (`--stages gmm refine`) once those before it have run. `shared.safetensors` is the compressed network.
"""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from configs.weight_sharing import WeightSharing
from configs.weight_sharing.parts import STAGES
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Table
from experiments.weight_sharing import contenders, figures, scores, stages, variants, words
from experiments.weight_sharing.tables import (
    count_table,
    main_table,
    outside_table,
    size_table,
    variant_table,
)
from symbnn import sharing
from symbnn.sharing import SharedWeights, Stochastic


def run(config: WeightSharing, rundir: Path | str) -> Table | None:
    """The chosen stages; returns the table once the last has run."""
    _check(config)
    # A run is the same run, whichever of its stages are asked for now.
    with open_run("weight_sharing", dataclasses.replace(config, stages=STAGES), rundir) as opened:
        chosen = [stage for stage in STAGES if stage in config.stages]
        if not chosen:
            raise ValueError(f"--stages: expected some of {', '.join(STAGES)}; got none")
        outcomes = [Seeded(opened, config, repeat, chosen) for repeat in range(config.judging.num_seeds)]
        trained = [stage for stage in STAGES if stage != "evaluate"]
        for seeded in outcomes:
            seeded.run(trained if chosen[-1] == "evaluate" else trained[: trained.index(chosen[-1]) + 1])
        if chosen[-1] != "evaluate":
            opened.say(f"ran up to {chosen[-1]}; {STAGES[STAGES.index(chosen[-1]) + 1]} is next")
            return None
        counts = _counts(opened, config, outcomes[0])
        # What is still to be trained comes last: a run that is stopped before it has most to show.
        for is_trained in (False, True):
            for seeded in outcomes:
                seeded.predict(is_trained=is_trained)
        for seeded in outcomes:
            seeded.run(["evaluate"])
        changes = _variants(opened, config, outcomes[0])
        return _present(opened, config, outcomes, counts, changes)


def _check(config: WeightSharing) -> None:
    """`ValueError` for what would fail only after a stage has run."""
    for name in config.judging.variants + config.judging.counted:
        variants.changed(config, name)
    files, num = config.pretraining.published, config.judging.num_seeds
    if files and (len(files) < num or config.model.factory is not None or config.data.npz is not None):
        raise ValueError(
            f"--pretraining.published names {len(files)} networks; one for each of {num} seeds is needed, "
            "and they go with our own networks and data: name more, lower --judging.num-seeds, or give "
            "--pretraining.weights instead"
        )


class Seeded:
    """All stages of one seed; the artefacts of the first seed have plain names."""

    def __init__(self, opened: Run, config: WeightSharing, repeat: int, chosen: Sequence[str]) -> None:
        self.opened, self.config, self.chosen, self.repeat = opened, config, chosen, repeat
        self.suffix = f"_{repeat}" if repeat else ""
        self.untrained = stages.load_problem(config, config.seed + repeat)
        self.problem = stages.after_stage_0(self.untrained)
        self.artefacts: dict[str, Any] = {}

    def run(self, names: Sequence[str]) -> None:
        """Stages in order, each computed if it is chosen, else read."""
        for name in names:
            self.artefacts[name] = self.stage(name)

    def predict(self, *, is_trained: bool) -> None:
        """Predictions of the columns whose network is trained only for them, or of the others.

        Before they are evaluated, so that the time of a stage is its own.
        """
        found = self.artefacts.setdefault("predictions", {})
        for name, make in self.columns():
            if (name == contenders.MEAN_FIELD) == is_trained:
                found[name] = self.judged(name, make)

    def stage(self, name: str) -> Any:
        """The artefact of a stage; a `ValueError` if it is needed, but neither chosen nor there and whole."""

        def refuse() -> Any:
            raise ValueError(
                f"stage {name!r} has not run in {self.opened.directory}, or its file there is damaged or of "
                "another run; add it to --stages, or choose the --rundir in which it ran"
            )

        compute = functools.partial(self.compute, name) if name in self.chosen else refuse
        return self.opened.stage(f"{name}{self.suffix}", compute)

    def compute(self, stage: str) -> Any:
        """A stage from the artefacts of those before it."""
        problem, config, found = self.problem, self.config, self.artefacts
        checkpoint = functools.partial(self.opened.training, f"{stage}{self.suffix}")
        match stage:
            case "pretrain":
                return stages.pretrain(self.untrained, self.repeat, checkpoint())
            case "stochastic":
                return stages.train_stochastic(problem, found["pretrain"], checkpoint())
            case "gmm":
                return stages.cluster(problem, config, found["stochastic"])
            case "refine":
                return stages.refine(problem, config, found["stochastic"], found["gmm"])
        network, stochastic, before = found["pretrain"], found["stochastic"], self.before()
        if stage == "train":
            return stages.train(problem, config, network, stochastic, before, checkpoint)
        return {
            name: scores.scores(
                problem, found["predictions"][name], contenders.num_bytes(self.path(name), make)
            )
            for name, make in self.columns()
        }

    def columns(self) -> Iterable[tuple[str, contenders.Make]]:
        """The columns that this seed has."""
        found, settings = self.artefacts, self.config.judging

        def mean_field() -> Stochastic:
            kept = self.opened.training(f"evaluate{self.suffix}", "mean_field")
            return stages.train_mean_field(self.problem, found["pretrain"], kept)

        return contenders.contenders(
            self.problem,
            found["pretrain"]["params"],
            found["stochastic"]["network"],
            self.before(),
            self.after(),
            mean_field if settings.mean_field else None,
            is_compared=self.is_compared,
        ).items()

    @property
    def is_compared(self) -> bool:
        """Whether everything is judged of this seed."""
        num = self.config.judging.compared_seeds
        return num is None or self.repeat < num

    def judged(self, name: str, make: contenders.Make) -> dict[str, Any]:
        """Predictions of one column, a stage of its own: a stopped run goes on with the next."""
        judge = functools.partial(contenders.judged, self.problem, self.path(name), make, self.outside)
        return self.opened.stage(f"predictions_{variants.file_name(name)}{self.suffix}", judge)

    @functools.cached_property
    def outside(self) -> dict[str, Any]:
        """Inputs out of distribution that this seed is judged on."""
        settings, read = self.config.judging, self.problem.outside
        names, num = settings.outside if self.is_compared else (), settings.outside_images
        # What is streamed stays on disk if it is wanted whole.
        return {name: read(name) if num is None else read(name)[:num] for name in names}

    def path(self, name: str) -> Path:
        """The file of a column."""
        folder = self.opened.directory / "networks"
        folder.mkdir(exist_ok=True)
        return folder / f"{variants.file_name(name)}{self.suffix}.safetensors"

    def before(self) -> SharedWeights:
        """Shared weights before their training."""
        return stages.shared_of(self.config, self.artefacts["stochastic"], self.artefacts["refine"])

    def after(self) -> SharedWeights:
        """Trained shared weights."""
        return self.artefacts["train"]["shared"]


def _variants(opened: Run, config: WeightSharing, first: Seeded) -> dict[str, Any]:
    """Scores of every variant, from the stochastic network of the first seed."""

    def compute(name: str) -> Any:
        problem, artefacts = first.problem, first.artefacts
        other, before = _changed(config, first, name)
        kept = functools.partial(opened.training, f"variant_{variants.file_name(name)}")
        after = stages.train(problem, other, artefacts["pretrain"], artefacts["stochastic"], before, kept)[
            "shared"
        ]
        found = {}
        for when, each in {"before": before, "after": after}.items():
            path, make = first.path(f"{name} {when}"), functools.partial(_given, each)
            judged = contenders.judged(problem, path, make, {})
            found[when] = scores.scores(problem, judged, path.stat().st_size)
        base = artefacts["predictions"][contenders.TRAINED]
        return found | {"difference": scores.difference(problem, judged, base)}

    return {
        name: opened.stage(f"variant_{variants.file_name(name)}", functools.partial(compute, name))
        for name in config.judging.variants
    }


def _counts(opened: Run, config: WeightSharing, first: Seeded) -> dict[str, Any]:
    """Counts and bytes of every counted variant, before any training of Stage 3."""

    def compute(name: str) -> Any:
        path, (_, shared) = first.path(f"{name} counted"), _changed(config, first, name)
        contenders.kept(path, shared)
        return contenders.counts(shared) | {"bytes": path.stat().st_size}

    return {
        name: opened.stage(f"counts_{variants.file_name(name)}", functools.partial(compute, name))
        for name in config.judging.counted
    }


def _changed(config: WeightSharing, first: Seeded, name: str) -> tuple[WeightSharing, SharedWeights]:
    """The config of a variant, and its shared weights before their training."""
    other, artefacts = variants.changed(config, name), first.artefacts
    stochastic, clusters = artefacts["stochastic"], artefacts["gmm"]
    if other.clustering != config.clustering:
        clusters = stages.cluster(first.problem, other, stochastic)
    refined = stages.refine(first.problem, other, stochastic, clusters)
    return other, stages.shared_of(other, stochastic, refined)


def _given(shared: SharedWeights) -> SharedWeights:
    return shared


def _present(
    opened: Run,
    config: WeightSharing,
    outcomes: list[Seeded],
    counts: dict[str, Any],
    changes: dict[str, Any],
) -> Table:
    posterior, problem = outcomes[0].after(), outcomes[0].problem
    path = opened.directory / "shared.safetensors"
    sharing.save(path, posterior, {"model": problem.network, "data": problem.data.name})
    scored = [outcome.artefacts["evaluate"] for outcome in outcomes]
    tables = [main_table(problem, scored), size_table(problem, posterior, scored[0])]
    if config.judging.outside:
        tables.append(outside_table(scored))
    if counts:
        tables.append(count_table(problem, scored[0], counts))
    if changes:
        tables.append(variant_table(scored[0], changes))
    table = present(
        opened,
        introduction=words.introduction(problem),
        tables=tables,
        figures=_figures(outcomes[0], changes),
        findings=[*words.findings(problem, scored, counts, changes), _spreads(config, outcomes[0])],
    )
    opened.say(f"network  {path}")
    return table


def _spreads(config: WeightSharing, first: Seeded) -> str:
    points = np.asarray(first.artefacts["stochastic"]["network"].points())
    return words.spreads(points[:, 1], config.stochastic.initial_std)


def _figures(first: Seeded, changes: dict[str, Any]) -> list[tuple[str, Figure, str]]:
    clusters, refined = first.artefacts["gmm"], first.artefacts["refine"]
    points = first.artefacts["stochastic"]["network"].points()
    panels = [
        ("mixture", clusters.labels, np.zeros(0, int), *clusters.mixture[1:]),
        ("refined", refined.labels, refined.ellipses.indices, *refined.mixture[1:]),
    ]
    caption = "Weights in the plane of mean and standard deviation, before and after refinement"
    drawn = [("plane", figures.plane(points, panels), caption)]
    if changes:
        both = figures.variants({name: each["difference"] for name, each in changes.items()})
        caption = "One change of settings each: differences with 95 % intervals over the test examples"
        drawn.append(("variants", both, caption))
    return drawn
