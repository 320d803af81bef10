"""Published ways to match networks, written plainly in numpy and scipy: oracles for `align`.

- `weight_matching`: Git Re-Basin's coordinate descent for two networks (Ainsworth, Hayase & Srinivasa 2023,
  algorithm 1), groups in random order until no assignment gains.
- `merge_many`: the same paper's algorithm 3, every network in turn matched to the mean of the others.
- `universe`: C2M3 (Crisostomi et al. 2024), Frank-Wolfe over the permutations of all networks to a common
  labelling. Sums over pairs are taken as ⟨S, S⟩ − Σ ⟨y, y⟩, which is linear in the number of networks where
  the authors' code is quadratic, and the line search is exact where theirs tries up to 20 points.

A network is a dict of arrays; `axes` says for every one which group, if any, each of its axes carries.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from symbnn import tree
from symbnn.symmetry import SymmetrySpec

Axes = dict[str, tuple[str | None, ...]]
Network = dict[str, np.ndarray]
Orders = dict[str, np.ndarray]


def axes_of(spec: SymmetrySpec) -> Axes:
    """Which axis carries which group; for specs whose axes carry at most one."""
    return {leaf.name: tuple(factor.group for _, factor in leaf.factors()) for leaf in spec.leaves}


def unstacked(networks) -> list[Network]:
    """Stacked networks as a list of dicts."""
    leaves = {name: np.asarray(leaf) for name, leaf in tree.named_leaves(networks).items()}
    return [{name: leaf[i] for name, leaf in leaves.items()} for i in range(len(next(iter(leaves.values()))))]


def moved(axes: Axes, orders: Orders, network: Network) -> Network:
    """A network with its units in new orders."""
    return {name: _ordered(axes[name], orders, array) for name, array in network.items()}


def mean_pair_product(networks: Sequence[Network]) -> float:
    """Mean inner product of two different networks."""
    num = len(networks)
    sums = {name: np.sum([net[name] for net in networks], axis=0, dtype=np.float64) for name in networks[0]}
    own = sum(np.vdot(array, array) for net in networks for array in map(np.float64, net.values()))
    return float((_inner(sums, sums) - own) / (num * (num - 1)))


def product(axes: Axes, a: Network, b: Network) -> float:
    """Inner product of two networks over the arrays that some group moves."""
    moving = [name for name in axes if any(axes[name])]
    return _inner({name: a[name] for name in moving}, b)


def weight_matching(axes: Axes, target: Network, network: Network, random: np.random.Generator) -> Orders:
    """Orders of the units of a network that fit a target, from the order they are in."""
    sizes = group_sizes(axes, network)
    orders = {group: np.arange(size) for group, size in sizes.items()}
    groups = list(orders)
    for _ in range(100):
        is_better = False
        for group in random.permutation(groups):
            cost = _cost(axes, group, target, moved_except(axes, orders, group, network))
            found = linear_sum_assignment(cost, maximize=True)[1]
            units = np.arange(sizes[group])
            is_better |= bool(cost[units, found].sum() > cost[units, orders[group]].sum() + 1e-12)
            orders[group] = found
        if not is_better:
            break
    return orders


def merge_many(axes: Axes, networks: Sequence[Network], random: np.random.Generator) -> list[Network]:
    """All networks, moved: each in turn, in random order, to the mean of the others, until none moves."""
    current = list(networks)
    total = {name: np.sum([net[name] for net in current], axis=0, dtype=np.float64) for name in current[0]}
    for _ in range(100):
        is_moved = False
        for index in random.permutation(len(current)):
            own = current[index]
            mean = {name: np.float32((total[name] - own[name]) / (len(current) - 1)) for name in own}
            candidate = moved(axes, weight_matching(axes, mean, own, random), own)
            # Units that compute nothing can trade places for ever.
            if _inner(mean, candidate) > _inner(mean, own) * (1 + 1e-7):
                total = {name: total[name] - own[name] + candidate[name] for name in own}
                current[index], is_moved = candidate, True
        if not is_moved:
            break
    return current


def universe(axes: Axes, networks: Sequence[Network], *, max_rounds: int = 100) -> list[Network]:
    """All networks, moved to a common labelling: from the identity, five rounds without gain end it."""
    sizes = group_sizes(axes, networks[0])
    relaxed = [{group: np.eye(size, dtype=np.float32) for group, size in sizes.items()} for _ in networks]
    best, idle = -np.inf, 0
    nodes = (1 - np.cos(np.pi * np.arange(5) / 4)) / 2
    for _ in range(max_rounds):
        mapped = [_mapped(axes, one, net) for one, net in zip(relaxed, networks, strict=True)]
        sums = {name: np.sum([net[name] for net in mapped], axis=0) for name in mapped[0]}
        corners = []
        for one, net, own in zip(relaxed, networks, mapped, strict=True):
            others = {name: sums[name] - own[name] for name in sums}
            corners.append({group: _vertex(_slope(axes, group, one, others, net)) for group in sizes})
        values = [_pairs(axes, _between(relaxed, corners, node), networks) for node in nodes]
        step, value = _highest(nodes, np.array(values))
        relaxed = _between(relaxed, corners, step)
        idle = idle + 1 if value - best < 1e-6 else 0
        best = max(best, value)
        if idle == 5:
            break
    orders = [
        {group: linear_sum_assignment(matrix, maximize=True)[1] for group, matrix in one.items()}
        for one in relaxed
    ]
    return [moved(axes, one, net) for one, net in zip(orders, networks, strict=True)]


def group_sizes(axes: Axes, network: Network) -> dict[str, int]:
    """Units of every group."""
    return {
        group: network[name].shape[axis]
        for name, groups in axes.items()
        for axis, group in enumerate(groups)
        if group is not None
    }


def moved_except(axes: Axes, orders: Orders, group: str, network: Network) -> Network:
    """The arrays that have a group, moved by all others."""
    others = {name: order for name, order in orders.items() if name != group}
    return {name: _ordered(axes[name], others, network[name]) for name in axes if group in axes[name]}


def _ordered(groups: tuple[str | None, ...], orders: Orders, array: np.ndarray) -> np.ndarray:
    for axis, group in enumerate(groups):
        if group in orders:
            array = np.take(array, orders[group], axis=axis)
    return array


def _cost(axes: Axes, group: str, target: Network, network: Network) -> np.ndarray:
    total: np.ndarray | float = 0.0
    for name, array in network.items():
        axis = axes[name].index(group)
        a, b = (np.moveaxis(one, axis, 0).reshape(one.shape[axis], -1) for one in (target[name], array))
        total = total + a @ b.T
    return np.asarray(total)


def _inner(a: Network, b: Network) -> float:
    return float(sum(np.vdot(np.float64(a[name]), np.float64(b[name])) for name in a))


def _mapped(axes: Axes, relaxed: dict[str, np.ndarray], network: Network, skip: str = "") -> Network:
    """Every axis multiplied by its group's matrix, but for that of one group."""
    found = {}
    for name, array in network.items():
        if skip and skip not in axes[name]:
            continue
        for axis, group in enumerate(axes[name]):
            if group is not None and group != skip:
                array = np.moveaxis(np.tensordot(relaxed[group], array, axes=(1, axis)), 0, axis)
        found[name] = array
    return found


