"""Several networks evaluated side by side, equation by equation, while the weights of one are corrected.

A correction of a layer needs what that layer computes in every network, and the layers after it must see
the corrected one. So the program of `apply` is walked once, for all networks at the same time; at every site
(`preactivations`) a function may give the last network new weights, before it goes on. Values made of
weights alone are computed when they meet data, and so are never stale.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from symbnn import tree
from symbnn.evaluate.corrections.origins import Origins
from symbnn.evaluate.corrections.preactivations import Site, find_sites
from symbnn.symmetry.program import LOOPS, Equation, Program, Value, flatten
from symbnn.types import Params

Leaves = dict[str, jax.Array]
Apply = Callable[..., Any]


class Traced(NamedTuple):
    """The program of a network on given inputs, and its sites."""

    program: Program
    names: dict[Value, str]
    inputs: list[jax.Array]
    sites: list[Site]
    in_loops: tuple[str, ...]
    """Leaves that are used inside loops or branches, which have no sites."""


def trace(apply: Apply, params: Params, inputs: Any) -> Traced:
    """The program of `apply` on `inputs` (a tuple is several arguments), and its sites."""
    several = inputs if isinstance(inputs, tuple) else (inputs,)
    arrays = jax.tree.map(jnp.asarray, several)
    program = flatten(jax.make_jaxpr(lambda p, some: apply(p, *some))(params, arrays), walks_loops=False)
    names = dict(zip(program.inputs, tree.named_leaves(params), strict=False))
    hidden = [
        names[value]
        for equation in program.equations
        if equation.primitive in LOOPS
        for value in equation.operands
        if value in names
    ]
    return Traced(program, names, jax.tree.leaves(arrays), find_sites(program, names), tuple(hidden))


class Reading(NamedTuple):
    """What a correction sees at a site: the same values of every network, the corrected one last."""

    site: Site
    leaves: Sequence[Leaves]
    values: Sequence[Mapping[Value, jax.Array]]
    """Data of every network that are still needed, the operands of `site.linear` among them."""
    weigh: Callable[[Leaves, Value], jax.Array]
    """A value made of weights alone, from leaves."""

    def start(self, network: int, leaves: Leaves | None = None) -> jax.Array:
        """What the chain starts from, with other leaves if given."""
        site, values = self.site, self.values[network]
        if leaves is None or site.linear is None:
            return values[site.start]
        return self._evaluate(site.linear, values, leaves)[0]

    def value_of(self, wanted: Value, network: int, leaves: Leaves | None = None) -> jax.Array:
        """A value of the chain, or the one it starts from."""
        return self.along_chain(self.start(network, leaves), leaves or self.leaves[network], wanted)

    def along_chain(self, start: jax.Array, leaves: Leaves, wanted: Value | None = None) -> jax.Array:
        """What the chain makes of `start`, up to the value `wanted`."""
        known = {self.site.start: start}
        wanted = wanted or self.site.value
        for equation in self.site.chain:
            if wanted in known:
                break
            known[equation.results[0]] = self._evaluate(equation, known, leaves)[0]
        return known[wanted]

    def _evaluate(self, equation: Equation, known: Mapping[Value, jax.Array], leaves: Leaves) -> list[Any]:
        assert equation.evaluate is not None
        return equation.evaluate(
            *(known[value] if value in known else self.weigh(leaves, value) for value in equation.operands)
        )


Correct = Callable[[Reading], Leaves]
"""New leaves of the last network at a site; none if it stays as it is."""


def walk(traced: Traced, networks: Sequence[Params], correct: Correct) -> Params:
    """The last of the networks after `correct` has seen every site, input to output."""
    program, names = traced.program, traced.names
    origins = Origins(program, names)
    leaves = [dict(tree.named_leaves(network)) for network in networks]
    given = [value for value in program.inputs if value not in names]
    values: list[dict[Value, Any]] = [dict(zip(given, traced.inputs, strict=True)) for _ in networks]
    sites: dict[Value, list[Site]] = {}
    for site in traced.sites:
        sites.setdefault(site.start, []).append(site)

    def weigh(own: Leaves, value: Value) -> Any:
        if value in names:
            return own[names[value]]
        if value.constant is not None:
            return value.constant
        equation = origins.made_by[value]
        assert equation.evaluate is not None
        results = equation.evaluate(*(weigh(own, operand) for operand in equation.operands))
        return results[equation.results.index(value)]

    def visit(value: Value) -> None:
        for site in sites.get(value, ()):
            reading = Reading(site, leaves, values, weigh)
            if new := correct(reading):
                values[-1][value] = reading.start(-1, leaves[-1] | new)
                leaves[-1] |= new

    for value in given:
        visit(value)
    last_use = {value: e for e in program.equations for value in e.operands}
    for equation in program.equations:
        if not any(value in origins.data for value in equation.operands):
            continue
        assert equation.evaluate is not None
        for own, known in zip(leaves, values, strict=True):
            operands = [known[v] if v in known else weigh(own, v) for v in equation.operands]
            known.update(zip(equation.results, equation.evaluate(*operands), strict=True))
        for value in equation.results:
            visit(value)
        for value in equation.operands:
            if last_use[value] is equation:
                for known in values:
                    known.pop(value, None)
    return tree.map_named(lambda name, leaf: leaves[-1][name].astype(leaf.dtype), networks[-1])
