"""Aligned diagnostics: what R-hat of weights says before and after alignment, on chains that mix slowly.

Raw weights look worse than what the network computes, because a chain may also differ from another by its
labels. Alignment takes that part away. It proves nothing, though: labels drawn at random for every draw make
any chain look perfect. So the control and function space stand beside every aligned R-hat, and convergence is
judged in function space alone.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs.aligned_diagnostics import AlignedDiagnostics
from experiments.aligned_diagnostics import figures
from experiments.common import columns, methods
from experiments.common.problem import Problem, joined, perceptron
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Row, Table
from symbnn import diagnostics, keys, symmetry, tree
from symbnn.diagnostics import RHAT_LIMIT
from symbnn.types import Samples

FUNCTION, RAW, CONTROL = "function space", "weights, raw", "weights, random labels"
ALIGNED = {
    "aligned by weights to the mean": {"reference": "mean"},
    "aligned by contributions to the mean": {
        "reference": "mean",
        "method": "activations",
        "similarity": "contributions",
    },
    "aligned by activations to one draw": {"method": "activations", "similarity": "inner_product"},
    "aligned by weights to one draw": {},
}
ROWS = {
    "median": lambda rhat: np.median(rhat),
    "95 %": lambda rhat: np.quantile(rhat, 0.95),
    "maximum": lambda rhat: rhat.max(),
    f"share above {RHAT_LIMIT:g}": lambda rhat: (rhat > RHAT_LIMIT).mean(),
    "share above 1.1": lambda rhat: (rhat > 1.1).mean(),
}
KEPT = "labels kept from draw to draw"


def run(config: AlignedDiagnostics, rundir: Path | str) -> Table:
    """All stages of the study; returns the table of R-hat."""
    with open_run("aligned_diagnostics", config, rundir) as opened:
        problem = perceptron(config, prior_scale=config.inference.prior_scale)
        hmc = opened.stage("hmc", lambda: methods.sample(problem, opened))
        found = opened.stage("rhat", lambda: _diagnose(problem, config, hmc.posterior.samples))
        return _present(opened, problem, found, hmc.diagnostics)


def _diagnose(problem: Problem, config: AlignedDiagnostics, samples: Samples) -> dict[str, Any]:
    """R-hat of every quantity in every space, and how many labels stay from one draw to the next."""
    spec, chains = problem.model.spec, config.inference.num_chains
    inputs = problem.inputs[: config.num_inputs]
    logits = jax.lax.map(
        lambda params: diagnostics.centred_logits(problem.model.apply(params, inputs)).ravel(), samples
    )
    rhat = {FUNCTION: _rhat(logits, chains), RAW: _rhat(tree.matrix(samples), chains)}
    kept = {}
    for name, settings in ALIGNED.items():
        aligned = symmetry.align(
            spec,
            samples,
            apply=problem.model.apply,
            inputs=jnp.asarray(problem.data.train.inputs),
            **settings,  # type: ignore[arg-type]
        )
        rhat[name] = _rhat(tree.matrix(aligned.samples), chains)
        kept[name] = labels_kept(aligned.elements.permutations, chains)
    relabelled, permutations = diagnostics.relabelled(spec, samples, keys.named(problem.key, "control"))
    rhat[CONTROL] = _rhat(tree.matrix(relabelled), chains)
    kept[CONTROL] = labels_kept(permutations, chains)
    return {"rhat": rhat, "kept": kept}


def _rhat(values: jax.Array, num_chains: int) -> np.ndarray:
    return np.asarray(diagnostics.rank_rhat(tree.by_chain(values, num_chains)))


def labels_kept(permutations: dict[str, jax.Array], num_chains: int) -> np.ndarray:
    """Share of units that two successive draws of a chain relabel alike."""
    alike = [
        (by_draw[:, 1:] == by_draw[:, :-1]).mean()
        for by_draw in (np.asarray(p).reshape(num_chains, -1, p.shape[-1]) for p in permutations.values())
    ]
    return np.asarray(np.mean(alike))


def _present(run: Run, problem: Problem, found: Any, sampler: Any) -> Table:
    rhat = {name: found["rhat"][name] for name in (RAW, *ALIGNED, CONTROL, FUNCTION)}
    drawn = figures.rhat_curves(rhat, limit=RHAT_LIMIT, raw=RAW, function=FUNCTION, control=CONTROL)
    config = problem.config
    settings = config.inference
    hidden = problem.sizes if problem.is_own else f"hidden units {joined(config.model.hidden)}"
    return present(
        run,
        introduction=[
            f"{problem.data.name}, {hidden}: "
            f"{settings.num_chains} chains of {settings.num_samples} draws after {settings.num_burnin}, with "
            f"trajectories of {settings.num_steps} steps, short on purpose. Function space: centred logits "
            f"of {config.num_inputs} test examples. R-hat compares the spread between chains with that "
            "within them and is 1 where they agree; a quantity that never moves has R-hat 1 if all chains "
            "have the same value, else infinity."
        ],
        tables=[_table(rhat, found["kept"]), columns.sampler_table(sampler)],
        figures=[("rhat", drawn, "R-hat of all quantities, by space and labelling")],
        findings=findings(rhat),
    )


def _table(rhat: dict[str, np.ndarray], kept: dict[str, Any]) -> Table:
    rows = [
        Row.of(f"R-hat, {name}" if "share" not in name else name, map(of, rhat.values()), 3)
        for name, of in ROWS.items()
    ]
    rows.append(Row.of(KEPT, map(kept.get, rhat), 3))
    return Table("Rank-normalised R-hat by space and labelling", list(rhat), rows)


def findings(rhat: dict[str, np.ndarray]) -> list[str]:
    """What the control allows to say."""
    median = {name: float(np.median(values)) for name, values in rhat.items()}
    nearest = min(ALIGNED, key=lambda name: abs(median[name] - median[FUNCTION]))
    state = "have not converged" if median[FUNCTION] > RHAT_LIMIT else "have converged in the median"
    control = f"Random labels give a median of {median[CONTROL]:.3f} on the same chains"
    if median[CONTROL] < median[FUNCTION]:
        control += (
            ", lower than function space although no chain was drawn longer: a low R-hat of relabelled "
            "weights is no evidence of convergence"
        )
    return [
        f"By function space the chains {state}: the median R-hat of the logits is {median[FUNCTION]:.3f}.",
        f"Raw weights have a median of {median[RAW]:.3f}. Of the alignments, “{nearest}” is nearest to "
        f"function space with {median[nearest]:.3f}.",
        f"{control}.",
    ]