def _slope(axes: Axes, group: str, relaxed: Orders, others: Network, network: Network) -> np.ndarray:
    return _cost(axes, group, others, _mapped(axes, relaxed, network, skip=group))


def _vertex(slope: np.ndarray) -> np.ndarray:
    return np.eye(len(slope), dtype=np.float32)[linear_sum_assignment(slope, maximize=True)[1]]


def _between(start: Sequence[Orders], end: Sequence[Orders], step: float) -> list[Orders]:
    return [
        {group: np.float32(1 - step) * a[group] + np.float32(step) * b[group] for group in a}
        for a, b in zip(start, end, strict=True)
    ]


def _pairs(axes: Axes, relaxed: Sequence[Orders], networks: Sequence[Network]) -> float:
    """Sum of the inner products of all pairs of mapped networks."""
    mapped = [_mapped(axes, one, net) for one, net in zip(relaxed, networks, strict=True)]
    num = len(networks)
    return mean_pair_product(mapped) * num * (num - 1) / 2


def _highest(nodes: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """Where on [0, 1] the polynomial of degree four through the values is highest."""
    fitted = np.polynomial.Polynomial.fit(nodes, values, len(nodes) - 1)
    roots = [root.real for root in np.asarray(fitted.deriv().roots(), complex) if abs(root.imag) < 1e-9]
    inside = [root for root in roots if 0 < root < 1]
    candidates = np.array([0.0, 1.0, *inside])
    heights = np.array([values[0], values[-1], *fitted(np.array(inside))])
    return float(candidates[np.argmax(heights)]), float(heights.max())
