"""One table of rows as a problem: its split, its network, its target, and how long everything runs on it."""

import dataclasses
import math
from typing import Any

import jax

from configs.parts import Chains, Hamiltonian, Microcanonical, NoUTurn
from configs.uci import Uci
from experiments.common import regression
from experiments.common.problem import Problem
from symbnn import density, keys

HIDDEN = {"airfoil": (16, 16, 16, 16), "bikesharing": (16, 16, 16, 16)}
"""The layers of bde's benchmark."""
USUAL = (50,)
"""Hernández-Lobato and Adams (2015), for tables of this size."""
LEAST_EPOCHS = 20
LEAST_STEPS = 100
LEAST_TRANSITIONS = 20
"""No training, no burn-in and no chain is shortened below these."""
# The same object for every set: compiled steps are known by it.
LIKELIHOOD = density.heteroscedastic("softplus")


def load(config: Uci, name: str) -> Problem:
    """The table `name`, and the settings that are cut for its length."""
    problem = regression.load(
        config,
        name if name == "diabetes" else f"uci/{name}",
        hidden=layers(config, name),
        activation=config.model.activation,
        likelihood=LIKELIHOOD,
        prior_scale=config.model.prior_scale,
        test_share=config.data.test_share,
        key=keys.named(jax.random.key(config.seed), name),
    )
    return dataclasses.replace(problem, config=shortened(config, problem.target.num_data))


def layers(config: Uci, name: str) -> tuple[int, ...]:
    """Units of each hidden layer."""
    return HIDDEN.get(name, USUAL) if config.model.hidden is None else config.model.hidden


def shortened(config: Uci, num_rows: int) -> Uci:
    """The config for a table of so many training rows: what is long is cut in proportion."""
    most = config.rows_at_full_length
    share = 1.0 if most is None else min(1.0, most / num_rows)
    if share == 1.0:
        return config
    trained: dict[str, Any] = {}
    for name in ("ensemble", "variational", "swag", "compact"):
        part = getattr(config, name)
        least = min(LEAST_EPOCHS, part.num_epochs)
        trained[name] = dataclasses.replace(part, num_epochs=_cut(part.num_epochs, share, least))
    return dataclasses.replace(
        config,
        **trained,
        hmc=_short_hmc(config.hmc, share),
        nuts=_short_nuts(config.nuts, share),
        mclmc=_short_mclmc(config.mclmc, share),
    )


def _short_hmc(settings: Hamiltonian, share: float) -> Hamiltonian:
    steps = _cut(settings.max_num_steps, math.sqrt(share), 1)
    return dataclasses.replace(_fewer(settings, share), max_num_steps=steps)


def _short_nuts(settings: NoUTurn, share: float) -> NoUTurn:
    doublings = max(1, settings.max_doublings + round(math.log2(math.sqrt(share))))
    return dataclasses.replace(_fewer(settings, share), max_doublings=doublings)


def _short_mclmc(settings: Microcanonical, share: float) -> Microcanonical:
    least = min(LEAST_STEPS, settings.num_burnin)
    return dataclasses.replace(
        settings,
        num_burnin=_cut(settings.num_burnin, share, least),
        thinning=_cut(settings.thinning, share, 1),
    )


def _fewer(settings: Any, share: float) -> Any:
    """Chains with fewer transitions, by the root of the share: their trajectories take the other root."""
    least = min(LEAST_TRANSITIONS, settings.num_burnin, settings.num_samples)
    changes = {
        name: _cut(getattr(settings, name), math.sqrt(share), least) for name in ("num_burnin", "num_samples")
    }
    return dataclasses.replace(settings, **changes)


def _cut(number: int, share: float, least: int) -> int:
    return max(least, round(share * number))


def check(config: Uci) -> None:
    """`ValueError` for settings that do not go together, before anything runs."""
    for name, settings in (("hmc", config.hmc), ("nuts", config.nuts), ("mclmc", config.mclmc)):
        assert isinstance(settings, Chains)
        if name in config.methods and settings.num_chains > config.ensemble.num_members:
            raise ValueError(
                f"--{name}.num-chains must be at most --ensemble.num-members, {config.ensemble.num_members}, "
                f"as every chain starts from a member; got {settings.num_chains}"
            )
    if config.compact.source not in config.methods:
        raise ValueError(
            f"--compact.source is {config.compact.source}, whose draws are made compact, but --methods are "
            f"{' '.join(config.methods)}; add it, or choose another source"
        )
    drawn = getattr(config, config.compact.source)
    for name in ("rank", "num_components"):
        most = drawn.num_chains if name == "num_components" else drawn.num_chains * drawn.num_samples - 1
        if getattr(config.compact, name) > most:
            raise ValueError(
                f"--compact.{name.replace('_', '-')} must be at most {most} for the draws of "
                f"{config.compact.source}; got {getattr(config.compact, name)}"
            )
