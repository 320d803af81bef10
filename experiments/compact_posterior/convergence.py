"""Did the chains converge: the table below the compact posterior's."""

from experiments.common.problem import Problem
from experiments.harness.tables import Row, Table
from symbnn import diagnostics, keys
from symbnn.types import Samples

NUM_INPUTS = 100
"""Test inputs whose logits are followed."""


def convergence(problem: Problem, samples: Samples, to_first: Samples) -> dict[str, diagnostics.Summary]:
    """R-hat and effective sample size in function space, of weights, and under random relabelling."""
    chains = problem.config.inference.num_chains
    return {
        "function space": diagnostics.function_space(
            problem.model.apply, samples, problem.inputs[:NUM_INPUTS], num_chains=chains
        ),
        "weights, raw": diagnostics.weight_space(samples, num_chains=chains),
        "weights, aligned": diagnostics.weight_space(to_first, num_chains=chains),
        "weights, random labels": diagnostics.relabelling_control(
            problem.model.spec, samples, keys.named(problem.key, "control"), num_chains=chains
        ),
    }


def convergence_table(found: dict[str, diagnostics.Summary]) -> Table:
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
    rows = [
        Row.of(words, (getattr(each, name) for each in found.values()), 0 if "ESS" in words else 3)
        for name, words in names.items()
    ]
    title = "Convergence of the chains; random labels look perfect by construction and certify nothing"
    return Table(title, list(found), rows)
