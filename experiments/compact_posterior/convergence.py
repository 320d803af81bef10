"""Did the chains converge, and what did the sampler count: the tables below the compact posterior's."""

from typing import Any

import numpy as np

from experiments.common.methods import Problem
from experiments.harness.tables import Cell, Row, Table
from symbnn import diagnostics, keys
from symbnn.types import Samples

NUM_INPUTS = 100
"""Test inputs whose logits are followed."""


def convergence(problem: Problem, samples: Samples, aligned: Samples) -> dict[str, Any]:
    """R-hat and effective sample size in function space, of weights, and under random relabelling."""
    chains = problem.config.inference.num_chains
    summaries = {
        "function space": diagnostics.function_space(
            problem.model.apply, samples, problem.inputs[:NUM_INPUTS], num_chains=chains
        ),
        "weights, raw": diagnostics.weight_space(samples, num_chains=chains),
        "weights, aligned": diagnostics.weight_space(aligned, num_chains=chains),
        "weights, random labels": diagnostics.relabelling_control(
            problem.model.spec, samples, keys.named(problem.key, "control"), num_chains=chains
        ),
    }
    return {
        name: {k: np.asarray(v) for k, v in summary._asdict().items()} for name, summary in summaries.items()
    }


def verdict(problem: Problem, found: Any) -> str:
    """What function space says."""
    function = diagnostics.Summary(**{name: value.item() for name, value in found["function space"].items()})
    return diagnostics.verdict(function, num_chains=problem.config.inference.num_chains)


def convergence_table(found: Any) -> Table:
    """One column per space."""
    names = {
        "median_rhat": "rank R-hat, median",
        "rhat_95": "rank R-hat, 95 %",
        "max_rhat": "rank R-hat, maximum",
        "share_above": "share above 1.01",
        "median_split_rhat": "split R-hat, median",
        "median_bulk_ess": "bulk ESS, median",
        "median_tail_ess": "tail ESS, median",
        "low_ess": "smaller ESS, worst 5 %",
    }
    rows = tuple(
        Row(words, tuple(Cell(float(found[space][name])) for space in found), 0 if "ESS" in words else 3)
        for name, words in names.items()
    )
    return Table(
        "Convergence of the chains; random labels look perfect by construction and certify nothing",
        tuple(found),
        rows,
    )


def sampler_table(found: Any) -> Table:
    """What the sampler counted, chain by chain."""
    rows = {
        "acceptance": ("acceptance", 3),
        "divergences": ("divergent transitions", 0),
        "energy_error": ("energy error, root mean square", 3),
        "num_gradients": ("gradients", 0),
        "step_size": ("step size", 5),
    }
    return Table(
        "The sampler",
        tuple(f"chain {index}" for index in np.asarray(found["chains"])),
        tuple(
            Row(words, tuple(Cell(float(value)) for value in np.asarray(found[name])), decimals)
            for name, (words, decimals) in rows.items()
        ),
    )
