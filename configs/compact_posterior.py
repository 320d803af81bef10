"""Table 1 of the compact posterior: HMC, ensemble and VI as samples and as Gaussians, raw and aligned.

Xiao, Liu, Bamler (2023), "A Compact Representation for Bayesian Neural Networks By Removing Permutation
Symmetry". `python -m experiments.compact_posterior digits` takes four minutes on two CPU cores; expect
HMC accuracy 0.98, agreement of q_d with HMC below 0.4 and of q_r at least 0.3 above that.
"""

from dataclasses import dataclass

from configs.parts import Compact, Data, Ensemble, Network, Posteriors, Refinement, Sampler, Variational


@dataclass(frozen=True)
class CompactPosterior(Posteriors):
    """HMC, an ensemble and VI, each as samples and as the Gaussians q_d (raw) and q_r (aligned)."""

    refinement: Refinement = Refinement()


CONFIGS = {
    "digits": (
        "1,797 bundled 8x8 images, 64-32-10: the paper's effect in minutes on two CPU cores",
        CompactPosterior(
            ensemble=Ensemble(num_epochs=200),
            variational=Variational(num_epochs=800, learning_rate=3e-3),
        ),
    ),
    "debug": (
        "64-8-10 on 200 digits, a few draws: a minute, mostly of compiling, to see that everything runs",
        CompactPosterior(
            data=Data(num_train=200, num_test=50),
            model=Network(hidden=(8,)),
            inference=Sampler(num_chains=2, num_burnin=5, num_samples=10, num_steps=10),
            ensemble=Ensemble(num_members=3, num_epochs=5),
            variational=Variational(num_epochs=5),
            compact=Compact(num_draws=10, num_draw_seeds=2, num_components=2),
            refinement=Refinement(
                num_epochs=2, batch_size=50, num_draws=2, losses=("squared",), num_validation=50
            ),
        ),
    ),
    "mnist_cpu": (
        "10,000 MNIST images averaged to 14x14, 196-32-10, long chains: two hours on two CPU cores",
        CompactPosterior(
            data=Data(name="mnist", num_train=10_000, image_side=14),
            model=Network(rows="last"),
            # Most of a quarter of the prior's period, pi / 2: trajectories of 100 leapfrog steps were 0.45
            # long, and their draws so much alike that 620 of them were worth 20. Means over 6,000 gradients
            # vary least where steps are so long that two thirds are taken: by 0.11 of the variance of a
            # logit, 0.13 at an acceptance of 0.72, 0.15 at 0.84; with masses from the Kronecker factors of
            # the curvature by 0.24 to 0.29 (one chain each of 60,000 gradients). So 2.6 million gradients
            # were worth 649 draws where they mix worst; 2.9 million, 350 steps each at 0.84, were worth 514,
            # and 3.0 million of McLachlan's steps 440.
            inference=Sampler(
                num_burnin=100,
                num_samples=3_300,
                step_size=None,
                num_steps=190,
                target_acceptance=0.65,
                start="initialisation",
            ),
            ensemble=Ensemble(num_members=10, num_epochs=100),
            variational=Variational(num_epochs=200, learning_rate=3e-3),
            refinement=Refinement(num_epochs=25, num_validation=2000),
        ),
    ),
    "mnist": (
        "the paper's own settings, 784-512-10 on 60,000 images: for accelerators",
        CompactPosterior(
            data=Data(name="mnist"),
            model=Network(hidden=(512,)),
            inference=Sampler(
                num_chains=1,
                num_burnin=100,
                num_samples=10_000,
                step_size=1e-3,
                num_steps=500,
                start="initialisation",
            ),
            ensemble=Ensemble(num_members=5),
            compact=Compact(num_draws=200),
            refinement=Refinement(num_epochs=10, num_validation=5000),
        ),
    ),
}
