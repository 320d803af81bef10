"""R-hat of weights, raw and aligned, on chains that mix slowly, beside function space and random labels.

Short trajectories on purpose: on chains that mix well there is nothing for an alignment to repair.
`python -m experiments.aligned_diagnostics digits` takes four minutes on two CPU cores; expect a median
R-hat of 1.5 for raw weights, near that of the logits (1.2) once aligned, and 1.0 for random labels.
"""

from dataclasses import dataclass

from configs.fields import bounded
from configs.parts import Data, Network, Sampler, Seeded


@dataclass(frozen=True)
class AlignedDiagnostics(Seeded):
    """HMC chains, diagnosed under several labellings of their units."""

    data: Data = Data()
    model: Network = Network()
    inference: Sampler = Sampler(num_burnin=300, num_samples=200, num_steps=20)
    num_inputs: int = bounded(100, 1, 100_000)
    """Test inputs whose logits are followed."""


CONFIGS = {
    "digits": (
        "trajectories of 20 steps, a fifth of the compact posterior's: four minutes",
        AlignedDiagnostics(),
    ),
    "debug": (
        "64-8-10 on 200 digits, a few draws: seconds, to see that everything runs",
        AlignedDiagnostics(
            data=Data(num_train=200, num_test=50),
            model=Network(hidden=(8,)),
            inference=Sampler(num_chains=2, num_burnin=5, num_samples=10, num_steps=5),
            num_inputs=10,
        ),
    ),
}
