"""Ensemble and VI of the compact posterior without HMC, which lets CPUs run them at the paper's full size.

`python -m experiments.compact_trained mnist` takes about half an hour on two idle CPU cores; expect
accuracies near the published 98.66 % (ensemble), 97.97 % (mean of the aligned ensemble) and 98.11 % (VI).
With `--reparametrisation local`, whose gradients are less noisy, VI comes to 97.65 %.
"""

from dataclasses import dataclass
from typing import Literal

from configs.fields import bounded
from configs.parts import Compact, Data, Ensemble, Network, Prior, Seeded, Variational


@dataclass(frozen=True)
class CompactTrained(Seeded):
    """An ensemble and VI, as samples and as the Gaussians q_d (raw) and q_r (aligned)."""

    data: Data = Data()
    model: Network = Network()
    inference: Prior = Prior()
    ensemble: Ensemble = Ensemble(num_epochs=200)
    variational: Variational = Variational(num_epochs=800, learning_rate=3e-3)
    reparametrisation: Literal["local", "weights"] = "local"
    """Noise of VI's gradients: of every image's units, or one draw of the weights a step (the paper's)."""
    compact: Compact = Compact()
    num_alignment_inputs: int | None = bounded(None, 1, 10_000_000)
    """Training images whose activations units are matched by; all by default."""


CONFIGS = {
    "digits": ("1,797 bundled 8x8 images, 64-32-10", CompactTrained()),
    "debug": (
        "64-8-10 on 200 digits: seconds, to see that everything runs",
        CompactTrained(
            data=Data(num_train=200, num_test=50),
            model=Network(hidden=(8,)),
            ensemble=Ensemble(num_members=3, num_epochs=5),
            variational=Variational(num_epochs=5),
            compact=Compact(num_draws=10, num_draw_seeds=2),
        ),
    ),
    "mnist": (
        "the paper's own settings, 784-512-10 on 60,000 images, 50 epochs: half an hour on two CPU cores",
        CompactTrained(
            data=Data(name="mnist"),
            model=Network(hidden=(512,)),
            ensemble=Ensemble(num_members=5),
            variational=Variational(),
            reparametrisation="weights",
            compact=Compact(num_draws=100),
            num_alignment_inputs=10_000,
        ),
    ),
}
