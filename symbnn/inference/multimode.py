"""Methods that explore one mode, and `multimode`, which runs one of them around every member of an ensemble.

A `ModeMethod` fits many modes side by side in one program; called like any other method it fits one. With
`multimode` it gives multi-SWAG (Wilson and Izmailov 2020), mixtures of Laplace approximations (Eschenhagen et
al. 2021), of variational Gaussians, of dropout networks, or as many stochastic-gradient chains:

    inference.multimode(inference.laplace(pretrain_epochs=0), members=inference.ensemble(num_members=10))
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import chains, keys, tree
from symbnn.density import Target, require_network
from symbnn.inference.base import Fit, MemberStart, Method
from symbnn.inference.ensemble import member_starts
from symbnn.posteriors import DroppedUnits, Empirical, GaussianMixture, Posterior
from symbnn.types import Key, Params, Samples

FitModes = Callable[[Key, Target, Samples], tuple[Any, dict[str, Any]]]
"""(one key per mode, target, one start per mode) -> (posterior with stacked leaves, stacked diagnostics)."""


@dataclass(frozen=True)
class ModeMethod:
    """A method around one mode: `method(key, target)` fits one, `multimode` many at once."""

    fit_modes: FitModes
    initial: Params | None = None
    check: Callable[[Target], None] = require_network
    """`ValueError` for a target that the method cannot take, before anything is trained."""

    def __call__(self, key: Key, target: Target) -> Fit:
        """Fit around `initial`, or around a fresh initialisation."""
        self.check(target)
        initial = None if self.initial is None else tree.stack([self.initial])
        starts = member_starts(key, target, 1, initial)
        posterior, diagnostics = self.fit_modes(keys.indexed(key, 0, 1), target, starts)
        return Fit(tree.take(posterior, 0), tree.take(diagnostics, 0))


def multimode(method: Method, *, members: Method | Samples) -> Method:
    """`method` around every member: an equal mixture of what it gives.

    Args:
        method: `variational`, `swag`, `laplace`, `sgmcmc` or `dropout`, which fit all modes in one program,
            or any other `(key, target) -> Fit`, which is called once per member with a target whose `init`
            is that member (so `hmc(num_chains=1, ...)` starts there, and compiles once per member; it takes
            no sink).
        members: Stacked networks, a posterior that keeps some, or a method that finds them (`ensemble`).

    Gaussians become a `GaussianMixture`, draws one `Empirical` with the chains of every mode. Diagnostics
    have a leading mode axis (those whose shapes differ from mode to mode are tuples), and those of `members`
    follow under `members/`.
    """
    if isinstance(method, ModeMethod) and method.initial is not None:
        raise ValueError("multimode starts from its members, so the method must have no `initial` of its own")

    def many(key: Key, target: Target) -> Fit:
        if isinstance(method, ModeMethod):
            method.check(target)
        found, before = members, {}
        if callable(members):
            found = members(keys.named(key, "members"), target)
            before = {f"members/{name}": value for name, value in found.diagnostics.items()}
        shapes = jax.eval_shape(target.init, key)
        networks, _ = chains.unpack(
            found, check=lambda some: tree.check_same_shapes("members", some, shapes, num_leading=1)
        )
        num_modes = tree.num_samples(networks)
        mode_keys = keys.indexed(key, 0, num_modes)
        if isinstance(method, ModeMethod):
            starts = member_starts(key, target, num_modes, networks)
            posterior, diagnostics = method.fit_modes(mode_keys, target, starts)
        else:
            posterior, diagnostics = _one_by_one(method, mode_keys, target, networks)
        return Fit(merge(posterior), diagnostics | before)

    return many


def _one_by_one(
    method: Method, mode_keys: Key, target: Target, networks: Samples
) -> tuple[Any, dict[str, Any]]:
    """What `method` gives from every network, stacked."""
    fits = []
    for index, mode_key in enumerate(mode_keys):
        fit = method(mode_key, target._replace(init=MemberStart(tree.take(networks, index))))
        _check_fit(fit)
        fits.append(fit)
    names = [name for name in fits[0].diagnostics if all(name in fit.diagnostics for fit in fits)]
    diagnostics = {name: _stacked([fit.diagnostics[name] for fit in fits]) for name in names}
    return tree.stack([fit.posterior for fit in fits]), diagnostics


def _check_fit(fit: Any) -> None:
    """`ValueError` for what cannot be joined with the fits of other modes."""
    if not isinstance(fit, Fit):
        raise ValueError(
            f"a method must return an inference.Fit(posterior, diagnostics); got a {type(fit).__name__}. "
            "Draws (chains, draws, ...) become a posterior by posteriors.Empirical.from_chains(samples)"
        )
    is_tree = not jax.tree_util.all_leaves([fit.posterior])
    if not isinstance(fit.posterior, Posterior) or not is_tree:
        raise ValueError(
            "multimode joins posteriors that are trees of arrays, draws (posteriors.Empirical) or Gaussians; "
            f"got a {type(fit.posterior).__name__}"
        )


def _stacked(values: list[Any]) -> Any:
    """One diagnostic of all modes."""
    shapes = {str(jax.tree.map(np.shape, value)) for value in values}
    return jax.tree.map(lambda *each: np.stack(each), *values) if len(shapes) == 1 else tuple(values)


def merge(modes: Any) -> Any:
    """One equal mixture from a posterior whose leaves are stacked over modes."""
    num_modes = tree.num_samples(modes)
    if not isinstance(modes, Empirical | DroppedUnits):
        return GaussianMixture(jnp.full((num_modes,), 1.0 / num_modes), modes)
    if isinstance(modes, DroppedUnits):
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), modes.samples)
        return DroppedUnits(flat, modes.units, modes.rate)
    num_chains = num_modes * modes.num_chains
    return Empirical.from_chains(
        jax.tree.map(lambda leaf: leaf.reshape(num_chains, -1, *leaf.shape[2:]), modes.samples)
    )
