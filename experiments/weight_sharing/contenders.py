"""What is judged, every column of the table: kept in a file, and judged as it comes back from it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.common.problem import Problem
from experiments.weight_sharing import predictions
from experiments.weight_sharing.baselines import Clustered, Codec, Rounded
from experiments.weight_sharing.stages import kernels, read_published
from symbnn import io, sharing, tree
from symbnn.posteriors import DiagonalGaussian, Empirical
from symbnn.sharing import SharedWeights, Stochastic
from symbnn.types import Params

DETERMINISTIC, STOCHASTIC, MEAN_FIELD = "deterministic", "stochastic", "mean-field VI"
UNTRAINED, TRAINED = "2DGBNN, untrained", "2DGBNN"
INT8, KMEANS, ENSEMBLE = "8-bit weights", "k-means of weights", "ensemble"

Make = Callable[[], Any]


def contenders(
    problem: Problem,
    network: Params,
    stochastic: Stochastic,
    before: SharedWeights,
    after: SharedWeights,
    mean_field: Callable[[], Stochastic] | None,
    *,
    is_compared: bool,
) -> dict[str, Make]:
    """How each is made, in the order of the columns; without comparison the first and the last."""
    if not is_compared:
        return {DETERMINISTIC: lambda: network, TRAINED: lambda: after}
    layout, wanted = stochastic.layout, problem.config.judging.baselines
    baselines: dict[str, tuple[str, Make]] = {
        "int8": (INT8, lambda: through(Rounded(layout), network)),
        "k-means": (KMEANS, lambda: through(Clustered(layout), network)),
        "ensemble": (ENSEMBLE, lambda: Empirical(tree.stack(read_published(problem)))),
    }
    made: dict[str, Make] = {DETERMINISTIC: lambda: network}
    made |= dict(baselines[name] for name in wanted)
    if problem.config.judging.between:
        made[STOCHASTIC] = stochastic.posterior
    if mean_field is not None:
        made[MEAN_FIELD] = lambda: mean_field().posterior()
    if problem.config.judging.between:
        made[UNTRAINED] = lambda: before
    return made | {TRAINED: lambda: after}


class Encoded(dict):
    """A network as a codec keeps it."""

    def __init__(self, codec: Codec, params: Params) -> None:
        super().__init__(codec.encode(params))
        self.codec = codec


def through(codec: Codec, params: Params) -> Encoded:
    """The network as the codec keeps it."""
    return Encoded(codec, params)


def kept(path: Path, made: Any) -> Any:
    """What was made, written to `path` and read back."""
    if isinstance(made, SharedWeights):
        sharing.save(path, made)
        found, _ = sharing.load(path)
        check_same(made, found)
        return found
    if isinstance(made, DiagonalGaussian | Empirical):
        io.save_posterior(path, made)
        return io.load_posterior(path)[0]
    if isinstance(made, Encoded):
        io.save_tree(path, dict(made))
        return made.codec.decode(io.load_tree(path)[0])
    io.save_tree(path, made)
    return io.load_tree(path)[0]


def judged(problem: Problem, path: Path, make: Make, outside: Mapping[str, Any]) -> dict[str, Any]:
    """Predictions of what comes back from the file, inside and `outside` the data; its counts."""
    posterior = kept(path, make())
    found: dict[str, Any] = {
        "inside": predictions.predict(problem, posterior, problem.inputs, problem.labels),
        "outside": {
            name: predictions.predict(problem, posterior, inputs) for name, inputs in outside.items()
        },
    }
    if isinstance(posterior, SharedWeights):
        found["counts"] = counts(posterior)
    return found


def num_bytes(path: Path, make: Make) -> int:
    """Of the file, written anew by this code, whichever code made the predictions."""
    kept(path, make())
    return path.stat().st_size


def counts(shared: SharedWeights) -> dict[str, int]:
    """Outliers, ellipse weights and Gaussians, and the paper's count of numbers."""
    size = sharing.size_of(shared)
    return {
        "outliers": size.num_outliers,
        "ellipses": size.num_ellipses,
        "gaussians": size.num_components,
        "numbers": size.paper_count,
    }


def check_same(made: SharedWeights, found: SharedWeights) -> None:
    """`ValueError` unless both draw the same network from the same key."""
    expected, drawn = (tree.named_leaves(each.sample(jax.random.key(0), 1)) for each in (made, found))
    for name, leaf in expected.items():
        if not np.array_equal(leaf, drawn[name]):
            raise ValueError(f"the file of shared weights gives another {name!r} back than was written")


def num_kernels(problem: Problem) -> int:
    """Weights that may be shared."""
    return sharing.layout_of(problem.shapes, select=kernels(problem)).num_weights
