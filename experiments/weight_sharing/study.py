"""Stochastic weight sharing (2DGBNN): most weights of a network drawn from a few shared Gaussians.

pretrain -> stochastic -> gmm -> refine -> train -> evaluate; every stage leaves an artefact and can be run
alone (`--stages gmm refine`) once those before it have run. `shared.safetensors` is the compressed network.
"""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from configs.weight_sharing import WeightSharing
from configs.weight_sharing.parts import STAGES
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Table
from experiments.weight_sharing import figures, scores, stages, variants
from symbnn import sharing
from symbnn.sharing import SharedWeights


def run(config: WeightSharing, rundir: Path | str) -> Table | None:
    """The chosen stages; returns the table once the last has run."""
    for name in config.judging.variants:
        variants.changed(config, name)
    # A run is the same run, whichever of its stages are asked for now.
    with open_run("weight_sharing", dataclasses.replace(config, stages=STAGES), rundir) as opened:
        chosen = [stage for stage in STAGES if stage in config.stages]
        if not chosen:
            raise ValueError(f"--stages: expected some of {', '.join(STAGES)}; got none")
        outcomes = []
        for repeat in range(config.judging.num_seeds):
            seeded = Seeded(opened, config, repeat, chosen)
            outcomes.append(seeded.run_to(chosen[-1]))
        if chosen[-1] != "evaluate":
            opened.say(f"ran up to {chosen[-1]}; {STAGES[STAGES.index(chosen[-1]) + 1]} is next")
            return None
        changes = _variants(opened, config, outcomes[0])
        return _present(opened, config, outcomes, changes)


class Seeded:
    """All stages of one seed; the artefacts of the first seed have plain names."""

    def __init__(self, opened: Run, config: WeightSharing, repeat: int, chosen: Sequence[str]) -> None:
        self.opened, self.config, self.chosen = opened, config, chosen
        self.suffix = f"_{repeat}" if repeat else ""
        self.problem = stages.load_problem(config, config.seed + repeat)
        self.artefacts: dict[str, Any] = {}

    def run_to(self, last: str) -> "Seeded":
        """Stages up to `last`, each computed if it is chosen, else read."""
        for stage in STAGES[: STAGES.index(last) + 1]:
            self.artefacts[stage] = self.stage(stage)
        return self

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
                return stages.pretrain(problem, checkpoint())
            case "stochastic":
                return stages.train_stochastic(problem, found["pretrain"], checkpoint())
            case "gmm":
                return stages.cluster(problem, config, found["stochastic"])
            case "refine":
                return stages.refine(problem, config, found["stochastic"], found["gmm"])
        network, stochastic, before = found["pretrain"], found["stochastic"], self.before()
        if stage == "train":
            return stages.train(problem, config, network, stochastic, before, checkpoint)
        mean_field = None
        if config.judging.mean_field:
            mean_field = stages.train_mean_field(problem, network, checkpoint("mean_field"))
        return scores.columns(
            problem, network["params"], stochastic["network"], before, self.after(), mean_field
        )

    def before(self) -> SharedWeights:
        """Shared weights before their training."""
        return stages.shared_of(self.config, self.artefacts["stochastic"], self.artefacts["refine"])

    def after(self) -> SharedWeights:
        """Trained shared weights."""
        return self.artefacts["train"]["shared"]


def _variants(opened: Run, config: WeightSharing, first: Seeded) -> dict[str, Any]:
    """Scores of every variant, from the stochastic network of the first seed."""

    def compute(name: str) -> Any:
        other = variants.changed(config, name)
        problem, artefacts = first.problem, first.artefacts
        stochastic, clusters = artefacts["stochastic"], artefacts["gmm"]
        if other.clustering != config.clustering:
            clusters = stages.cluster(problem, other, stochastic)
        refined = stages.refine(problem, other, stochastic, clusters)
        before = stages.shared_of(other, stochastic, refined)
        kept = functools.partial(opened.training, f"variant_{variants.file_name(name)}")
        after = stages.train(problem, other, artefacts["pretrain"], stochastic, before, kept)["shared"]
        return {"before": scores.scores(problem, before), "after": scores.scores(problem, after)}

    return {
        name: opened.stage(f"variant_{variants.file_name(name)}", functools.partial(compute, name))
        for name in config.judging.variants
    }


def _present(opened: Run, config: WeightSharing, outcomes: list[Seeded], changes: dict[str, Any]) -> Table:
    posterior, problem = outcomes[0].after(), outcomes[0].problem
    path = opened.directory / "shared.safetensors"
    sharing.save(path, posterior, {"model": problem.network, "data": problem.data.name})
    scored = [outcome.artefacts["evaluate"] for outcome in outcomes]
    tables = [scores.main_table(problem, scored), scores.size_table(posterior, path.stat().st_size)]
    if changes:
        tables.append(scores.variant_table(scored[0], changes))
    table = present(
        opened,
        introduction=scores.introduction(problem),
        tables=tables,
        figures=_figures(outcomes[0], scored[0], changes),
        findings=scores.findings(scored, changes, len(problem.labels)),
    )
    opened.say(f"network  {path}")
    return table


def _figures(first: Seeded, scored: dict[str, Any], changes: dict[str, Any]) -> list[tuple[str, Figure, str]]:
    clusters, refined = first.artefacts["gmm"], first.artefacts["refine"]
    points = first.artefacts["stochastic"]["network"].points()
    panels = [
        ("mixture", clusters.labels, np.zeros(0, int), *clusters.mixture[1:]),
        ("refined", refined.labels, refined.ellipses.indices, *refined.mixture[1:]),
    ]
    caption = "Weights in the plane of mean and standard deviation, before and after refinement"
    drawn = [("plane", figures.plane(points, panels), caption)]
    if changes:
        dots = {name: _pair(each["after"]) for name, each in changes.items()}
        both = figures.variants(dots, _pair(scored["2DGBNN"]))
        drawn.append(("variants", both, "One change of settings each; dashed: the settings used"))
    return drawn


def _pair(found: dict[str, Any]) -> tuple[float, float]:
    return float(found["accuracy"]), float(found["nll"])
