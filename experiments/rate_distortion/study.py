"""Rate and distortion: is a compact law nearer to all HMC draws than a few of the draws in as many bytes?

Every law is written to a file in three formats, read back, and judged by the total variation between its
predictions and those of all draws on the test images.
"""

from pathlib import Path
from typing import Any

import numpy as np

from configs.rate_distortion import RateDistortion
from experiments.common import methods
from experiments.common.problem import Problem
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Table
from experiments.rate_distortion import figures, laws, report, storage, tables
from experiments.rate_distortion.laws import ALIGNED, NETWORKS, RANDOM, RAW, REFINED
from symbnn import diagnostics, evaluate, symmetry
from symbnn.posteriors import Empirical
from symbnn.types import Samples

NUM_INPUTS = 100
"""Test examples on which chains are compared."""


def run(config: RateDistortion, rundir: Path | str) -> Table:
    """All stages of the study; returns the table of laws."""
    with open_run("rate_distortion", config, rundir) as opened:
        sampled = tables.load(config)
        samples = _draws(config, sampled, opened)
        problem = tables.as_judged(sampled)
        converged = opened.stage("convergence", lambda: _converged(sampled, samples))
        to_mean = opened.stage(
            "to_mean", lambda: symmetry.align(problem.model.spec, samples, reference="mean").samples
        )
        plain = {
            RAW: opened.stage("raw", lambda: laws.plain(problem, laws.spaced(problem, samples))),
            ALIGNED: opened.stage("aligned", lambda: laws.plain(problem, laws.spaced(problem, to_mean))),
        }
        given = laws.images(problem, samples)
        fits = {
            state: {
                laws.label(*law): _fitted(problem, opened, given, plain[ALIGNED], samples, state, law)
                for law in [*laws.families(config), *_networks(config)]
            }
            for state in (REFINED, RANDOM)
        }
        points = opened.stage("points", lambda: _judge(problem, opened, samples, plain, fits))
        return present(
            opened,
            introduction=report.introduction(problem),
            tables=[
                report.law_table(config, points),
                report.network_table(config, points),
                report.best_table(points),
                report.recipe_table(fits),
            ],
            figures=[
                (
                    "rate_distortion",
                    figures.curves(points),
                    "Total variation to all HMC draws against the size of the file, by kind of law",
                )
            ],
            findings=[report.of_chains(converged), *report.findings(points)],
        )


def _converged(problem: Problem, samples: Samples) -> diagnostics.Summary:
    """Whether chains agree on the outputs for test examples."""
    return diagnostics.function_space(
        problem.model.apply,
        samples,
        problem.inputs[:NUM_INPUTS],
        num_chains=problem.config.inference.num_chains,
    )


def _draws(config: RateDistortion, problem: Problem, opened: Run) -> Samples:
    if config.posteriors is not None:
        return opened.borrow("hmc", config.posteriors, "compact_posterior", config).posterior.samples
    return opened.stage("hmc", lambda: methods.sample(problem, opened)).posterior.samples


def _networks(config: RateDistortion) -> list[tuple[str, int]]:
    return [(NETWORKS, number) for number in config.sizes.refined_networks]


def _fitted(
    problem: Problem,
    opened: Run,
    given: laws.Images,
    aligned: dict[str, Any],
    samples: Samples,
    state: str,
    law: tuple[str, int],
) -> dict[str, Any]:
    """A law refined from the aligned one, from kept draws, or from untrained networks."""
    settings, name = problem.config.fits, laws.label(*law)

    def make() -> dict[str, Any]:
        if law[0] == NETWORKS:
            draws = laws.kept(problem, samples, law[1])[0]
            start = draws if state == REFINED else laws.untrained(problem, law[1])
            return laws.refined(problem, given, Empirical(start), settings.network_rates)
        if state == REFINED:
            return laws.refined(problem, given, aligned[name], settings.learning_rates)
        return laws.refined(problem, given, laws.random_start(problem, *law), settings.random_rates)

    return opened.stage(f"{state} {name}".replace(" ", "_"), make)


def _judge(
    problem: Problem, opened: Run, samples: Samples, plain: dict[str, Any], fits: dict[str, Any]
) -> list[dict[str, Any]]:
    """Bytes and distance of every law in every format, each read back from its file."""
    config = problem.config
    wanted = evaluate.predict(problem.model.apply, samples, problem.inputs)
    path = opened.directory / "law.safetensors"

    def point(state: str, family: str, size: int, form: str, given: list[Any]) -> dict[str, Any]:
        found: list[float] = []
        for law in given:
            num_bytes = storage.save(path, law, form)
            found += laws.distance(problem, storage.load(path, law, form), problem.inputs, wanted)
        return {
            **{"state": state, "family": family, "size": size, "format": form},
            **{"bytes": num_bytes, "distance": np.array(found)},
        }

    points = [
        point(RAW, NETWORKS, size, form, [Empirical(each) for each in laws.kept(problem, samples, size)])
        for size in config.sizes.networks
        for form in config.sizes.formats
    ]
    points += [
        point(state, family, size, form, [found])
        for state, made in (plain | fits).items()
        for family, size in [*laws.families(config), *_networks(config)]
        if (found := _law(made.get(laws.label(family, size)))) is not None
        for form in config.sizes.formats
    ]
    path.unlink(missing_ok=True)
    return points


def _law(found: Any) -> Any:
    """The law, of a fit or as it is; None where there is none."""
    return found["law"] if isinstance(found, dict) and "law" in found else found
